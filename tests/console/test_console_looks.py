"""How the pages look and what they cost: for every reader, on every screen, at 1,000 topics."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dledger.client import Client
from dledger.testing import InProcessGroup

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "console"
TOPICS = 1000
PAGE_BYTES = 200 << 10
PAGE_MS = 300
WIDE, NARROW = {"width": 1100, "height": 700}, {"width": 360, "height": 640}
MANY = "/topics/orders/records?count=500&from=earliest"
PATHS = (
    "/",
    "/topics",
    "/topics?find=zzz",
    "/topics/orders",
    "/topics/clicks",
    "/topics/orders/records",
    MANY,
    "/topics/orders/records?from=nonsense",
    "/topics/clicks/records",
    "/topics/orders/records/0/3",
    "/topics/orders/records/0/3?as=json",
    "/topics/clicks/records/0/3",
    "/topics/orders/tail?after=0",
    "/groups",
    "/groups/billing",
    "/groups/billing/reset?to=earliest",
    "/users",
    "/users/alice/remove",
    "/acls",
    "/acls?principal=User:alice&operation=read&resource_type=topic&resource=orders",
    "/acls?principal=User:alice&operation=admin&resource_type=topic",
    "/quotas",
    "/quotas/remove?entity=User:alice&quota=bytes_in",
    "/audit",
    "/settings",
    "/certificates",
    "/topics/nowhere",
)


@pytest.fixture(scope="module")
def log(browser: Any) -> Iterator[InProcessGroup]:
    """1,000 topics. After the browser: without one there are none."""
    with InProcessGroup(1) as group:
        client = group.client()
        for at in range(TOPICS - 2):
            client.create_topic(f"{'long-name-' * 6}{at:04}" if at % 10 else f"t-{at:04}")
        client.create_topic("orders", 3)
        client.create_topic("clicks", type="typed")
        lines = [f'{{"amount": {n}, "text": "<{"é" * 200}>"}}' for n in range(600)]
        keys = [f"customer-{n}" for n in range(600)]
        client.append("orders", lines, keys=keys, headers=[("trace", b"7")], partition=0)
        wide = {f"column_{n}": n for n in range(60)}
        client.append("clicks", [{"id": n, "name": "x" * 100} | wide for n in range(500)])
        client.commit_offsets("billing", {"orders": {0: 250, 1: 0}})
        for at in range(60):
            client.commit_offsets(f"group-{at:02}", {"orders": {0: at}})
        everything = ("topic *", "group *", "producer *", "cluster")
        client.add_acls([f"allow User:ANONYMOUS all {what}" for what in everything])
        names = [f"{at:03}{'<' * 900}" for at in range(300)]
        client.add_acls([f"allow User:alice write producer {name}" for name in names])
        client.add_user("alice", "down the rabbit hole")
        for _ in range(3):
            client.issue_token("alice", 3600)
        client.set_quotas("User:alice", {"bytes_in": 10 << 20, "requests": 500})
        client.set_quotas("Group", {"topics": 2000})
        yield group


@pytest.fixture
def page(open_page: Callable[..., Any]) -> Any:
    """Of a console that may write: it has all forms."""
    return open_page(write=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(open_page: Callable[..., Any], scheme: str) -> None:
    """Contrast, names, landmarks, order: on each page, wide and narrow."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="make console-test installs axe"
    ).Axe()
    page = open_page(write=True, context={"color_scheme": scheme})
    found = []
    for size in (WIDE, NARROW) if scheme == "light" else (WIDE,):
        page.set_viewport_size(size)
        for path in sorted({*PATHS} - {MANY}):  # it is the same as a shorter one
            page.goto(page.console.address + path)
            for one in axe.run(page).response["violations"]:
                where = [node["html"][:200] for node in one["nodes"][:3]]
                found.append((path, size["width"], one["impact"], one["id"], where))
    assert [one for one in found if one[2] in {"serious", "critical"}] == []
    assert [one for one in found if one[2] == "moderate"] == []


def test_pages_fit_a_narrow_screen(page: Any) -> None:
    """Wide tables scroll by themselves; the page does not."""
    page.set_viewport_size(NARROW)
    for path in PATHS:
        page.goto(page.console.address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"], path


def test_dark_mode_follows_the_system(open_page: Callable[..., Any]) -> None:
    colours = []
    for scheme in ("light", "dark"):
        page = open_page(context={"color_scheme": scheme})
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(255, 255, 255)", "rgb(22, 24, 29)"]


def test_each_page_has_200_kib_at_most(page: Any) -> None:
    """With its styles, scripts and pictures, none of them kept from another page."""
    page.route("**/*", lambda route: route.continue_())  # leaves the browser's cache out
    requests: list[Any] = []
    page.on("requestfinished", lambda request: requests.append(request))
    sizes = {}
    for path in PATHS:
        requests.clear()
        page.goto(page.console.address + path, wait_until="load")
        answers = [request.response() for request in list(requests)]
        sizes[path] = sum(int(answer.headers["content-length"]) for answer in answers)
    assert {path: size for path, size in sizes.items() if size > PAGE_BYTES} == {}
    assert max(sizes.values()) > PAGE_BYTES / 2


def test_each_page_is_there_within_300_ms(page: Any) -> None:
    """From the request to the end of loading; the best of five."""
    if os.getloadavg()[0] > (os.cpu_count() or 1):
        pytest.skip("others use this machine: run it again when its load is below its processors")
    times: dict[str, float] = {}
    for path in PATHS:
        for _ in range(5):
            page.goto(page.console.address + path, wait_until="load")
            page.wait_for_function("performance.getEntriesByType('navigation')[0].loadEventEnd > 0")
            took = page.evaluate("performance.getEntriesByType('navigation')[0].duration")
            times[path] = min(took, times.get(path, took))
    assert {path: round(took) for path, took in times.items() if took > PAGE_MS} == {}


@pytest.mark.parametrize(
    ("name", "path", "size", "scheme"),
    [
        ("nodes", "/", {"width": 1000, "height": 330}, "light"),
        ("topics", "/topics?find=t-00", {"width": 1000, "height": 640}, "light"),
        (
            "records",
            "/topics/orders/records?count=8&as=json",
            {"width": 1000, "height": 640},
            "light",
        ),
        ("group", "/groups/billing", {"width": 1000, "height": 560}, "dark"),
        ("narrow", "/groups", {"width": 360, "height": 640}, "dark"),
    ],
)
def test_pictures_of_the_docs_show_the_pages(
    open_page: Callable[..., Any],
    client: Client,
    tmp_path: Path,
    pytestconfig: pytest.Config,
    name: str,
    path: str,
    size: dict[str, int],
    scheme: str,
) -> None:
    """``make console-test REWRITE=1`` takes them anew into docs/console."""
    page = open_page(path, context={"color_scheme": scheme, "viewport": size})
    for at in range(4):  # points of the plots
        client.append("orders", [f"{at}"] * (50 + 10 * at), partition=1)
        page.wait_for_event("requestfinished") if page.locator("#live").count() else None
    place = PICTURES if pytestconfig.getoption("--rewrite") else tmp_path
    place.mkdir(exist_ok=True)
    file = place / f"{name}.png"
    page.screenshot(path=file, animations="disabled")
    assert file.stat().st_size < 100_000
    assert (PICTURES / file.name).exists()
    assert f"](console/{file.name})" in (PICTURES.parent / "console.md").read_text()
