"""A console in front of a group within this process: called as an application, or by a browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from dledger.client import Client
from dledger.console.app import console_app
from dledger.console.settings import ConsoleSettings
from dledger.console.watch.watched_group import WatchedGroup
from dledger.testing import InProcessGroup
from tests.console.browser import SOON_MS, RunningConsole, opened_browser

PORT = 7080
OWN = f"http://127.0.0.1:{PORT}"


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the contexts and options of whoever runs it."""
    monkeypatch.setenv("DLEDGER_CONFIG", str(tmp_path / "config.toml"))
    for name in ("DLEDGER_CONTEXT", "DLEDGER_BOOTSTRAP"):
        monkeypatch.delenv(name, raising=False)


class Page(TestClient):
    """A browser without a window, that is logged in."""

    app: Any

    def form(self, path: str, **fields: str) -> Response:
        """Send a form as the page at the same place would, with its session's token."""
        (csrf,) = set(re.findall(r'name="csrf" value="([^"]*)"', self.get("/").text))
        return self.post(path, data={"csrf": csrf, **fields}, headers={"Origin": OWN})


@pytest.fixture(scope="module")
def log() -> Iterator[InProcessGroup]:
    """One node, for the tests of a module."""
    with InProcessGroup(1) as group:
        yield group


@pytest.fixture(scope="module")
def client(log: InProcessGroup) -> Client:
    return log.client()


@pytest.fixture
def open_console(log: InProcessGroup) -> Iterator[Callable[..., Page]]:
    """Makes browsers of consoles with these settings."""
    with ExitStack() as stack:

        def make(*, logged_in: bool = True, **settings: object) -> Page:
            watched = WatchedGroup(log.bootstrap_servers)
            stack.callback(watched.close)
            app = console_app(ConsoleSettings(**settings), watched, PORT, "tests")
            page = Page(app, base_url=OWN, follow_redirects=False)
            if logged_in:
                page.get("/login", params={"token": app.state.console.door.sessions.token})
            return page

        yield make


@pytest.fixture
def page(open_console: Callable[..., Page]) -> Page:
    """A browser of a console that only reads."""
    return open_console()


@pytest.fixture
def writer(open_console: Callable[..., Page]) -> Page:
    """A browser of a console that may write."""
    return open_console(write=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium; without one the test is skipped."""
    with opened_browser() as browser:
        yield browser


@pytest.fixture
def open_page(log: InProcessGroup, browser: Any) -> Iterator[Callable[..., Any]]:
    """``open_page(path, browser's settings, console's settings)``: a logged-in page. At the end no
    page has met an error of a script or of the policy."""
    errors: list[str] = []
    with ExitStack() as stack:

        def make(path: str = "/", *, context: dict[str, Any] | None = None, **settings: Any) -> Any:
            console = RunningConsole(log.bootstrap_servers, **settings)
            stack.callback(console.stop)
            opened = browser.new_context(
                **{"viewport": {"width": 1100, "height": 700}, **(context or {})}
            )
            stack.callback(opened.close)
            opened.set_default_timeout(SOON_MS)
            page = opened.new_page()
            page.console = console
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on(
                "console", lambda said: errors.append(said.text) if said.type == "error" else None
            )
            page.goto(console.link)
            page.wait_for_url(f"{console.address}/")
            if path != "/":
                page.goto(console.address + path)
            return page

        yield make
    told = (
        "Failed to load resource",
        "Response Status Error Code",
        "htmx:sendError",
        "htmx:afterRequest",
    )
    assert [error for error in errors if not error.startswith(told)] == []
