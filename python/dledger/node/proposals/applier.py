"""Committed entries go into the catalog, in order, on the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from dledger.catalog.results import CommandResult, DataResult
from dledger.catalog.state_machine import Catalog
from dledger.errors import CorruptEntry, ProtocolError
from dledger.node.context import NodeContext, NodePart
from dledger.node.proposals.proposal_queue import ProposalQueue
from dledger.protocol.messages.catalog_commands import (
    AlterQuotas,
    AlterSettings,
    EnforceSecret,
    UpgradeGroup,
)
from dledger.protocol.messages.entry import HEADER_SIZE, MAGIC_NORMAL, Entry
from dledger.protocol.messages.entry_runs import Entries, EntryRun
from dledger.protocol.wire import decode_command
from dledger.records.body.header import (
    BODY_HEADER_SIZE,
    BODY_MAGIC,
    BodyHeader,
    BodyKind,
    decode_header,
    plain_batches_of_run,
)
from dledger.types import Index

logger = logging.getLogger(__name__)

CHUNK_ENTRIES: Final = 512
"""Entries applied before the loop looks at its sockets again."""
READ_BYTES: Final = 4 << 20
"""Bytes read at once from the store for entries that are not cached any more."""

ApplyForeign = Callable[[Catalog, Entry], None]
"""Takes in an entry that has no body of dledger's: a NOOP, or one of another program."""


class Applier(NodePart):
    """Follows the commit index, unless the catalog is lost. Each entry resolves the proposal that
    waits for it; after each chunk the event ``applied`` is told."""

    def __init__(
        self, context: NodeContext, proposals: ProposalQueue, *, apply_foreign: ApplyForeign
    ) -> None:
        super().__init__(context)
        self._proposals = proposals
        self._apply_foreign = apply_foreign
        self._events.committed.subscribe(self.advance)
        self._events.repaired.subscribe(self.resume)
        self._stopped = context.catalog_lost
        self._waits_for_repair = False
        self.applied_pos = 0
        """Log position behind the last applied entry, in bytes."""
        self._committed = Index(-1)
        self._busy = False
        self._meters, self._now_s = context.meters, context.environment.now_s
        self._access = self._catalog.access_version

    def advance(self, committed: Index) -> None:
        """Everything up to ``committed`` may be applied; most of the time it is, before this
        returns."""
        if committed > self._committed:
            self._committed = committed
        if not self._busy and not self._waits_for_repair:
            self._next()

    def resume(self) -> None:
        """An entry was repaired: go on, if this waits for that entry."""
        if self._waits_for_repair:
            self._waits_for_repair = False
            self._next()

    def stop(self) -> None:
        self._stopped = True

    def _next(self) -> None:
        self._busy = False
        begin = Index(self._catalog.applied_index + 1)
        end = Index(min(self._committed + 1, begin + CHUNK_ENTRIES))
        if begin >= end or self._stopped:
            return
        entries = self._raft.log.cached(begin, end)
        if entries is None:
            self._busy = True
            last = self._committed
            future = self._ready_loop.on_reader(
                self._store.read, begin, READ_BYTES, Index(last + 1)
            )
            future.add_done_callback(self._read)
            return
        self._apply(entries)
        if self._committed > self._catalog.applied_index and not self._busy:
            self._busy = True
            self._loop.call_soon(self._next)

    def _read(self, done: asyncio.Future[Sequence[Entry]]) -> None:
        if self._stopped or done.cancelled():
            return
        error = done.exception()
        if isinstance(error, CorruptEntry):
            self._busy, self._waits_for_repair = False, True
            self._events.damage(error)
            return
        if error is not None:
            self._ready_loop.fail(error)
            return
        self._apply(Entries.of(done.result()))
        self._loop.call_soon(self._next)

    def _apply(self, entries: Entries) -> None:
        unanswered, members_index = self._proposals.unanswered, self._catalog.members_index
        held_bytes = unanswered.held_bytes
        began_s = 0.0 if self._meters is None else self._now_s()
        try:
            for run in entries.runs:
                self._apply_run(run)
        except Exception as error:  # an order that cannot be, or the topic index's disk
            self._stopped = True  # an entry that failed is never tried again (D2)
            self._ready_loop.fail(error)
            return
        if self._meters is not None:
            self._meters.apply.observe(self._now_s() - began_s)
        self.applied_pos = entries.runs[-1].end_pos
        if unanswered.held_bytes < held_bytes:
            self._events.relieved()
        if (access := self._catalog.access_version) != self._access:
            self._access = access
            self._events.access_changed()
        self._events.applied()
        if self._catalog.members_index != members_index:
            self._events.members_changed()

    def _apply_run(self, run: EntryRun) -> None:
        at, count = 0, len(run.starts) - 1
        if count == 1 or run.magic != MAGIC_NORMAL:
            for at in range(count):
                self._apply_one(run.entry(at))
            return
        while at < count:
            batches = plain_batches_of_run(run.pieces[0], run.starts, at, HEADER_SIZE)
            taken = self._apply_batches(run.cut(at, at + len(batches)), batches) if batches else 0
            if not taken:
                self._apply_one(run.entry(at))
            at += taken or 1

    def _apply_batches(self, run: EntryRun, batches: list[tuple[int, int]]) -> int:
        """Apply entries whose bodies are ``batches`` together; returns how many these were, 0 where
        each has to be looked at by itself."""
        try:
            header = decode_header(run.body(0))
        except ValueError:
            return 0
        bases = self._catalog.apply_batches(run, header, batches)
        if bases is None:
            return 0
        self._proposals.applied_batches(run, bases)
        return len(bases)

    def _apply_one(self, entry: Entry) -> None:
        catalog = self._catalog
        header: BodyHeader | None = None
        result: DataResult | CommandResult | None = None
        if entry.magic == MAGIC_NORMAL and entry.body[:2] == BODY_MAGIC:
            try:
                header = decode_header(entry.body)
            except ValueError:
                header = None  # another program's, as of DLedger itself: it has a place, no records
        if header is None:
            self._apply_foreign(catalog, entry)
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
                    self._events.secret_enforced()
                elif isinstance(command, AlterQuotas):
                    self._events.quotas_altered()
                elif isinstance(command, UpgradeGroup):
                    self._events.version_raised()
                elif isinstance(command, AlterSettings):
                    self._events.settings_altered()
        self._proposals.applied(entry, result)
