"""The calls of a client process besides those for records: consumer groups, topics of its own, and
stages that end a file.

The answers are compared with the committed commands (`verification.invariants.commands`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from dledger.errors import DLedgerError
from dledger.protocol.messages.entry import HEADER_SIZE, MIN_BLANK_SIZE
from dledger.records.body.build import make_records
from dledger.records.body.records import encode_batch
from dledger.records.columns.types import Atom, Columns, Field
from dledger.testing.checkers.history import OperationKind
from dledger.testing.checkers.values import encode_value
from verification.sim.session import ClientSession
from verification.sim.shared_history import Topic

STAGE_MS: Final = (1000, 5000, 15_000)
"""Time-outs of stages."""
MOST_FILLERS: Final = 4
"""Records written in front of a staged one, so that it ends the file."""
_head, _payload = encode_batch(make_records([bytes(1024)]), topic_id=1, partition=0, now_us=0)
FRAME: Final = HEADER_SIZE + len(_head) + len(_payload) - 1024 + MIN_BLANK_SIZE
"""Bytes of an entry with one record besides its value, and the bytes that have to be left of its
file."""


class Chores:
    """A client's, in each of its lives."""

    def __init__(self, life: ClientSession) -> None:
        self._life = life
        self._client = life.client
        self._rng = life.rng
        self._watch = life.workload.world.watch
        self._groups = self._topics = self._stages = 0
        self._progress: dict[tuple[str, int], int] = {}

    def weights(self) -> tuple[tuple[Callable[[], Awaitable[None]], int], ...]:
        """The calls, and how often each is made at most."""
        return (self.progress, 2), (self.hold, 1), (self.own_topic, 1), (self.stage, 4)

    # --- consumer groups --------------------------------------------------------------------------

    @property
    def _group(self) -> str:
        return f"{self._life.session}-g{self._groups}"

    async def progress(self) -> None:
        """The group of this process has processed more."""
        topic, partition = self._life.place()
        place = (topic.name, partition)
        before = self._progress.get(place, 0)
        offset = self._rng.between(before, max(before, topic.ends[partition]))
        try:
            await self._client.commit_offsets(self._group, {topic.name: {partition: offset}})
            self._progress[place] = offset
            if self._watch is not None:
                told = self._watch.commands.progress_acknowledged
                self._watch.check(told, self._group, *place, offset)
        except DLedgerError as error:
            self._life.note(f"progress of {self._group}: {error}")
            # it may still come, over what another one says: begin with another group
            if not error.definite:
                self._groups += 1
                self._progress.clear()

    async def hold(self) -> None:
        """Hold retention back, or let go; also before anything is processed."""
        try:
            await self._client.hold_retention(self._group, self._rng.chance(700_000))
        except DLedgerError as error:
            self._life.note(f"hold of {self._group}: {error}")

    # --- topics -----------------------------------------------------------------------------------

    async def own_topic(self) -> None:
        """A topic is made, written to or typed, grown and deleted; no other client uses it."""
        self._topics += 1
        name = f"{self._life.session}-t{self._topics}"
        try:
            if self._rng.chance(500_000):
                info = await self._client.create_topic(name, type="typed")
                fields = [Field(f"f{at}", Atom("long")) for at in range(self._rng.between(1, 3))]
                for version in range(len(fields)):
                    await self._client.evolve_schema(
                        info, version, Columns(tuple(fields[: version + 1]))
                    )
            else:
                await self._client.create_topic(name, self._rng.between(1, 2))
                await self._client.append(
                    name, [encode_value(0)] * self._rng.between(1, 4), partition=0
                )
            await self._client.add_partitions(name, 3)
            if self._rng.chance(700_000):
                await self._client.delete_topic(name)
                if self._watch is not None:
                    self._watch.check(self._watch.commands.deletion_acknowledged, name)
        except DLedgerError as error:
            self._life.note(f"topic {name}: {error}")

    # --- stages -----------------------------------------------------------------------------------

    def _room(self) -> int:
        """Bytes of a value whose entry would end the file that the leader writes."""
        views = self._watch.views.values() if self._watch is not None else ()
        size = int(self._life.workload.world.plan.group["segment_bytes"])
        return size - max((view.log.end.end_pos for view in views), default=0) % size - FRAME

    async def _filling(self, topic: Topic, partition: int) -> int:
        """Bytes of a value whose entry ends a file, if no other entry comes between; writes records
        before it where one entry cannot."""
        plan = self._life.workload.world.plan
        most = int(plan.group["max_body_bytes"]) - FRAME
        for _ in range(MOST_FILLERS):
            if not most < self._room() <= MOST_FILLERS * most:
                break
            await self._life.append_large(topic, partition, most)
        room = self._room() - self._rng.pick((0, 16, 100, 400))
        return room if 64 <= room <= most else plan.value_bytes

    async def stage(self) -> None:
        """A stage, often with a batch that ends a file. It is committed after a while, or
        abandoned."""
        self._stages += 1
        life = self._life
        topic, partition = life.place()
        name = f"{life.session}-s{self._stages}"
        timeout_ms = self._rng.pick(STAGE_MS)
        try:
            transaction = await self._client.transaction(name, 0, timeout_ms=timeout_ms)
            number, value = life.new_value(await self._filling(topic, partition))
            await transaction.append(topic.name, [value], partition=partition)
        except DLedgerError as error:
            life.note(f"stage {name}: {error}")
            return
        if self._rng.chance(300_000):
            life.note(f"stage {name} is abandoned")
            return
        await asyncio.sleep(self._rng.spread(1, timeout_ms) / 1000)
        kind, values = OperationKind.TRANSACTION, (number,)
        call = life.begin(kind, topic, partition, values=values, transaction=name, attempt=0)
        try:
            done = await transaction.commit()
        except DLedgerError as error:
            life.ended(call, f"stage {name}", error)
        else:
            start, end = done.offsets[topic.name][partition]
            call.ok(start=start)
            life.workload.done(topic.name, partition, start, end, 1)
