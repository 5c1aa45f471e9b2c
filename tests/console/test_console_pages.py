"""The pages of a console in front of a group."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from html import unescape
from urllib.parse import quote

import pyarrow as pa
import pytest

from dledger.client import Client
from dledger.console.pages.messages import TAIL_ROWS
from dledger.console.views.record_filter import RecordFilter
from dledger.console.watch.reading import MOST_ROWS, look
from dledger.testing import InProcessGroup
from tests.console.conftest import OWN, Page

TOWNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
LIVE = {"HX-Request": "true"}
EVIL = "<script>alert(1)</script>\x1b[31m\u202e'\"&"
SEEN = "<script>alert(1)</script>\\x1b[31m\\u202e'\"&"


def cells(html: str) -> list[list[str]]:
    """The text of each row of a page's tables."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", html, re.DOTALL)
    return [
        [
            unescape(re.sub(r"<[^>]*>", "", cell)).strip()
            for cell in re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row, re.DOTALL)
        ]
        for row in rows
    ]


def offsets(html: str) -> list[int]:
    """Those of the records on a page."""
    return [int(row[0]) for row in cells(html) if row and row[0].isdecimal()]


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    """A topic for one test alone."""
    name = re.sub(r"\W+", "-", request.node.name)[:100]
    client.create_topic(name)
    return name


def test_nodes_have_role_term_lag_and_disk(page: Page) -> None:
    (row,) = cells(page.get("/").text)[1:]
    assert row[:5] == ["n0", "LEADER", "0", "0", "OK"]
    assert "n0 leads; it is alone" in page.get("/").text


def test_what_changes_comes_alone_with_points_for_the_plots(page: Page, topic: str) -> None:
    for path in ("/", "/topics", f"/topics/{topic}", "/groups"):
        answer = page.get(path, headers=LIVE)
        assert "<html" not in answer.text
        assert "<table" in answer.text
        assert '"said": "n0 leads; it is alone"' in answer.headers["hx-trigger"]
    assert '"records"' in page.get("/topics", headers=LIVE).headers["hx-trigger"]
    assert '"lag"' in page.get("/groups", headers=LIVE).headers["hx-trigger"]


def test_topics_are_filtered_ordered_and_paged(page: Page, client: Client) -> None:
    for at in range(120):
        client.create_topic(f"many-{at:03}", if_absent=True)
    client.append("many-077", ["a", "b"])
    first = cells(page.get("/topics", params={"find": "MANY-"}).text)[1:]
    assert [row[0] for row in first] == [f"many-{at:03}" for at in range(100)]
    last = page.get("/topics", params={"find": "many-", "page": "2"}).text
    assert [row[0] for row in cells(last)[1:]] == [f"many-{at:03}" for at in range(100, 120)]
    assert 'href="?find=many-&amp;page=1"' in last
    by_records = cells(page.get("/topics", params={"find": "many-", "sort": "records"}).text)
    assert by_records[1][:6] == ["many-077", "raw", "1", "0", "2", "2"]
    assert "No topic has such a name." in page.get("/topics", params={"find": "zzz"}).text


def test_topic_has_its_partitions_schema_and_settings(page: Page, client: Client) -> None:
    client.create_topic("visits", 2, type="typed")
    client.append("visits", [{"id": 1, "path": ["a"]}], partition=1)
    text = page.get("/topics/visits").text
    rows = cells(text)
    assert rows[1][:4] == ["0", "0", "0", "0"]
    assert rows[2][:4] == ["1", "0", "1", "1"]
    assert ["id", "bigint", "yes", ""] in rows
    assert client.topic("visits").log_id in text
    assert "Schema, version 1" in text


def test_names_that_cannot_be_are_not_found_and_harmless(page: Page) -> None:
    for name in (EVIL, "a b", "x" * 200):
        for path in ("/topics/{}", "/topics/{}/records", "/groups/{}"):
            answer = page.get(path.format(quote(name, safe="")))
            assert answer.status_code == 404
            assert "<script>" not in answer.text
            assert "\u202e" not in answer.text
    assert page.get("/topics/nowhere").status_code == 404
    assert page.get("/groups/nowhere").status_code == 404


@pytest.mark.parametrize("path", ["//evil.example/x", "/%5Cevil.example/x", "/%2Fevil.example/x"])
def test_error_leads_back_to_this_site(page: Page, path: str) -> None:
    answer = page.get(OWN + path)
    assert answer.status_code == 404
    assert not re.findall(r'href="(?!/static/)[^"]*evil', answer.text)
    assert '<a href="/">Back</a>' in answer.text


