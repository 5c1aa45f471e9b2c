"""A consumer of a client process: it joins a group that it shares with others, works, commits,
stalls, leaves, and comes again.

It is the product's own `AsyncConsumer`; what it is handed and told is compared with what all others
were (`verification.invariants.consumed`).
"""

from __future__ import annotations

import asyncio
from typing import Final

from dledger.client.aio.consumer import AsyncConsumer
from dledger.client.aio.consuming.engine import ConsumerEngine
from dledger.client.protocol.consuming.callbacks import Callbacks
from dledger.client.protocol.consuming.records import ConsumerRecord
from dledger.client.protocol.consuming.settings import ConsumerSettings, TopicPartition
from dledger.client.protocol.consuming.state import LEASE, ConsumerState
from dledger.client.protocol.operations.group_membership import commit_consumed
from dledger.errors import ConsumerFenced, DLedgerError
from dledger.protocol.messages.catalog_commands import CommitConsumed
from dledger.protocol.messages.group_heartbeat import GroupHeartbeatResponse
from dledger.testing.checkers.history import OperationKind
from verification.invariants.consumed import Consumed
from verification.sim.loop import SimLoop
from verification.sim.scheduler import MS
from verification.sim.session import ClientSession

GROUPS: Final = ("shared-0", "shared-1")
SESSIONS_MS: Final = (1000, 2000, 4000)
STALL_S: Final = 6
"""Longest time for which a program does nothing, now and then."""


