"""The two clients, and how a round calls each: the calls of the blocking one return, those of the
asyncio one are awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import Any, ClassVar, Final

from dledger.client import AsyncClient, Client
from dledger.net.loop import loop_factory
from verification.interrupts.cancelling import PATIENCE_S, Canceller
from verification.interrupts.inject import Injector

Work = Callable[[], Any]
"""A call of a client; of the asyncio one it gives a coroutine."""


class ClientKind:
    """A client, and a way to end its calls half way: the blocking client, which signal handlers
    interrupt.

    Attributes:
        prefix: of the names of its calls in a result.
        client: its class.
        settings: so little that appends wait for room all the time.
        alone: one call is made at a time.
        ender: ends calls, and counts them.
    """

    prefix = ""
    client: Callable[..., Any] = Client
    settings: ClassVar = {"max_in_flight": 8, "max_in_flight_bytes": 4096, "batch_bytes": 512}
    alone = True

    def __init__(self, dice: Random) -> None:
        self.ender: Any = Injector(dice)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a round to its end."""
        with self.ender:
            try:
                work.send(None)
            except StopIteration:
                return
            raise AssertionError("a round of the blocking client waits for a loop")

    async def call(self, name: str, work: Work) -> tuple[Any, bool]:
        """The result of a call, and whether it was ended half way."""
        result, interrupt = self.ender.call(name, work)
        return result, interrupt is not None

    async def whole(self, work: Work) -> Any:
        """The result of a call that is not ended half way."""
        return work()

    async def together(self, actions: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Do these actions, at the same time where the client can."""
        for action in actions:
            await action

    def next_of(self, reader: Any) -> Any:
        """The call for the next item of a reader, or None at its end."""
        return next(reader, None)

    def all_of(self, reader: Any) -> Any:
        """The call for all items of a reader."""
        return list(reader)

    def answer_of(self, future: Any) -> Any:
        """The call for the result of a future."""
        return future.result()


class Asyncio(ClientKind):
    """The asyncio client, many calls at a time. Its tasks are cancelled."""

    prefix = "asyncio "
    client: Callable[..., Any] = AsyncClient
    # appends on a loop end before an answer comes: only so little makes them wait for room
    settings: ClassVar = {"max_in_flight": 2, "max_in_flight_bytes": 2048, "batch_bytes": 128}
    alone = False

    def __init__(self, dice: Random) -> None:
        self.ender: Any = Canceller(dice)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(work)

    async def call(self, name: str, work: Work) -> tuple[Any, bool]:
        made = work()
        return await self.ender.call(name, made) if asyncio.iscoroutine(made) else (made, False)

    async def whole(self, work: Work) -> Any:
        return await asyncio.wait_for(work(), PATIENCE_S)

    async def together(self, actions: Iterable[Coroutine[Any, Any, None]]) -> None:
        await asyncio.gather(*actions)

    async def next_of(self, reader: Any) -> Any:
        return await anext(reader, None)

    async def all_of(self, reader: Any) -> Any:
        return [item async for item in reader]

    async def answer_of(self, future: Any) -> Any:
        return await asyncio.shield(future)


KINDS: Final = (Asyncio, ClientKind)
