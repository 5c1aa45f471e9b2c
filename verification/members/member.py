"""A member of the group: ``python -m verification.members.member SERVERS FILE PLACE``.

Each step is a line of JSON in FILE, written in one piece before the step can have an effect
elsewhere: what was handed out, asked to be committed, and acknowledged, with the time of the
machine's monotonic clock.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from typing import Any, Final

from dledger.client import AsyncConsumer
from dledger.client.aio.client import AsyncClient
from dledger.client.aio.consuming.engine import ConsumerEngine
from dledger.client.protocol.consuming.callbacks import Callbacks
from dledger.client.protocol.consuming.settings import ConsumerSettings
from dledger.client.protocol.consuming.state import ConsumerState
from dledger.errors import DLedgerError
from dledger.net.loop import run
from dledger.protocol.messages.catalog_commands import CommitConsumed

GROUP: Final = "members"
TOPIC: Final = "t"
SESSION_MS: Final = 2000


class Book:
    """The lines of one member."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, what: str, *more: Any) -> None:
        """One step."""
        line = json.dumps([time.monotonic_ns(), what, *more]) + "\n"
        os.write(self._file, line.encode())


class BookedState(ConsumerState):
    """The state of a consumer, whose commits are in a book."""

    def __init__(self, group: str, book: Book) -> None:
        super().__init__(group)
        self._book = book

    def commit(self, positions: dict[int, int]) -> CommitConsumed:
        command = super().commit(positions)
        self._book.write("asked", command.member_id, positions)
        return command

    def committed(self, positions: dict[int, int]) -> None:
        super().committed(positions)
        self._book.write("acked", positions)


async def main(servers: str, path: str, place: int) -> None:
    """Consume until the process is killed."""
    dice, book = random.Random(path), Book(path)
    async with AsyncClient(servers) as client:
        while True:
            state = BookedState(GROUP, book)
            settings = ConsumerSettings(
                group=GROUP,
                topics=(TOPIC,),
                session_timeout_ms=SESSION_MS,
                instance_id=f"static-{place}" if place % 3 == 0 else "",
                commit_s=0.2 if place % 2 else None,
            )
            engine = ConsumerEngine(client.core, client._transport, settings=settings, state=state)
            consumer = AsyncConsumer(
                client.core, client._transport, engine=engine, callbacks=Callbacks()
            )
            try:
                await engine.open()
                while True:
                    await _step(consumer, state, book, dice)
            except DLedgerError as error:
                book.write("error", f"{type(error).__name__}: {error}")
                await consumer._close(commit=False)


async def _step(
    consumer: AsyncConsumer, state: BookedState, book: Book, dice: random.Random
) -> None:
    records = await consumer.poll(0.2, max_records=dice.randint(1, 200))
    if records:
        held = state.find(records[0].topic, records[0].partition)
        owner = state.membership().member_id, held.since
        book.write("handed", held.key, *owner, records[0].offset, len(records))
    if dice.random() < 0.3:
        await consumer.commit()


if __name__ == "__main__":
    run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
