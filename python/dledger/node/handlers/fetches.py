"""Fetches: stored bodies, byte for byte, of committed and applied entries, and of no others
(D8)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from dledger.catalog.results import BatchRef
from dledger.errors import CorruptEntry, OffsetOutOfRange, StorageError, TopicNotFound
from dledger.net import Connection
from dledger.node.access.client_quotas import Budget
from dledger.node.context import NodeContext, NodePart
from dledger.node.handlers.parked_requests import LongPoll, LongPolls
from dledger.protocol.messages.client import FetchRequest, SplitResponse
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.protocol.messages.fetched import FETCHED_ROW, FetchedBatches, FetchedRun, FetchResponse
from dledger.protocol.messages.splits import Pieces, SplitRequest, pack_cuts
from dledger.types import NO_INDEX, Buffer, Index

logger = logging.getLogger(__name__)

BEHIND_WAIT_MS: Final = 500
"""How long a replica waits for an offset it has not applied before it says BEHIND."""
MAX_FETCH_BYTES: Final = 32 << 20
"""Most bytes of one answer, unless a single body has more."""
MAX_CUTS: Final = 20_000
"""Most pieces of one answer to a split, over all its spans, but at least one of each: it is made on
the loop."""
MAX_BUFFERS: Final = 256
"""More bodies than so many are put into one buffer: to hand a small one to the kernel costs more
than to copy it."""
INLINE_BYTES: Final = 32 << 10
"""Reads up to this size are done on the loop; larger ones on a thread."""


@dataclass(frozen=True, slots=True)
class AskedFetch:
    """A fetch that has no answer yet."""

    connection: Connection
    request_id: int
    request: FetchRequest

    @property
    def budget(self) -> Budget | None:
        """The rates of the client's principal; None: it has none."""
        budget: Budget | None = self.connection.context.budget
        return budget

    def charge(self, size: int) -> None:
        """So many bytes are going to be the answer."""
        if (budget := self.budget) is not None:
            budget.charge(bytes_out=size)

    def answer(self, code: Code, text: str = "", *, begin: int = 0, end: int = 0) -> None:
        """Answer without records."""
        answer = FetchResponse(code=code, message=text, begin_offset=begin, end_offset=end)
        self.connection.send(answer, self.request_id)


