"""What people do with the console, in Chromium. ``make console-test`` installs what it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from dledger.client import Client
from dledger.testing import InProcessGroup
from tests.console.browser import SOON_MS

SEEN_MS = 2_000
"""A dead leader is seen within this."""


@pytest.fixture(scope="module")
def log(browser: Any) -> Iterator[InProcessGroup]:
    """Three nodes, with what the tests look at. After the browser: without one there are none."""
    with InProcessGroup(3) as group:
        client = group.client()
        client.create_topic("orders", 2)
        for year in (2020, 2021):
            client.append(
                "orders",
                [f'{{"year": {year}, "amount": {n}.50}}' for n in range(40)],
                key=None,
                keys=[f"customer-{n % 4}" for n in range(40)],
                headers=[("trace", b"7")],
                timestamps=datetime(year, 1, 1, tzinfo=UTC),
                partition=0,
            )
        client.create_topic("clicks", type="typed")
        client.append("clicks", [{"id": n, "page": f"p{n}", "score": n / 2} for n in range(20)])
        for at in range(130):
            client.create_topic(f"filler-{at:03}")
        client.commit_offsets("billing", {"orders": {0: 30, 1: 0}})
        yield group


def wait_for(page: Any, text: str, timeout: int = SOON_MS) -> None:
    """Until the page has this text."""
    page.get_by_text(text).first.wait_for(timeout=timeout)


def rows(page: Any, caption: str = "") -> list[list[str]]:
    """The text of the rows of a table."""
    table = (
        page.locator("table", has_text=caption).first if caption else page.locator("table").first
    )
    return [
        [cell.strip() for cell in row.locator("th, td").all_inner_texts()]
        for row in table.locator("tbody tr").all()
    ]


def stop_clock(page: Any) -> None:
    """Time in the page goes on by ``page.clock`` alone."""
    page.clock.install(time=datetime(2026, 1, 1, tzinfo=UTC))
    page.reload()
    page.clock.pause_at(datetime(2026, 1, 1, 0, 1, tzinfo=UTC))
    page.wait_for_load_state("networkidle")


def requests_of(page: Any) -> list[str]:
    """Addresses that the page asks for from now on."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    return asked


def test_link_opens_the_nodes(open_page: Callable[..., Any], log: InProcessGroup) -> None:
    page = open_page()
    wait_for(page, f"{log.leader} leads; all 3 nodes answer")
    assert [row[0] for row in rows(page)] == ["n0", "n1", "n2"]
    assert page.title() == "Nodes – dledger"


def test_link_works_once(open_page: Callable[..., Any], browser: Any) -> None:
    page = open_page()
    link = page.console.link
    with browser.new_context() as other:
        second = other.new_page()
        second.goto(link)
        second.wait_for_url(f"{page.console.address}/")
    with browser.new_context() as other:
        third = other.new_page()
        third.goto(link)
        wait_for(third, "You are not logged in here")


