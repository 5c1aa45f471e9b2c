"""Stand-ins that several tests here share."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from dledger.net.address import split_address


def dial(address: str) -> socket.socket:
    """A plain socket that is connected to it."""
    return socket.create_connection(split_address(address), 20)


class Timer:
    """Of a `FakeLoop`."""

    def cancel(self) -> None:
        """Nothing here cancels a timer whose time comes."""


class FakeLoop:
    """A loop whose time stands still until `pass_time`, and whose turns are those of `turn`."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.soon: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[[], None], /) -> Any:
        self.soon.append(callback)
        return Timer()

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Any:
        self.timers.append((self.now_s + delay, callback))
        return Timer()

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()

    def pass_time(self, seconds: float) -> None:
        """Call what is due by then, each at its time."""
        until = self.now_s + seconds
        while due := min((one for one in self.timers if one[0] <= until), key=due_at, default=None):
            self.timers.remove(due)
            self.now_s = due[0]
            due[1]()
        self.now_s = until


def due_at(timer: tuple[float, Callable[[], None]]) -> float:
    return timer[0]


class Watched:
    """Something that says when it has changed."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()

    async def until(self, wanted: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not wanted():
                self.changed.clear()
                await self.changed.wait()