class WatchedState(ConsumerState):
    """The state of a consumer, each step of which is told."""

    def __init__(self, group: str, session_ms: int, *, life: ClientSession, loop: SimLoop) -> None:
        super().__init__(group)
        self._session_ms = session_ms
        self._loop = loop
        watch = life.workload.world.watch
        self._judge = Consumed() if watch is None else watch.consumed
        self._check = (lambda told, *what: told(*what)) if watch is None else watch.check

    def heard(self, answer: GroupHeartbeatResponse, lease_ms: float) -> None:
        if self.member is not None:
            sent_ms = int(lease_ms - LEASE * self._session_ms)
            sent_ns = self._loop.clock.global_ns(sent_ms * MS)
            self._judge.heard(self.member.member_id, sent_ns // MS, self._session_ms)
        super().heard(answer, lease_ms)

    def ended(self) -> None:
        if self.member is not None:
            self._judge.left(self.member.member_id)
        super().ended()

    def commit(self, positions: dict[int, int]) -> CommitConsumed:
        command = super().commit(positions)
        self._check(self._judge.asked, self.group, command.member_id, positions)
        return command

    def committed(self, positions: dict[int, int]) -> None:
        super().committed(positions)
        self._check(self._judge.acked, self.group, positions)

    def handed(self, records: list[ConsumerRecord]) -> None:
        """The program was handed these, all of one partition, just now."""
        first = records[0]
        held = self.find(first.topic, first.partition)
        owner = self.membership().member_id, held.since
        what = self.group, held.key, owner, first.offset, len(records)
        self._check(self._judge.handed, *what)

    def rewound(self) -> None:
        """What was handed out since the last commit is handed out again."""
        if self.member is not None:
            self._judge.rewound(self.group, self.member.member_id)


class Consuming:
    """The consumers of a client process, one after the other."""

    def __init__(self, life: ClientSession, loop: SimLoop) -> None:
        self._life = life
        self._loop = loop
        self._rng = life.rng.fork("consumer")
        self._made = 0
        self._late: list[CommitConsumed] = []
        """Commits that were made up before their partitions were given back, and not sent."""
        self._consumer: AsyncConsumer
        self._state: WatchedState

    async def main(self) -> None:
        """Work as long as the others do, and then until nothing is left to be read."""
        while self._life.workload.working:
            try:
                await self._open()
                await self._work()
                await self._consumer.close()
            except DLedgerError as error:
                self._life.note(f"consumer: {type(error).__name__}: {error}")
                await asyncio.sleep(0.1)
        await self._finish()

    async def _open(self) -> None:
        """Join one of the groups, now and then as a static member."""
        self._made += 1
        rng, life = self._rng, self._life
        session_ms = rng.pick(SESSIONS_MS)
        settings = ConsumerSettings(
            group=rng.pick(GROUPS),
            topics=tuple(topic.name for topic in life.workload.topics),
            instance_id=f"static-{rng.below(2)}" if rng.chance(300_000) else "",
            session_timeout_ms=session_ms,
            max_poll_interval_ms=rng.pick((2000, 300_000)),
            commit_s=rng.pick((None, None, 0.3)),
            max_bytes=rng.pick((1, 1 << 20)),
        )
        core, transport = life.client.core, life.client._transport
        self._state = WatchedState(settings.group, session_ms, life=life, loop=self._loop)
        engine = ConsumerEngine(core, transport, settings=settings, state=self._state)
        callbacks = Callbacks(on_revoked=self._revoked)
        self._consumer = AsyncConsumer(core, transport, engine=engine, callbacks=callbacks)
        life.note(f"consumer {self._made} of {settings}")
        try:
            await engine.open()
        except BaseException:
            await engine.close(commit=False)
            raise

    def _revoked(self, places: list[TopicPartition]) -> None:
        """A commit of these may be under way still when they are another member's."""
        state = self._state
        moved = {
            held.key: held.position
            for held in state.held.values()
            if held.place in places and not held.is_over
        }
        if moved and state.member is not None and self._rng.chance(500_000):
            self._late.append(state.commit(moved))

    async def _commit_late(self) -> None:
        command = self._late.pop(self._rng.below(len(self._late)))
        try:
            await self._life.client._run(commit_consumed(self._life.client.core, command))
        except DLedgerError as error:
            self._life.note(f"late commit: {error}")

    async def _work(self) -> None:
        rng = self._rng
        try:
            for _ in range(rng.between(1, 60)):
                if not self._life.workload.working:
                    return
                await self._poll(rng.between(1, 300) / 1000)
                if rng.chance(400_000):
                    await (self._commit() if rng.chance(700_000) else self._transact())
                if self._late and rng.chance(300_000):
                    await self._commit_late()
                most_s = STALL_S if rng.chance(20_000) else 0.2
                await asyncio.sleep(rng.between(0, int(most_s * 1000)) / 1000)
        except DLedgerError:
            await self._consumer._close(commit=False)
            raise

    async def _poll(self, timeout_s: float) -> int:
        records = await self._consumer.poll(timeout_s, max_records=self._rng.spread(1, 40))
        if records:
            self._state.handed(records)
            first = records[0]
            place = f"{first.topic}/{first.partition}"
            self._life.note(
                f"{self._state.group}: {self._consumer.member_id[:6]} is handed {place} "
                f"{first.offset} to {records[-1].offset + 1}"
            )
        return len(records)

    async def _commit(self) -> None:
        try:
            await self._consumer.commit()
        except ConsumerFenced as error:
            self._life.note(f"commit: {error}")

    async def _transact(self) -> None:
        """A transaction of some records and the offsets; where it is not committed, its consumer
        goes back, or begins another membership."""
        if self._consumer._engine.settings.commit_s is not None:
            return
        life = self._life
        topic, partition = life.place()
        numbers, values = life.new_values()
        transaction = await self._consumer.transaction(timeout_ms=5000)
        kind, name = OperationKind.TRANSACTION, f"{life.session}-consumer-{numbers[0]}"
        call = life.begin(kind, topic, partition, values=numbers, transaction=name, attempt=0)
        try:
            await transaction.append(topic.name, values, partition=partition)
            if self._rng.chance(200_000):
                self._state.rewound()
                await transaction.abort()
                call.failed()
                return
            if self._rng.chance(100_000):  # as if its time were over
                of = transaction._state
                await life.client.abort_transaction(of.writer_id, of.sequence)
            done = await transaction.commit()
        except DLedgerError as error:
            self._state.rewound()
            life.ended(call, name, error)
            self._consumer._engine.end_transaction(committed=False)
            return
        start, end = done.offsets[topic.name][partition]
        call.ok(start=start)
        life.workload.done(topic.name, partition, start, end, end - start)

    async def _finish(self) -> None:
        """Everything that there is comes to an end: each partition is read by some member."""
        while True:
            try:
                await self._open()
                while True:
                    handed = await self._poll(0.2)
                    await self._consumer.commit()
                    has_some = bool(self._consumer.assignment())
                    if has_some and not handed and not any((await self._consumer.lag()).values()):
                        break
                    if not has_some and await self._is_read():
                        break
                await self._consumer.close()
                return
            except DLedgerError as error:
                self._life.note(f"last consumer: {type(error).__name__}: {error}")
                await self._consumer._close(commit=False)
                await asyncio.sleep(0.1)

    async def _is_read(self) -> bool:
        """Whether the group, of whose partitions this member has none, is at their ends."""
        lags = await self._life.client.lag(self._state.group)
        return bool(lags) and not any(lag.rows for lag in lags)