def test_everything_of_strangers_is_escaped(page: Page, client: Client, topic: str) -> None:
    client.append(topic, [EVIL], key=None, keys=[EVIL], headers=[(EVIL, EVIL.encode())])
    for path in (
        f"/topics/{topic}/records",
        f"/topics/{topic}/records/0/0",
        f"/topics/{topic}/records?as=json",
        f"/topics/{topic}/tail?after=0",
    ):
        text = page.get(path, headers=LIVE if "tail" in path else {}).text
        assert "<script>" not in text
        assert not {"\x1b", "\u202e"} & {*text}
        assert unescape(text).count(SEEN) >= 3
    find = page.get(f"/topics/{topic}/records", params={"text": EVIL, "from": EVIL}).text
    assert "<script>" not in find
    assert "\u202e" in find  # in its own input alone, as it was written there
    assert len(re.findall("\u202e", find)) == 1


def test_members_of_a_group_are_there(page: Page, client: Client, topic: str) -> None:
    client.append(topic, ["a", "b", "c"])
    with client.consumer("readers", [topic], instance_id="one") as consumer:
        assert consumer.poll(5.0)
        rows = cells(page.get("/groups/readers").text)
        assert [row[-1] for row in rows if row[0] == topic] == ["one"]
        assert [row[1:2] + row[3:] for row in rows if len(row) == 5][1:] == [["one", "reads", "1"]]


def test_lag_is_that_of_the_log(page: Page, client: Client, topic: str) -> None:
    client.append(topic, [b"x"] * 500)
    client.commit_offsets("behind", {topic: {0: 123}})
    (lag,) = client.lag("behind")
    row = next(row for row in cells(page.get("/groups").text) if row[0] == "behind")
    assert row[3] == str(lag.rows) == "377"
    (position,) = (row for row in cells(page.get("/groups/behind").text) if row[0] == topic)
    assert position[1:5] == ["0", "123", "500", "377"]


def test_records_are_found_by_offset_and_by_time(page: Page, client: Client, topic: str) -> None:
    for year in (2020, 2021, 2022):
        client.append(topic, [f"{year}"] * 10, timestamps=datetime(year, 1, 1, tzinfo=UTC))
    browse = f"/topics/{topic}/records"
    assert offsets(page.get(browse).text) == list(range(30))
    for start, first in (
        ("12", 12),
        ("earliest", 0),
        ("-3", 27),
        ("2021-01-01T00:00:00Z", 10),
        ("2020-06-01T00:00:00+02:00", 10),
        ("@1640995200000", 20),
        ("999999999999999999999", None),
    ):
        found = offsets(page.get(browse, params={"from": start, "count": "2"}).text)
        assert found == ([first, first + 1] if first is not None else []), start
    for wrong in ("yesterday", "2021-01-01", "-", EVIL, "-999999999999d"):
        answer = page.get(browse, params={"from": wrong})
        assert answer.status_code == 200
        assert 'role="alert"' in answer.text, wrong


def test_pages_of_records_lead_on_and_back(page: Page, client: Client, topic: str) -> None:
    client.append(topic, [b"x"] * 25)
    text = page.get(f"/topics/{topic}/records", params={"from": "5", "count": "10"}).text
    assert offsets(text) == list(range(5, 15))
    links = dict(re.findall(r'<a href="([^"]*)" rel="(\w+)"', text))
    to = {rel: unescape(link) for link, rel in links.items()}
    assert offsets(page.get(f"/topics/{topic}/records{to['next']}").text) == list(range(15, 25))
    assert offsets(page.get(f"/topics/{topic}/records{to['prev']}").text) == list(range(10))


