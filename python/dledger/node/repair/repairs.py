"""Damaged entries of this node: noted by any part that finds them, fetched from the other members,
written back.

No leader is needed: the store takes only entries for which both neighbours vouch, from any member.
A damaged entry behind which the log is to be cut is fetched first, because it may have been
acknowledged. Its index and term, on which leader and follower agree, name one entry, so the entries
behind it, which go, need not vouch. Until all is sound again this node does not lead
(`RaftNode.set_faulty`) and its catalog waits before the first damaged entry. An entry that no
member has is reported, tried again now and then, and never guessed.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any, Final

from dledger.errors import CorruptEntry, DiskFull, OffsetOutOfRange, StorageError
from dledger.node.context import NodeContext, NodePart
from dledger.node.repair.repair_run import AGAIN_MS, Repair, is_readable
from dledger.node.repair.repair_server import RepairServer
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.repair import RepairMessage, RepairRequest, RepairResponse
from dledger.storage.api import Fault
from dledger.types import Index, NodeId

logger = logging.getLogger(__name__)

ASK_MS: Final = 2_000
"""How long a member has to answer before the next one is asked."""
AGAIN_MOST_MS: Final = 30_000
TICK_S: Final = 0.2


class Repairs(NodePart):
    """All damaged entries that one node knows of. Runs on the node's loop; disk work goes to a
    reader's thread."""

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._send = context.peers.send
        self._server = RepairServer(context)
        events = context.events
        events.damage.subscribe(self.met)
        events.cut_waits.subscribe(self.cut_waits)
        events.cut.subscribe(self.cut)
        context.status.add(lambda: {"repair": self.status()})
        self._open: dict[Index, Repair] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._turn = 0
        self._stopped = False
        self._cut_at: Index | None = None
        """The store waits to be cut behind this entry."""
        self.repaired = 0
        """Entries made sound since this node started."""

    @property
    def _others(self) -> list[NodeId]:
        return [member for member in self._members.ids if member != self._node_id]

    @property
    def runs(self) -> tuple[tuple[Index, Index], ...]:
        """First and last entry of each run of damage, in order."""
        return tuple((first, repair.fault.last) for first, repair in sorted(self._open.items()))

    def stop(self) -> None:
        self._stopped = True
        self._server.stop()
        if self._timer is not None:
            self._timer.cancel()

    # --- finding ----------------------------------------------------------------------------------

    def found(self, faults: tuple[Fault, ...]) -> None:
        """Note damage, however it was found. Known damage is not noted again."""
        news = False
        for fault in [part for whole in faults for part in self._parts(whole)]:
            inside = [
                r
                for first, r in self._open.items()
                if first <= fault.first and fault.last <= r.fault.last
            ]
            if inside or self._stopped:
                continue
            fault = self._joined(fault)
            self._open[fault.first] = Repair(fault)
            news = True
            logger.error(
                "entries %d to %d are damaged, at %d in %s (%s); %s: %s",
                fault.first,
                fault.last,
                fault.pos,
                fault.file,
                fault.reason,
                ", ".join(self.records(fault)) or "no records known in them",
                "the other members are asked"
                if self._others
                else "no other member has a copy; restore a backup",
            )
            self._audit("damage found", fault, reason=fault.reason)
        if news:
            self._tell_core()
            self._tick()

    def _joined(self, fault: Fault) -> Fault:
        """Runs that touch are one: neither can vouch for the other. A run that is to be cut stays
        apart."""
        for repair in [r for r in self._open.values() if not r.writing]:
            known = repair.fault
            touches = known.first <= fault.last + 1 and fault.first <= known.last + 1
            if touches and self._goes(known) is self._goes(fault):
                del self._open[known.first]
                front = fault if fault.first <= known.first else known
                fault = replace(front, last=max(fault.last, known.last))
        return fault

    def _goes(self, fault: Fault) -> bool:
        return self._cut_at is not None and fault.first > self._cut_at

    def _parts(self, fault: Fault) -> tuple[Fault, ...]:
        """The part of a run that stays, and the part that goes."""
        cut = self._cut_at
        if cut is None or not fault.first <= cut < fault.last:
            return (fault,)
        return replace(fault, last=cut), replace(fault, first=Index(cut + 1))

    def cut_waits(self, error: CorruptEntry) -> None:
        """The log is to be cut behind a damaged entry: the entries behind it need no repair, and
        vouch for nothing."""
        self._cut_at = Index(error.index)
        self.met(error)
        self._tick()

    def _forget_expired(self) -> None:
        """Entries that retention has taken need no repair, and no member has a copy."""
        begin, before = self._store.begin_index, self.runs
        for first, repair in list(self._open.items()):
            if first < begin and not repair.writing:
                del self._open[first]
                if repair.fault.last >= begin:
                    self._open[begin] = Repair(replace(repair.fault, first=begin))
        if self.runs != before:
            self._tell_core()

    def _split(self) -> None:
        for first, repair in list(self._open.items()):
            parts = self._parts(repair.fault)
            if len(parts) > 1 and not repair.writing:
                del self._open[first]
                self._open |= {part.first: Repair(part) for part in parts}

    def cut(self, end: Index) -> None:
        """The log was cut behind ``end``: damage behind it is gone."""
        self._cut_at = None
        gone = [first for first in self._open if first > end]
        for first in gone:
            del self._open[first]
        if gone:
            self._tell_core()

    def met(self, error: CorruptEntry) -> None:
        """A read failed on a damaged entry."""
        index = Index(error.index)
        if index >= self._store.begin_index and not any(
            first <= index <= last for first, last in self.runs
        ):
            self.found((Fault(index, index, -1, str(self._store.identity.node_id), str(error)),))

    def records(self, fault: Fault) -> list[str]:
        """The applied records in damaged entries, as ``topic/partition offsets a to b``."""
        try:
            places = self._catalog.records_of(fault.first, fault.last)
        except StorageError as error:
            self._ready_loop.fail(error)
            return []
        return [
            f"{topic}/{partition} offsets {base} to {base + count - 1}"
            for topic, partition, base, count in places
        ]

    def _audit(self, event: str, fault: Fault, **details: str) -> None:
        self._context.audit.record_own(
            event, first=fault.first, last=fault.last, file=fault.file, **details
        )

    def _tell_core(self) -> None:
        self._ready_loop.feed(self._raft.set_faulty, self.runs, self._now_ms())

    # --- fetching ---------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stopped or self._ready_loop.failed or not self._open:
            return
        self._timer = self._loop.call_later(TICK_S, self._tick)
        now = self._now_ms()
        self._forget_expired()
        self._split()
        for repair in self._open.values():
            if not repair.writing and now >= repair.deadline_ms:
                if repair.asked is not None:
                    repair.refused[repair.asked] = "no answer"
                else:
                    repair.refused.clear()  # no member could help the last time
                    repair.examined = False
                self._ask_next(repair, now)

    def _ask_next(self, repair: Repair, now: int) -> None:
        left = [peer for peer in self._others if peer not in repair.refused]
        repair.asked, repair.fetched = None, []
        if left:
            self._turn += 1
            repair.asked = left[self._turn % len(left)]
            self._ask(repair, now)
            return
        fault = repair.fault
        again = self._ready_loop.on_reader(
            is_readable, self._store, fault, self._group.push_batch_bytes
        )
        again.add_done_callback(lambda done: self._read_again(repair, done))
        if repair.pause_ms == AGAIN_MS and self._others:
            logger.error(
                "no copy of entries %d to %d (%s): %s; they are not served, and asked for again "
                "later",
                fault.first,
                fault.last,
                ", ".join(self.records(fault)) or "no records known in them",
                repair.state,
            )
        repair.deadline_ms = now + repair.pause_ms
        repair.pause_ms = min(2 * repair.pause_ms, AGAIN_MOST_MS)
        self._events.no_copy(repair.refused)

    def _read_again(self, repair: Repair, done: asyncio.Future[bool]) -> None:
        """A read that failed once need not fail again, and of an uncommitted entry no other member
        may have a copy."""
        if done.cancelled() or self._stopped:
            return
        error = done.exception()
        if error is not None:
            self._ready_loop.fail(error)
        elif done.result() and self._open.get(repair.fault.first) is repair and not repair.writing:
            del self._open[repair.fault.first]
            logger.warning(
                "entries %d to %d can be read after all", repair.fault.first, repair.fault.last
            )
            self._audit("damage repaired", repair.fault, source="read again")
            self._tell_core()
            self._events.repaired()

    def _ask(self, repair: Repair, now: int) -> None:
        assert repair.asked is not None
        repair.deadline_ms = now + ASK_MS
        first = Index(repair.fault.first + len(repair.fetched))
        self._send(
            RepairRequest(
                group=self._raft.tag,
                local_id=self._node_id,
                remote_id=repair.asked,
                first=first,
                last=repair.fault.last,
                max_bytes=self._group.push_batch_bytes,
            )
        )

    def on_message(self, message: RepairMessage) -> None:
        """Take a peer's question or answer."""
        if message.group != self._raft.tag or message.remote_id != self._node_id or self._stopped:
            return
        if message.local_id not in self._others:
            return
        if isinstance(message, RepairRequest):
            self._server.serve(message)
        else:
            self._answered(message)

    def _answered(self, answer: RepairResponse) -> None:
        repair = next(
            (
                r
                for r in self._open.values()
                if r.asked == answer.local_id
                and not r.writing
                and answer.first == r.fault.first + len(r.fetched)
            ),
            None,
        )
        if repair is None:
            return
        wanted = range(answer.first, answer.first + len(answer.entries))
        if (
            answer.code is not Code.SUCCESS
            or not answer.entries
            or [e.index for e in answer.entries] != list(wanted)
        ):
            self._refused(repair, answer.local_id, answer.code.name)
            return
        if max(entry.term for entry in answer.entries) > self._raft.term:
            self._refused(repair, answer.local_id, "an entry of a term that has not begun")
            return
        repair.fetched += answer.entries[: repair.fault.last + 1 - answer.first]
        if repair.fetched[-1].index < repair.fault.last:
            self._ask(repair, self._now_ms())
            return
        last = repair.fetched[-1]
        last_stays = last.index == self._cut_at and self._raft.term_at(last.index) == last.term
        repair.writing = True
        future = self._ready_loop.on_reader(
            self._store.repair, *repair.fetched, last_stays=last_stays
        )
        future.add_done_callback(lambda done: self._written(repair, done))

    def _refused(self, repair: Repair, peer: NodeId, why: str) -> None:
        repair.refused[peer] = why
        self._ask_next(repair, self._now_ms())

    # --- writing ----------------------------------------------------------------------------------

    def _written(self, repair: Repair, done: asyncio.Future[None]) -> None:
        if done.cancelled() or self._stopped:
            return
        repair.writing, error, fault = False, done.exception(), repair.fault
        if error is None:
            self._sound(repair)
        elif isinstance(error, OffsetOutOfRange):  # retention was faster
            self._open.pop(fault.first, None)
            self._tell_core()
        elif isinstance(error, CorruptEntry | DiskFull):
            if self._open.get(fault.first) is not repair:
                return  # cut meanwhile
            logger.warning(
                "entries %d to %d, as %s has them, were not written: %s",
                fault.first,
                fault.last,
                repair.asked,
                error,
            )
            assert repair.asked is not None
            self._refused(repair, repair.asked, str(error))
            if isinstance(error, CorruptEntry) and not repair.examined:
                repair.examined = True
                self._examine(fault)
        else:
            self._ready_loop.fail(error)

    def _sound(self, repair: Repair) -> None:
        fault = repair.fault
        self._open.pop(fault.first, None)
        self.repaired += len(repair.fetched)
        logger.warning(
            "entries %d to %d are repaired with the copy of %s",
            fault.first,
            fault.last,
            repair.asked,
        )
        self._audit("damage repaired", fault, source=str(repair.asked))
        self._raft.repaired(repair.fetched)
        self._tell_core()
        self._events.repaired()

    def _examine(self, fault: Fault) -> None:
        """The damage may be wider than it is known: examine its surroundings."""
        future = self._ready_loop.on_reader(self._store.examine, fault.first, fault.last)
        future.add_done_callback(self._examined)

    def _examined(self, done: asyncio.Future[tuple[Fault, ...]]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self.found(done.result())
        elif not isinstance(error, CorruptEntry | OffsetOutOfRange):
            self._ready_loop.fail(error)

    def status(self) -> dict[str, Any]:
        """For the node's status; see docs/operations.md."""
        return {
            "repaired": self.repaired,
            "faulty": [
                {
                    "first": repair.fault.first,
                    "last": repair.fault.last,
                    "file": repair.fault.file,
                    "pos": repair.fault.pos,
                    "reason": repair.fault.reason,
                    "records": self.records(repair.fault),
                    "state": repair.state,
                }
                for _, repair in sorted(self._open.items())
            ],
        }
