"""A console in front of a group within this process: called as an application, or by a browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from starlette.testclient import TestClient

from dledger.client import Client
from dledger.console.app import console_app
from dledger.console.settings import ConsoleSettings
from dledger.console.watch.watched_group import WatchedGroup
from dledger.testing import InProcessGroup

PORT = 7080
OWN = f"http://127.0.0.1:{PORT}"


class Page(TestClient):
    """A browser without a window, that is logged in."""

    def form(self, path: str, **fields: str) -> object:
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
