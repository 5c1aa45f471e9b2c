"""Cancellations of tasks, at the awaits that a seed chooses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from random import Random
from typing import Any, Final

PATIENCE_S: Final = 60.0
"""A call that takes longer than this hangs."""


class Canceller:
    """Runs coroutines, and cancels some of them at one of their awaits, and at a later one again.

    Attributes:
        asked: how often a call was made, by its name.
        fired: how often one was cancelled.
        problems: none: a call that hangs raises.
    """

    def __init__(self, dice: Random) -> None:
        self.asked: Counter[str] = Counter()
        self.fired: Counter[str] = Counter()
        self.seconds = 0
        self.problems: list[str] = []
        self._dice = dice
        self._lengths: dict[str, int] = {}

    async def call(self, name: str, work: Coroutine[Any, Any, Any]) -> tuple[Any, bool]:
        """The result of the call, and whether the call was cancelled.

        Raises:
            Exception: what it raised.
            TimeoutError: it hangs.
        """
        self.asked[name] += 1
        dice, at = self._dice, []
        if dice.random() < 0.6:
            at = [dice.randrange(1, self._lengths.get(name, 8) + 2)]
            if dice.random() < 0.3:
                at.append(at[0] + dice.randrange(1, 6))
        task = asyncio.get_running_loop().create_task(self._counted(name, work, at))
        done, _ = await asyncio.wait({task}, timeout=PATIENCE_S)
        if not done:
            raise TimeoutError(f"{name} hangs: {task.get_stack()}")
        if task.cancelled():
            return None, True
        return task.result(), False

    async def _counted(self, name: str, work: Coroutine[Any, Any, Any], at: list[int]) -> Any:
        task, awaits = asyncio.current_task(), 0
        assert task is not None

        def cancel(turns: int) -> None:
            if turns:
                asyncio.get_running_loop().call_soon(cancel, turns - 1)
            elif task.cancel():
                self.fired[name] += 1

        def awaited() -> None:
            nonlocal awaits
            awaits += 1
            if awaits in at:
                self.seconds += awaits != at[0]
                cancel(self._dice.choice((0, 0, 1, 2)))

        try:
            return await _Watched(work, awaited)
        finally:
            self._lengths[name] = (self._lengths.get(name, awaits) + awaits + 1) // 2


class _Watched:
    """A coroutine that says when it awaits something that is not there yet."""

    def __init__(self, work: Coroutine[Any, Any, Any], awaited: Callable[[], None]) -> None:
        self._work = work
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, Any]:
        work, throw = self._work, None
        try:
            while True:
                waits_for = work.send(None) if throw is None else work.throw(throw)
                throw = None
                asyncio.get_running_loop().call_soon(self._awaited)
                try:
                    yield waits_for
                except BaseException as error:
                    throw = error
        except StopIteration as stop:
            return stop.value
