"""Stand-ins that several tests here share."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from dledger.net.address import split_address


def dial(address: str) -> socket.socket:
    """A plain socket that is connected to it."""
    return socket.create_connection(split_address(address), 20)


class Timer:
    """Of a `FakeLoop`: a call that is due, until it is cancelled."""

    def __init__(self, due_s: float = 0.0, call: Callable[[], None] = lambda: None) -> None:
        self.due_s = due_s
        self.call = call

    def cancel(self) -> None:
        self.call = lambda: None


class FakeLoop:
    """A loop whose time stands still until `pass_time`, and whose turns are those of `turn`."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.soon: list[Timer] = []
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[[], None], /) -> Any:
        self.soon.append(Timer(self.now_s, callback))
        return self.soon[-1]

    def call_later(self, delay: float, callback: Callable[..., None], /, *args: Any) -> Any:
        self.timers.append(Timer(self.now_s + delay, partial(callback, *args)))
        return self.timers[-1]

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for timer in soon:
            timer.call()

    def all_turns(self) -> int:
        """Turns until nothing is to be called soon; how many."""
        turns = 0
        while self.soon:
            self.turn()
            turns += 1
        return turns

    def pass_time(self, seconds: float) -> None:
        """Call what is due by then, each at its time."""
        until = self.now_s + seconds
        while due := [timer for timer in self.timers if timer.due_s <= until]:
            first = min(due, key=lambda timer: timer.due_s)
            self.timers.remove(first)
            self.now_s = first.due_s
            first.call()
        self.now_s = until


class Watched:
    """Something that says when it has changed."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()

    async def until(self, wanted: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not wanted():
                self.changed.clear()
                await self.changed.wait()