def test_filters_are_for_all_kinds_of_records(page: Page, client: Client, topic: str) -> None:
    client.append(topic, ["one two", "three"], keys=["a", "b"], headers=[[("h", b"1")], []])
    browse = f"/topics/{topic}/records"
    for wanted, found in (
        ({"key": "b"}, [1]),
        ({"text": "two"}, [0]),
        ({"header": "h=1"}, [0]),
        ({"header": "h=1", "key": "b"}, []),
    ):
        text = page.get(browse, params={"from": "earliest", **wanted}).text
        assert offsets(text) == found
        assert "Offsets 0 to 2 of 0 to 2 were looked at" in text
    client.create_topic(f"{topic}-typed", schema=TOWNS, key_column="id")
    client.append(f"{topic}-typed", {"id": [1, 2], "name": ["Lima", "Oslo"]})
    typed = f"/topics/{topic}-typed/records"
    text = page.get(typed, params={"text": "Oslo"}).text
    assert cells(text)[1][0::2] == ["1", "2"]
    assert cells(text)[0] == ["Offset", "Time", "id", "name"]
    assert offsets(page.get(typed, params={"key": "1"}).text) == [0]


def test_page_has_500_records_at_most(page: Page, client: Client, topic: str) -> None:
    client.append(topic, [b"x"] * (MOST_ROWS + 100))
    for count in ("501", "99999999", "9" * 40):
        found = offsets(page.get(f"/topics/{topic}/records", params={"count": count}).text)
        assert len(found) <= MOST_ROWS
    whole = page.get(f"/topics/{topic}/records", params={"count": "500", "from": "earliest"}).text
    assert offsets(whole) == list(range(500))


def test_large_values_are_shown_in_part(page: Page, client: Client, topic: str) -> None:
    client.append(topic, [b"<" * 300_000, b"small"])
    table = page.get(f"/topics/{topic}/records").text
    assert offsets(table) == [0, 1]
    assert len(table) < 20_000
    one = page.get(f"/topics/{topic}/records/0/0")
    assert "300,000 bytes" in one.text
    assert "Only its beginning is shown." in one.text
    assert len(one.content) < 120_000
    assert page.get(f"/topics/{topic}/records/0/2").status_code == 404
    assert page.get(f"/topics/{topic}/records/1/0").status_code == 404
    assert page.get(f"/topics/{topic}/records/0/{'9' * 300}").status_code == 404


def test_look_for_a_rare_record_ends_and_goes_on(client: Client, topic: str) -> None:
    """The page says how far it came; the next one begins there."""
    client.append(topic, [b"x"] * 1000)
    client.append(topic, [b"rare"])
    info, wanted = client.topic(topic), RecordFilter(contains="rare")
    found = look(client, info, 0, 0, 5, wanted)
    assert [one.offset for one in found.records] == [1000]
    assert (found.next, found.more) == (1001, False)
    beginning = look(client, info, 0, 0, 5)
    assert (beginning.next, beginning.more) == (5, True)


def test_live_tail_shows_fifty_a_second_at_most(page: Page, client: Client, topic: str) -> None:
    client.append(topic, [b"old"] * 3)
    follow = f"/topics/{topic}/tail"
    opened = page.get(follow).text
    assert offsets(opened) == []
    next_ = unescape(re.search(r'hx-get="([^"]*)"', opened)[1])  # type: ignore[index]
    assert next_.endswith("after=3")
    client.append(topic, [b"new"] * 2)
    answer = page.get(next_, headers=LIVE).text
    assert offsets(answer) == [4, 3]
    next_ = unescape(re.search(r'hx-get="([^"]*)"', answer)[1])  # type: ignore[index]
    client.append(topic, [b"flood"] * 500)
    answer = page.get(next_, headers=LIVE).text
    assert offsets(answer) == list(range(504, 504 - TAIL_ROWS, -1))
    assert "450 records came faster than can be shown." in answer


def test_no_messages_hides_them_all(open_console: Callable[..., Page], topic: str) -> None:
    page = open_console(messages=False)
    for path in ("records", "records/0/0", "tail", "records?as=hex"):
        assert page.get(f"/topics/{topic}/{path}").status_code == 404
        assert page.get(f"/topics/{topic}/{path}", headers=LIVE).status_code == 404
    text = page.get(f"/topics/{topic}").text
    assert "records?" not in text
    assert "tail" not in text


def test_console_that_reads_has_no_forms_that_change(page: Page, topic: str) -> None:
    for path in ("/", "/topics", f"/topics/{topic}", "/groups"):
        text = page.get(path).text
        assert re.findall(r'method="post" action="([^"]*)"', text) == ["/logout"]
        assert "read-only" in text
    assert page.get("/groups/g/reset", params={"to": "0"}).status_code == 403