def test_sections_are_reached_by_keyboard(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.reload()
    for _ in range(4):  # the link over all this, the name, nodes, topics
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics")
    assert page.locator("nav [aria-current=page]").inner_text() == "Topics"


def test_topics_are_found_by_name(open_page: Callable[..., Any]) -> None:
    page = open_page("/topics")
    page.get_by_label("Name contains").fill("ORD")
    page.keyboard.press("Enter")
    page.wait_for_url("**find=ORD**")
    assert [row[0] for row in rows(page)] == ["orders"]


def test_topics_are_ordered_by_records(open_page: Callable[..., Any]) -> None:
    page = open_page("/topics")
    page.get_by_label("Order").select_option("records")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**sort=records**")
    assert [row[0] for row in rows(page)[:2]] == ["orders", "clicks"]


def test_topics_are_paged(open_page: Callable[..., Any]) -> None:
    page = open_page("/topics")
    page.get_by_role("link", name="Next").click()
    page.wait_for_url("**page=2**")
    assert rows(page)[-1][0] == "orders"
    page.get_by_role("link", name="Previous").click()
    page.wait_for_url("**page=1**")
    assert rows(page)[0][0] == "clicks"


def test_throughput_and_offsets_follow_the_log(
    open_page: Callable[..., Any], client: Client
) -> None:
    page = open_page("/topics")
    page.get_by_role("link", name="orders").or_(page.get_by_role("link", name="Next")).first.click()
    page.goto(page.console.address + "/topics/orders")
    end = client.end_offsets("orders")[1]
    client.append("orders", ["x"] * 2000, partition=1)
    page.locator("tbody tr").nth(1).locator("td", has_text=f"{end + 2000:,}").first.wait_for()
    assert page.locator(".plot canvas").count() == 2


def test_records_are_browsed_by_offset(open_page: Callable[..., Any]) -> None:
    page = open_page("/topics/orders")
    page.get_by_role("link", name="Browse records").click()
    page.get_by_label("From").fill("10")
    page.get_by_label("Rows").fill("5")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**from=10**")
    assert [row[0] for row in rows(page)] == ["10", "11", "12", "13", "14"]
    page.get_by_role("link", name="Next").click()
    page.wait_for_url("**from=15**")
    assert rows(page)[0][0] == "15"


def test_records_are_browsed_by_time(open_page: Callable[..., Any]) -> None:
    page = open_page("/topics/orders/records?partition=0")
    page.get_by_label("From").fill("2020-06-01T00:00:00Z")
    page.keyboard.press("Enter")
    page.wait_for_url("**from=2020**")
    assert rows(page)[0][:2] == ["40", "2021-01-01 00:00:00.000Z"]


def test_records_are_filtered(open_page: Callable[..., Any]) -> None:
    page = open_page("/topics/orders/records?partition=0&from=earliest")
    page.get_by_label("Key").fill("customer-3")
    page.get_by_label("Value contains").fill("7.50")
    page.get_by_label("Header").fill("trace=7")
    page.keyboard.press("Enter")
    page.wait_for_url("**text=7.50**")
    assert [row[0] for row in rows(page)] == ["7", "27", "47", "67"]


def test_place_that_is_none_is_told(open_page: Callable[..., Any]) -> None:
    page = open_page("/topics/orders/records")
    page.get_by_label("From").fill("yesterday")
    page.keyboard.press("Enter")
    wait_for(page, "From yesterday: write earliest, latest, an offset")


def test_one_record_is_seen_in_each_form(open_page: Callable[..., Any]) -> None:
    page = open_page("/topics/orders/records?partition=0&from=0")
    page.get_by_role("link", name="1", exact=True).click()
    wait_for(page, "customer-1")
    page.get_by_role("link", name="hex").click()
    wait_for(page, "7b 22 79 65 61 72")
    page.get_by_role("link", name="json").click()
    page.wait_for_url("**as=json")
    assert page.locator("pre").inner_text().splitlines()[2] == '  "amount": 1.50'
    page.get_by_role("link", name="Next").click()
    page.wait_for_url("**/2?as=json")


def test_typed_rows_are_columns(open_page: Callable[..., Any]) -> None:
    page = open_page("/topics/clicks/records?from=3&count=1")
    assert page.locator("thead th").all_inner_texts() == ["Offset", "Time", "id", "page", "score"]
    assert rows(page)[0][2:] == ["3", "p3", "1.5"]


def test_live_tail_follows_until_it_is_paused(
    open_page: Callable[..., Any], client: Client
) -> None:
    client.create_topic("followed", if_absent=True)
    page = open_page("/topics/followed/tail")
    client.append("followed", ["record-1"])
    wait_for(page, "record-1")
    client.append("followed", ["record-2"])
    wait_for(page, "record-2")
    assert [row[3] for row in rows(page)] == ["record-2", "record-1"]
    stop_clock(page)
    page.get_by_role("button", name="Pause").click()
    asked = requests_of(page)
    page.clock.run_for(10_000)
    assert asked == []
    page.get_by_role("button", name="Pause").click()
    with page.expect_request("**/tail?*"):
        page.clock.run_for(1000)


def test_tab_that_nobody_sees_asks_for_nothing(open_page: Callable[..., Any]) -> None:
    page = open_page("/topics")
    stop_clock(page)
    asked = requests_of(page)
    page.evaluate("Object.defineProperty(document, 'hidden', { get: () => window.unseen })")
    page.evaluate("window.unseen = true")
    page.clock.run_for(10_000)
    assert asked == []
    page.evaluate("window.unseen = false")
    with page.expect_request("**/topics?"):
        page.clock.run_for(1000)


def test_page_makes_one_request_a_second(open_page: Callable[..., Any]) -> None:
    page = open_page("/topics/orders")
    stop_clock(page)
    asked = requests_of(page)
    for _ in range(3):
        with page.expect_response("**/topics/orders?"):
            page.clock.run_for(1000)
    assert asked == [f"{page.console.address}/topics/orders?"] * 3


def test_focus_stays_where_it_is_over_a_refresh(
    open_page: Callable[..., Any], client: Client
) -> None:
    page = open_page("/topics?find=orders")
    page.locator("#t-orders").focus()
    before = page.locator("#t-orders").element_handle()
    client.append("orders", ["x"], partition=1)
    page.wait_for_function("(link) => !link.isConnected", arg=before)
    assert page.evaluate("document.activeElement.id") == "t-orders"


def test_lag_is_that_of_the_log(open_page: Callable[..., Any], client: Client) -> None:
    page = open_page("/groups")
    page.get_by_role("link", name="billing").click()
    client.append("orders", ["x"] * 3, partition=1)
    lag = {one.partition: one.rows for one in client.lag("billing")}
    for partition, behind in lag.items():
        row = page.locator("tbody").first.locator("tr").nth(partition)
        row.locator(f'td:nth-child(5):text-is("{behind:,}")').wait_for()


def test_members_of_a_group_are_seen(open_page: Callable[..., Any], client: Client) -> None:
    with client.consumer("readers", ["orders"], instance_id="reader-1") as consumer:
        consumer.poll(5.0)
        page = open_page("/groups/readers")
        wait_for(page, "reader-1")
        assert page.get_by_role("cell", name="reads", exact=True).count() == 1


def test_topic_is_made_grown_and_deleted(open_page: Callable[..., Any], client: Client) -> None:
    page = open_page("/topics", write=True)
    page.get_by_label("Name", exact=True).fill("from-the-browser")
    page.get_by_label("Partitions").fill("2")
    page.get_by_role("button", name="Create topic").click()
    wait_for(page, "The topic is created.")
    page.get_by_role("button", name="Add partitions").click()
    wait_for(page, "The partitions are there.")
    assert client.topic("from-the-browser").partitions == 3
    page.get_by_label("Type its name to delete it").fill("something-else")
    page.get_by_role("button", name="Delete topic").click()
    wait_for(page, "Nothing was changed: type from-the-browser to confirm")
    page.go_back()
    page.get_by_label("Type its name to delete it").fill("from-the-browser")
    page.get_by_role("button", name="Delete topic").click()
    wait_for(page, "The topic is deleted.")
    assert "from-the-browser" not in {info.name for info in client.topics()}


def test_name_that_cannot_be_is_refused_with_the_way_out(open_page: Callable[..., Any]) -> None:
    page = open_page("/topics", write=True)
    page.get_by_label("Name", exact=True).evaluate("(input) => input.removeAttribute('pattern')")
    page.get_by_label("Name", exact=True).fill("no name")
    page.get_by_role("button", name="Create topic").click()
    wait_for(page, "use 1 to 127 of the characters A-Z a-z 0-9 . _ -")


def test_group_is_reset_by_its_plan(open_page: Callable[..., Any], client: Client) -> None:
    client.commit_offsets("again", {"orders": {0: 30}})
    page = open_page("/groups/again", write=True)
    page.get_by_label("Go on at").fill("earliest")
    page.get_by_role("button", name="Show what would be").click()
    wait_for(page, "would go on at these offsets")
    assert rows(page)[0][:4] == ["orders", "0", "30", "0"]
    page.get_by_label("Type the group's name").fill("again")
    page.get_by_role("button", name="Reset offsets").click()
    wait_for(page, "The group goes on there.")
    assert client.group("again").offsets == {"orders": {0: 0}}


def test_leadership_is_transferred(open_page: Callable[..., Any], log: InProcessGroup) -> None:
    former = log.leader
    page = open_page("/", write=True)
    to = page.get_by_label("New leader").input_value()
    assert to != former
    page.get_by_label("Type its name to confirm").fill(to)
    page.get_by_role("button", name="Transfer leadership").click()
    wait_for(page, "Leadership is transferred.")
    wait_for(page, f"{to} leads; all 3 nodes answer")


def test_logged_out_is_out(open_page: Callable[..., Any]) -> None:
    page = open_page("/topics")
    page.get_by_role("button", name="Log out").click()
    wait_for(page, "You are logged out.")
    page.goto(page.console.address)
    wait_for(page, "You are not logged in here")


def test_end_of_the_session_is_told(open_page: Callable[..., Any]) -> None:
    page = open_page("/topics")
    page.context.clear_cookies()
    wait_for(page, "Your session has ended")


def test_end_of_the_console_is_told(open_page: Callable[..., Any]) -> None:
    page = open_page("/topics")
    page.console.stop()
    wait_for(page, "The console does not answer")


def test_records_of_strangers_do_nothing(open_page: Callable[..., Any], client: Client) -> None:
    client.create_topic("hostile", if_absent=True)
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>\u202egnp"
    client.append("hostile", [evil], keys=[evil], headers=[(evil, evil.encode())])
    page = open_page("/topics/hostile/records")
    asked: list[str] = []
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    for path in ("/topics/hostile/records?text=%3Cimg", "/topics/hostile/records/0/0"):
        page.goto(page.console.address + path)
        wait_for(page, "<img src=x onerror=alert(1)><script>alert(2)</script>\\u202egnp")
        assert page.locator("main img, main script").count() == 0
    assert asked == []


def test_rules_are_added_tested_and_removed(open_page: Callable[..., Any], client: Client) -> None:
    page = open_page("/acls", write=True)
    form = page.locator("form", has=page.get_by_role("button", name="Add rule"))
    form.get_by_label("Principal").fill("User:ANONYMOUS")
    form.get_by_label("Operation").select_option("admin")
    form.get_by_label("Resource").select_option("cluster")
    form.get_by_role("button").click()
    try:
        wait_for(page, "The rule holds from now on.")
        test = page.locator("form", has=page.get_by_role("button", name="Test"))
        test.get_by_label("Principal").fill("User:ANONYMOUS")
        test.get_by_label("Operation").select_option("describe")
        test.get_by_label("Resource").select_option("cluster")
        test.get_by_role("button").click()
        wait_for(page, "by the rule: allow User:ANONYMOUS admin cluster")
    finally:
        page.goto(f"{page.console.address}/acls")
        page.get_by_role("link", name="Remove rule allow User:ANONYMOUS admin cluster").click()
        page.get_by_label("Also where nobody could change").check()
        page.get_by_role("button", name="Remove rule").click()
    wait_for(page, "The rule holds no longer.")
    assert client.acls() == []


def test_quotas_are_set_and_removed(open_page: Callable[..., Any], client: Client) -> None:
    page = open_page("/quotas", write=True)
    page.get_by_role("combobox").select_option("requests")
    page.get_by_label("Principal", exact=True).fill("User:alice")
    page.get_by_label("Value").fill("500")
    page.get_by_role("button", name="Set quota").click()
    wait_for(page, "The quota is set.")
    assert client.quotas() == {"User:alice": {"requests": 500}}
    page.get_by_role("link", name="Remove requests a second of User:alice").click()
    page.get_by_role("button", name="Remove quota").click()
    wait_for(page, "The quota is removed.")
    assert client.quotas() == {}


def test_killed_leader_is_seen_within_two_seconds(
    open_page: Callable[..., Any], log: InProcessGroup
) -> None:
    page = open_page("/")
    leader = log.leader
    wait_for(page, f"{leader} leads; all 3 nodes answer")
    log.kill(leader)
    try:
        wait_for(page, f"not {leader}", SEEN_MS)
        row = page.locator("tbody tr", has=page.get_by_role("rowheader", name=leader))
        row.get_by_text("does not answer").wait_for(timeout=SOON_MS)
        assert log.leader != leader
        wait_for(page, f"{log.leader} leads; 2 of 3 nodes answer, not {leader}")
    finally:
        log.restart(leader)
    wait_for(page, f"{log.leader} leads; all 3 nodes answer")