class Reads(NodePart):
    """Answers fetch and split requests of any replica from its applied state."""

    def __init__(self, context: NodeContext, polls: LongPolls) -> None:
        super().__init__(context)
        applied = context.catalog.applied_index
        self._needs = applied if applied > context.raft.committed_index else NO_INDEX
        """The catalog is that of another node, and of entries up to this one that are still on
        their way here."""
        self.polls = polls
        self._served = None if context.meters is None else context.meters.served
        self._stops = False

    def fetch(self, connection: Connection, request_id: int, request: FetchRequest) -> None:
        """Answer now, or when a record is there or the wait is over."""
        asked = AskedFetch(connection, request_id, request)
        if request.partition < 0 or request.start_offset < 0 or request.max_bytes <= 0:
            text = (
                f"fetch: partition {request.partition}, offset {request.start_offset}, bytes "
                f"{request.max_bytes}"
            )
            asked.answer(Code.MALFORMED, text)
            return
        if self._needs > min(self._raft.committed_index, self._raft.durable_index):
            self._hold(asked, BEHIND_WAIT_MS, behind=True, wants=())
            return
        begin, end = self._range(request.topic_id, request.partition)
        if begin < 0:
            # Ids are never given twice: one that is not given yet, as far as this replica knows,
            # may be soon.
            if request.topic_id < self._catalog.topics_state.next_id:
                text = self._catalog.no_partition(request.topic_id, request.partition)
                asked.answer(Code.UNKNOWN_TOPIC, text)
            else:
                self._hold_behind(asked)
            return
        if request.start_offset < begin:
            text = f"offset {request.start_offset} is not kept any more; there is [{begin}, {end})"
            asked.answer(Code.OFFSET_OUT_OF_RANGE, text, begin=begin, end=end)
        elif request.start_offset < end and (
            request.end_offset < 0 or request.start_offset < request.end_offset
        ):
            self._serve(asked)
        elif request.start_offset > end:
            self._hold_behind(asked)
        elif request.wait_ms > 0 and (request.end_offset < 0 or end < request.end_offset):
            self._hold(asked, request.wait_ms, behind=False)
        elif end < request.end_offset:
            # The asker knows from the leader that there is more.
            self._hold(asked, BEHIND_WAIT_MS, behind=True)
        else:
            asked.answer(Code.SUCCESS, begin=begin, end=end)

    def _range(self, topic_id: int, partition: int) -> tuple[int, int]:
        """Begin and end offset; (-1, -1) when there is no such partition."""
        catalog = self._catalog
        try:
            return catalog.begin_offset(topic_id, partition), catalog.end_offset(
                topic_id, partition
            )
        except TopicNotFound:
            return -1, -1

    # --- long polls -------------------------------------------------------------------------------

    def _hold_behind(self, asked: AskedFetch) -> None:
        """Until the record is here; the wait of a long poll holds here too."""
        self._hold(asked, max(BEHIND_WAIT_MS, asked.request.wait_ms), behind=True)

    def _hold(
        self,
        asked: AskedFetch,
        wait_ms: int,
        *,
        behind: bool,
        wants: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """With ``behind`` the offset is not here yet, so no record at the end of the wait is
        BEHIND, and not an empty answer. ``wants``: the records it waits for, if not the one at its
        offset."""
        request = asked.request

        def give_up() -> None:
            begin, end = (
                max(0, offset) for offset in self._range(request.topic_id, request.partition)
            )
            code, text = Code.SUCCESS, ""
            if behind or self._stops:
                code = Code.BEHIND
                text = f"offset {request.start_offset} is not here yet; this replica ends at {end}"
            asked.answer(code, text, begin=begin, end=end)

        if wants is None:
            wants = ((request.topic_id << 32 | request.partition, request.start_offset),)
        serve = partial(self.fetch, asked.connection, asked.request_id, request)
        self.polls.hold(LongPoll(asked.connection, wants, serve, give_up), wait_ms)

    def stop(self) -> None:
        """Waiting fetches are sent to another node; no more records will come."""
        self._stops = True

    # --- bodies -----------------------------------------------------------------------------------

    def _serve(self, asked: AskedFetch) -> None:
        """Now, or in its turn; a small answer need not wait where others do."""
        budget = asked.budget
        if budget is not None and budget.holds(asked.connection, partial(self._serve, asked)):
            return
        if asked.connection.outflow.is_full and not asked.connection.unsent_bytes:
            self._find(asked, INLINE_BYTES, only_small=True)
        else:
            self._serve_in_turn(asked)

    def _serve_in_turn(self, asked: AskedFetch) -> None:
        outflow = asked.connection.outflow
        outflow.ask(asked.connection, lambda: self._find(asked, outflow.room))

    def _find(self, asked: AskedFetch, room: int, *, only_small: bool = False) -> None:
        """The bodies that answer it: as many as there is room for, so that a client may have to ask
        again for more."""
        if self._ready_loop.failed:
            return
        request, connection = asked.request, asked.connection
        _, end = self._range(request.topic_id, request.partition)
        stop = end if request.end_offset < 0 else min(end, request.end_offset)
        limit = min(request.max_bytes, MAX_FETCH_BYTES, room)
        try:
            if request.takes_run and not only_small and self._serve_run(asked, stop, limit):
                return
            refs = self._catalog.find(
                request.topic_id, request.partition, request.start_offset, stop, limit
            )
        except (TopicNotFound, OffsetOutOfRange):  # deleted while this waited for its turn
            self.fetch(connection, asked.request_id, request)
            return
        except StorageError as error:
            self._failed(asked, error)
            return
        # The newest ones may be nowhere else yet: a follower applies what the others have made
        # durable, be its own disk ever so slow.
        bodies = self._raft.log.cached_bodies([ref.index for ref in refs])
        on_disk = [ref for ref, body in zip(refs, bodies, strict=True) if body is None]
        wanted = [(ref.index, ref.pos, ref.size + HEADER_SIZE) for ref in on_disk]
        size = sum(ref.size for ref in refs)
        if only_small and size > INLINE_BYTES:  # a single body
            self._serve_in_turn(asked)
            return
        asked.charge(size)
        connection.outflow.begin(size)

        def serve(read: Sequence[Buffer]) -> None:
            rest = iter(read)
            self._send(asked, refs, [next(rest) if body is None else body for body in bodies])

        def on_read(done: asyncio.Future[list[Buffer]]) -> None:
            connection.outflow.end(connection, size)
            error = done.exception()
            if error is None:
                serve(done.result())
            else:
                self._failed(asked, error)

        if sum(ref.size for ref in on_disk) <= INLINE_BYTES:
            connection.outflow.end(connection, size)
            try:
                read = self._store.read_bodies(wanted)
            except Exception as error:
                self._failed(asked, error)
            else:
                serve(read)
        else:
            self._ready_loop.on_reader(self._store.read_bodies, wanted).add_done_callback(on_read)

    def _serve_run(self, asked: AskedFetch, stop: int, limit: int) -> bool:
        """Answer with entries as they are in the file; False where there is no run of them."""
        request = asked.request
        run = self._catalog.find_run(
            request.topic_id, request.partition, request.start_offset, stop, limit
        )
        if run is None or run.last > self._raft.durable_index:
            return False
        # of all: a term begins with the no-op of its leader, which is no neighbour of theirs
        term = self._raft.term_at(Index(run.first))
        outflow = asked.connection.outflow
        asked.charge(run.size)
        outflow.begin(run.size)

        def on_read(done: asyncio.Future[Buffer]) -> None:
            outflow.end(asked.connection, run.size)
            entries = b"" if done.exception() else done.result()
            if len(entries) < run.size:  # each entry is looked at, and what is wrong is named
                again = replace(asked.request, takes_run=False)
                self._serve_in_turn(replace(asked, request=again))
            elif not self._ready_loop.failed:
                begin, end = self._range(request.topic_id, request.partition)
                self._count(request, run.end_offset - request.start_offset, run.size)
                answer = FetchResponse(
                    code=Code.SUCCESS,
                    begin_offset=max(0, begin),
                    end_offset=max(0, end),
                    run=FetchedRun(run.rows, run.end_offset, -1 if term is None else term),
                )
                asked.connection.send(answer, asked.request_id, [entries])

        reading = self._ready_loop.on_reader(
            self._store.read_run, Index(run.first), run.pos, run.size
        )
        reading.add_done_callback(on_read)
        return True

    def _send(self, asked: AskedFetch, refs: list[BatchRef], bodies: list[Buffer]) -> None:
        if self._ready_loop.failed:
            return
        request, pack = asked.request, FETCHED_ROW.pack
        begin, end = (max(0, offset) for offset in self._range(request.topic_id, request.partition))
        packed = [
            pack(base, count, len(body), crc, index, term)
            for (base, count, index, _, _, crc), body, term in zip(
                refs, bodies, self._terms(refs), strict=True
            )
        ]
        if self._served is not None:
            self._count(request, sum(ref.count for ref in refs), sum(map(len, bodies)))
        answer = FetchResponse(
            code=Code.SUCCESS,
            begin_offset=begin,
            end_offset=end,
            batches=FetchedBatches(b"".join(packed)),
        )
        if len(bodies) > MAX_BUFFERS:
            bodies = [b"".join(bodies)]
        asked.connection.send(answer, asked.request_id, bodies)

    def _count(self, request: FetchRequest, records: int, size: int) -> None:
        """For the metrics: records of this topic are sent."""
        if self._served is not None:
            served = self._served[request.topic_id]
            served.records += records
            served.bytes += size

    def _terms(self, refs: list[BatchRef]) -> list[int]:
        """The term of each batch's entry, -1 where it is not known."""
        term_at = self._raft.term_at
        indexes = [Index(ref.index) for ref in refs]
        first, last = (term_at(edge(indexes, default=NO_INDEX)) for edge in (min, max))
        if first is not None and first == last:  # terms never fall
            return [first] * len(refs)
        return [-1 if (term := term_at(index)) is None else term for index in indexes]

    def _failed(self, asked: AskedFetch, error: BaseException) -> None:
        if isinstance(error, CorruptEntry):
            logger.error("not served: %s", error)
            asked.answer(Code.CORRUPT_ENTRY, f"{error}; read it from another replica")
            self._events.damage(error)
        elif isinstance(error, OffsetOutOfRange):
            self._gone(asked, str(error))
        else:
            asked.answer(Code.DISK_ERROR, f"the stored bytes cannot be read: {error}")
            self._ready_loop.fail(error)

    def _gone(self, asked: AskedFetch, text: str) -> None:
        """Retention was faster than this read, and may not have moved this begin yet."""
        request = asked.request
        try:
            key = request.topic_id << 32 | request.partition
            self._catalog.drop_before(self._store.begin_index, [key])
        except StorageError as error:
            self._ready_loop.fail(error)
            return
        begin, end = (max(0, offset) for offset in self._range(request.topic_id, request.partition))
        asked.answer(Code.OFFSET_OUT_OF_RANGE, text, begin=begin, end=end)

    def split(self, connection: Connection, request_id: int, request: SplitRequest) -> None:
        """Cut ranges of offsets into pieces of about equal bytes; all of them, or none when one
        cannot be."""
        cuts: list[Pieces] = []
        left, partition_at = MAX_CUTS, self._catalog.partition_at
        for topic_id, number, start, end, target, most in request.rows():
            try:
                partition = partition_at(topic_id, number)
            except TopicNotFound as error:
                refused = SplitResponse(code=Code.UNKNOWN_TOPIC, message=str(error))
                connection.send(refused, request_id)
                return
            begin, stop = partition.begin_offset, partition.next_offset
            if not begin <= start <= end <= stop:
                code = Code.BEHIND if end > stop else Code.OFFSET_OUT_OF_RANGE
                text = f"[{start}, {end}) is not within [{begin}, {stop})"
                connection.send(SplitResponse(code=code, message=text), request_id)
                return
            found = partition.split(start, end, max(1, target), max(1, min(most, left)))
            left -= len(found)
            cuts.append(found)
        counts, pieces = pack_cuts(cuts)
        answer = SplitResponse(code=Code.SUCCESS, counts=counts, pieces=pieces)
        connection.send(answer, request_id)