def test_topic_is_created_grown_and_deleted(writer: Page, client: Client) -> None:
    done = writer.form("/topics", name="made", partitions="2", type="raw")
    assert (done.status_code, done.headers["location"]) == (303, "/topics/made?done=created")
    assert "The topic is created." in writer.get(done.headers["location"]).text
    assert writer.form("/topics/made/partitions", partitions="3").status_code == 303
    assert client.topic("made").partitions == 3
    again = writer.form("/topics", name="made", partitions="2", type="raw")
    assert again.status_code == 409
    assert "made" in again.text
    for wrong in ("", "Made", "made "):
        answer = writer.form("/topics/made/delete", confirm=wrong)
        assert answer.status_code == 400
        assert "Nothing was changed" in answer.text
    assert writer.form("/topics/made/delete", confirm="made").status_code == 303
    assert "made" not in {info.name for info in client.topics()}


@pytest.mark.parametrize(
    "fields",
    [
        {"name": EVIL, "partitions": "1", "type": "raw"},
        {"name": "", "partitions": "1", "type": "raw"},
        {"name": "odd", "partitions": "0", "type": "raw"},
        {"name": "odd", "partitions": "1e9", "type": "raw"},
        {"name": "odd", "partitions": "9" * 30, "type": "raw"},
        {"name": "odd", "partitions": "1", "type": "other"},
        {"name": "odd"},
    ],
)
def test_topic_that_cannot_be_is_refused(
    writer: Page, client: Client, fields: dict[str, str]
) -> None:
    answer = writer.form("/topics", **fields)
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text
    assert "<script>" not in answer.text
    assert "odd" not in {info.name for info in client.topics()}


def test_group_is_reset_by_a_plan_and_its_name(writer: Page, client: Client, topic: str) -> None:
    client.append(topic, [b"x"] * 10)
    client.commit_offsets("again", {topic: {0: 7}})
    plan = cells(writer.get("/groups/again/reset", params={"to": "-4"}).text)
    assert plan[1] == [topic, "0", "7", "6", "4"]
    assert client.group("again").offsets == {topic: {0: 7}}
    wrong = writer.form("/groups/again/reset", to="-4", topic="", confirm="agan")
    assert wrong.status_code == 400
    assert client.group("again").offsets == {topic: {0: 7}}
    assert writer.form("/groups/again/reset", to="-4", topic="", confirm="again").status_code == 303
    assert client.group("again").offsets == {topic: {0: 6}}
    assert writer.get("/groups/again/reset", params={"to": EVIL}).status_code == 400
    assert writer.get("/groups/none/reset", params={"to": "0"}).status_code == 404
    elsewhere = {"to": "0", "topic": "elsewhere"}
    assert writer.get("/groups/again/reset", params=elsewhere).status_code == 404


def test_leadership_goes_to_the_node_that_is_named(log: InProcessGroup, writer: Page) -> None:
    assert writer.form("/leader", node="n7", confirm="n7").status_code == 400
    assert writer.form("/leader", node="n0", confirm="n1").status_code == 400
    assert writer.form("/leader", node="n0", confirm="n0").status_code in {303, 409, 503}


def test_settings_and_certificates_say_what_the_group_says(page: Page) -> None:
    rows = dict(row for row in cells(page.get("/settings").text) if len(row) == 2)
    assert rows["group"] == "test"
    assert rows["members"] == "n0"
    assert "does not use TLS" in page.get("/certificates").text


def test_settings_that_the_group_keeps_are_shown(page: Page, client: Client) -> None:
    client.set_settings({"max_topics": 9000})
    page.app.state.console.group.settings.forget()
    rows = dict(row for row in cells(page.get("/settings").text) if len(row) == 2)
    assert (rows["max_topics"], rows["max_partitions"]) == ("9000", "100000")
    assert "retention_ms" not in rows, "each node has its own"


def test_pages_load_nothing_from_elsewhere_and_nothing_inline(writer: Page, topic: str) -> None:
    for path in ("/", "/topics", f"/topics/{topic}", f"/topics/{topic}/tail", "/groups"):
        text = writer.get(path).text
        for link in re.findall(r'(?:src|href|action|hx-get)="([^"]*)"', text):
            assert link.startswith(("/", "?", "#", "records")), link
            assert not link.startswith("//")
        assert not re.findall(r"<script(?![^>]*src=)|<style|style=| on\w+=", text)
        for asset in re.findall(r'(?:src|href)="(/static/[^"]*)"', text):
            assert writer.get(asset).status_code == 200
