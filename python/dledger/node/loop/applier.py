"""Committed entries go into the catalog, in order, on the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from dledger.catalog.state_machine import Catalog, CommandResult, DataResult
from dledger.errors import CorruptEntry, ProtocolError
from dledger.protocol.messages.catalog_commands import EnforceSecret
from dledger.protocol.messages.entry import HEADER_SIZE, MAGIC_NORMAL, Entry
from dledger.protocol.wire import decode_command
from dledger.raft.raft_node import RaftNode
from dledger.records.body.header import (
    BODY_HEADER_SIZE,
    BODY_MAGIC,
    BodyHeader,
    BodyKind,
    decode_header,
)
from dledger.rocketmq.format.append_hook import read_stored
from dledger.storage.api import LogStore
from dledger.types import Index

logger = logging.getLogger(__name__)

CHUNK_ENTRIES: Final = 512
"""Entries applied before the loop looks at its sockets again."""
READ_BYTES: Final = 4 << 20
"""Bytes read at once from the store for entries that are not cached any more."""

Applied = Callable[[Entry, DataResult | CommandResult | None], None]


class Applier:
    """Follows the commit index. ``on_applied`` is called for every entry, ``on_pass`` after each
    chunk."""

    def __init__(
        self,
        catalog: Catalog,
        raft: RaftNode,
        store: LogStore,
        on_reader: Callable[..., asyncio.Future[list[Entry]]],
        known_header: Callable[[Entry], BodyHeader | None],
        on_applied: Applied,
        on_pass: Callable[[], None],
        on_failure: Callable[[BaseException], None],
        on_damage: Callable[[CorruptEntry], None],
        on_enforced: Callable[[], None],
    ) -> None:
        """``on_damage`` is told of an entry that cannot be read; `resume` goes on with it when it
        is sound again. ``on_enforced``: of each entry by which members have to prove the secret,
        before it is answered."""
        self.catalog = catalog
        self._raft = raft
        self._store = store
        self._on_reader = on_reader
        self._known_header = known_header
        self._on_applied = on_applied
        self._on_pass = on_pass
        self._on_failure = on_failure
        self._on_damage = on_damage
        self._on_enforced = on_enforced
        self._waits_for_repair = False
        self.applied_pos = 0
        """Log position behind the last applied entry, in bytes."""
        self._committed = Index(-1)
        self._busy = False
        self._stopped = False
        self._loop = asyncio.get_running_loop()

    @property
    def applied_index(self) -> Index:
        return self.catalog.applied_index

    def advance(self, committed: Index) -> None:
        """Everything up to ``committed`` may be applied; most of the time it is, before this
        returns."""
        self._committed = max(self._committed, committed)
        if not self._busy and not self._waits_for_repair:
            self._next()

    def resume(self) -> None:
        """An entry was repaired: go on, if that was what this waits for."""
        if self._waits_for_repair:
            self._waits_for_repair = False
            self._next()

    def stop(self) -> None:
        self._stopped = True

    def _next(self) -> None:
        self._busy = False
        begin = Index(self.catalog.applied_index + 1)
        end = Index(min(self._committed + 1, begin + CHUNK_ENTRIES))
        if begin >= end or self._stopped:
            return
        entries = self._raft.cached(begin, end)
        if entries is None:
            self._busy = True
            last = self._committed
            future = self._on_reader(self._store.read, begin, READ_BYTES, Index(last + 1))
            future.add_done_callback(self._read)
            return
        self._apply(entries)
        if self._committed > self.catalog.applied_index and not self._busy:
            self._busy = True
            self._loop.call_soon(self._next)

    def _read(self, done: asyncio.Future[list[Entry]]) -> None:
        if self._stopped or done.cancelled():
            return
        error = done.exception()
        if isinstance(error, CorruptEntry):
            self._busy, self._waits_for_repair = False, True
            self._on_damage(error)
            return
        if error is not None:
            self._on_failure(error)
            return
        self._apply(tuple(done.result()))
        self._loop.call_soon(self._next)

    def _apply(self, entries: tuple[Entry, ...]) -> None:
        try:
            for entry in entries:
                self._apply_one(entry)
        except Exception as error:  # an order that cannot be, or the topic index's disk
            self._stopped = True  # what failed once is never tried again (D2)
            self._on_failure(error)
            return
        self._on_pass()

    def _apply_one(self, entry: Entry) -> None:
        catalog = self.catalog
        header: BodyHeader | None = None
        result: DataResult | CommandResult | None = None
        if entry.magic == MAGIC_NORMAL:
            header = self._known_header(entry)
        if header is None and entry.magic == MAGIC_NORMAL and entry.body[:2] == BODY_MAGIC:
            # else it is somebody's, e.g. of DLedger itself: it has a place, no records
            with suppress(ValueError):
                header = decode_header(entry.body)
        if header is None:
            self._apply_other(entry)
        elif header.kind is BodyKind.DATA:
            result = catalog.apply_data(
                entry.index, entry.pos, len(entry.body), header, entry.body_crc
            )
        else:
            try:
                command = decode_command(entry.body[BODY_HEADER_SIZE:])
            except ProtocolError as error:
                # Every node sees the same bytes, so every node skips them.
                logger.error(
                    "entry %d is not a command that this version knows: %s", entry.index, error
                )
                catalog.apply_other(entry.index)
            else:
                result = catalog.apply_command(entry.index, command)
                if isinstance(command, EnforceSecret):
                    self._on_enforced()
        self.applied_pos = entry.end_pos
        self._on_applied(entry, result)

    def _apply_other(self, entry: Entry) -> None:
        """A leader's NOOP, another program's entry, or a message of a RocketMQ commit log, in
        whatever group it is."""
        stored = (
            read_stored(entry.body, entry.pos + HEADER_SIZE)
            if entry.magic == MAGIC_NORMAL
            else None
        )
        if stored is None:
            self.catalog.apply_other(entry.index)
        else:
            self.catalog.apply_message(
                entry.index,
                stored.topic,
                stored.queue_id,
                stored.queue_offset,
                stored.store_timestamp,
            )
