"""The fetches of one partition for a consumer: one answer ahead of the program, and no more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from dledger.client.aio.reading import fetch
from dledger.client.aio.transport import AsyncTransport
from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.consuming.partitions import HeldPartition
from dledger.client.protocol.operations.offsets import topic_offsets
from dledger.client.protocol.operations.read_shape import ReadShape
from dledger.client.protocol.operations.schemas import of_body
from dledger.client.protocol.reading.fetched import FetchedBodies
from dledger.client.protocol.reading.reading import reader
from dledger.errors import DLedgerError, OffsetOutOfRange, TopicNotFound, Unavailable
from dledger.protocol.messages.client import OffsetKind
from dledger.records.columns.types import Columns

logger = logging.getLogger(__name__)

PAUSE_S: Final = 0.5
"""Before a partition that could not be read is tried again."""


class PartitionFetch:
    """Fetches the records of a held partition as long as it is held; `room` says that the program
    has taken what there was.

    Args:
        share: the stored bytes of one fetch, asked for each time.
        reset: the policy for an offset that is not kept any more: earliest, latest or error.
        on_change: called when there are records, or an `error` for the program.
    """

    def __init__(
        self,
        core: ClientState,
        transport: AsyncTransport,
        *,
        held: HeldPartition,
        share: Callable[[], int],
        reset: str,
        on_change: Callable[[], None],
    ) -> None:
        self.held = held
        self.error: Exception | None = None
        self._core = core
        self._transport = transport
        self._share = share
        self._reset = reset
        self._on_change = on_change
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Fetch from the partition's position on."""
        self.stop()
        self.error = None
        self.held.begin_anew()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Fetch no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    @property
    def failed(self) -> Exception | None:
        """Why nothing more comes; for a program that has taken what came before."""
        held = self.held
        return None if held.is_over or held.is_paused else self.error or held.failed

    def room(self) -> None:
        """Nothing waits to be handed out behind the present batch."""
        self._room.set()

    async def _run(self) -> None:
        held = self.held
        position = held.position
        while True:
            try:
                await self._fetch(position)
            except TopicNotFound:  # deleted: the group says so with the next heartbeat
                return None
            except Unavailable as error:
                logger.warning("%s/%d: %s; it is tried again", *held.place, error)
            except OffsetOutOfRange as error:
                if self._reset == "error":
                    return self._failed(error)
                logger.warning("%s/%d: %s; going on at the %s", *held.place, error, self._reset)
                kind = OffsetKind.BEGIN if self._reset == "earliest" else OffsetKind.END
                try:
                    edges = await self._transport.run(
                        topic_offsets(self._core, held.info.name, kind)
                    )
                except DLedgerError as why:
                    logger.warning("%s/%d: %s; it is tried again", *held.place, why)
                else:
                    held.seek(edges.get(held.number, held.position))
            except Exception as error:
                return self._failed(error)
            await asyncio.sleep(PAUSE_S)
            position = held.next_offset

    def _failed(self, error: Exception) -> None:
        self.error = error
        self._on_change()

    async def _fetch(self, position: int) -> None:
        """One fetch after the other, each when there is room."""
        held, info, run = self.held, self.held.info, self._transport.run
        shape = ReadShape(held.number, with_metadata=True, value_format="")
        await run(shape.begin(self._core, info))
        fetcher = reader(self._core, info, held.number, position, None, self._share(), held.damage)
        async for bodies in fetch(self._core, self._transport, fetcher, None, follow=True):
            pieces: list[tuple[FetchedBodies, Columns | None]] = [(bodies, None)]
            if info.typed:
                pieces = [
                    (one, await run(of_body(self._core, info, one.payload)))
                    for one in bodies.singles()
                ]
                held.key_column = next((one.key for _, one in pieces if one is not None), "")
            self._room.clear()
            held.put(_decoded(shape, pieces, position, fetcher.position))
            position = fetcher.position
            self._on_change()
            if held.wants_more:
                self._room.set()
            await self._room.wait()
            fetcher.max_bytes = self._share()


def _decoded(
    shape: ReadShape, pieces: list[tuple[FetchedBodies, Columns | None]], start: int, end: int
) -> Iterator[tuple[pa.RecordBatch | None, int]]:
    """The records of [start, end), without those that are left out."""
    at = start
    for bodies, columns in pieces:
        for batch, behind in shape.rows(bodies, start, None, columns):
            if batch.num_rows:
                yield batch, behind
                at = behind
    if at < end:
        yield None, end
