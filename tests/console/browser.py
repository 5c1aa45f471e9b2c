"""A console that runs, and a Chromium without a window in front of it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dledger.console.app import console_app
from dledger.console.server import listen, server_of
from dledger.console.settings import ConsoleSettings
from dledger.console.watch.watched_group import WatchedGroup

SOON_MS = 10_000
"""Longest wait for what a page is to show."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


class RunningConsole:
    """A console at a port of its own."""

    def __init__(self, bootstrap_servers: str, **settings: Any) -> None:
        chosen = ConsoleSettings(port=0, **settings)
        self.watched = WatchedGroup(bootstrap_servers)
        self._listener = listen(chosen)
        port = self._listener.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        app = console_app(chosen, self.watched, port, "tests")
        self.sessions = app.state.console.door.sessions
        self._server = server_of(app, chosen)
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],))
        self._thread.start()

    @property
    def link(self) -> str:
        return f"{self.address}/login?token={self.sessions.token}"

    def stop(self) -> None:
        """Safe to call twice."""
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
        self.watched.close()


def chromium() -> str:
    """The program; a test without one is skipped."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no Chromium: apt install chromium")
    return found


@contextmanager
def opened_browser() -> Iterator[Any]:
    """A Chromium of playwright's; a test without playwright is skipped."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="make console-test installs playwright and runs this"
    )
    program = chromium()
    # what root starts has no sandbox
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()
