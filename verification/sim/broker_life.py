"""The calls of a client of a RocketMQ commit log: it puts one or many messages, and gets them by
queue offset, place and key. Each answer is judged at once by `verification.invariants.queued`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from dledger.client.aio.client import AsyncClient
from dledger.errors import DLedgerError, OffsetOutOfRange
from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.rocketmq.format.message import Message, TransactionType
from dledger.rocketmq.format.properties import KEYS, TAGS, UNIQUE_KEY, format_properties
from verification.invariants.queued import Queued
from verification.sim.cluster import World
from verification.sim.life import ClientLife
from verification.sim.rng import Rng
from verification.sim.shared_history import Topic

KINDS: Final = (TransactionType.NONE,) * 8 + (
    TransactionType.PREPARED,
    TransactionType.COMMIT,
    TransactionType.ROLLBACK,
)
NEWEST: Final = 12
"""A client that guesses where a message may lie guesses one of the places that were written
last."""


class Asker:
    """Asks for messages, and has what comes judged."""

    def __init__(
        self, world: World, client: AsyncClient, rng: Rng, topics: Sequence[Topic], name: str
    ) -> None:
        assert world.queued is not None
        self._queued: Queued = world.queued
        self._world = world
        self._client = client
        self._rng = rng
        self._topics = topics
        self._name = name
        self._positions: dict[tuple[str, int], int] = {}

    def judge(self, check: Callable[..., None], *told: Any) -> None:
        """An invariant that does not hold ends the run, even where an error here would be
        handled."""
        self._world.judged(check, *told)

    def note(self, text: str) -> None:
        self._world.story.tell(self._name, text)

    async def some(self) -> None:
        """One question."""
        rng = self._rng
        topic, stale = rng.pick(self._topics), rng.chance(400_000)
        asked = rng.below(10)
        if asked < 5:
            queue_id = rng.below(topic.partitions)
            at = self._positions.get((topic.name, queue_id), 0)
            if rng.chance(300_000):
                at = rng.below(self._queued.next_offset((topic.name, queue_id)) + 2)
            await self.get(topic.name, queue_id, at, stale=stale)
        elif asked < 8:
            await self.view(self._some_place(), stale=stale)
        else:
            await self.query(stale=stale)

    async def get(self, topic: str, queue_id: int, at: int, *, stale: bool) -> int:
        """Where to go on."""
        queue, queued = (topic, queue_id), self._queued
        known = queued.next_offset(queue)
        most = self._rng.between(1, 20)
        try:
            answer = await self._client.get_message(
                topic, queue_id, at, max_messages=most, stale=stale
            )
        except DLedgerError as error:
            self.note(f"get {topic}/{queue_id} from {at}: {error}")
            return at
        self.judge(queued.shown, answer.messages)
        self.judge(queued.led, queue, at, answer.next_begin_offset, answer.messages)
        if not stale:
            self.judge(queued.reaches, queue, answer.max_offset, known)
        self._positions[queue] = answer.next_begin_offset
        return answer.next_begin_offset

    def _some_place(self) -> int:
        """Of a committed message, or of what was written last, be it committed or not."""
        rng, watch = self._rng, self._world.watch
        if watch is not None and rng.chance(600_000):
            newest = [written.pos for written in list(watch.truth.written.values())[-NEWEST:]]
            if newest:
                return rng.pick(newest) + HEADER_SIZE
        places = list(self._queued.by_place)
        return rng.pick(places) if places else 0

    async def view(self, place: int, *, stale: bool) -> None:
        queued = self._queued
        known = place in queued.by_place
        try:
            message = await self._client.view_message(place, stale=stale)
        except OffsetOutOfRange:
            if known and not stale:
                self.judge(queued.missing, place)
        except DLedgerError as error:
            self.note(f"view {place}: {error}")
        else:
            self.judge(queued.shown, [message])

    async def query(self, *, stale: bool) -> None:
        queued = self._queued
        stored = list(queued.by_place.values())
        if not stored:
            return
        wanted = self._rng.pick(stored)
        topic, properties = wanted.message.topic, wanted.message.property_map()
        try:
            found = await self._client.query_message(topic, properties[UNIQUE_KEY], stale=stale)
        except DLedgerError as error:
            self.note(f"query {topic}: {error}")
            return
        self.judge(queued.shown, found)
        is_there = wanted.place in [message.physical_offset for message in found]
        if (
            not stale
            and not is_there
            and wanted.message.transaction is not TransactionType.ROLLBACK
        ):
            self.judge(queued.missing, wanted.place)


class BrokerLife(ClientLife):
    """One client process."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        workload = self.workload
        self._asker = Asker(
            workload.world, self.client, self.rng.fork("asker"), workload.topics, self.session
        )
        self._queued = self._asker._queued

    def _calls(self) -> list[Callable[[], Awaitable[None]]]:
        calls: list[Callable[[], Awaitable[None]]] = [self._put] * self.rng.between(1, 5)
        return calls + [self._asker.some] * self.rng.between(0, 5)

    async def _prepare(self) -> None:
        """A topic is there when a message names it."""

    def _message(self, topic: Topic) -> Message:
        _, body = self.new_value(self.plan.value_bytes)
        key = f"{self.session}-{self.values}"
        properties = {UNIQUE_KEY: key, KEYS: f"all {key[-1]}", TAGS: f"tag{self.rng.below(3)}"}
        kind = self.rng.pick(KINDS)
        queue_id = self.rng.below(topic.partitions)
        return Message(
            topic.name, body, format_properties(properties), queue_id, sys_flag=int(kind)
        )

    async def _put(self) -> None:
        topic = self.rng.pick(self.workload.topics)
        count = self.rng.spread(1, self.plan.most_records)
        await self._put_these([self._message(topic) for _ in range(count)])

    async def _put_these(self, messages: list[Message]) -> bool:
        queued = self._queued
        try:
            done = await self.client.put_messages(messages)
        except DLedgerError as error:
            self.note(f"put: {type(error).__name__}: {error}")
            if error.definite:
                self._asker.judge(
                    queued.refused, [message.body for message in messages], str(error)
                )
            return False
        for message, result in zip(messages, done, strict=True):
            self._asker.judge(
                queued.acknowledged, message.body, result.physical_offset, result.queue_offset
            )
        self.workload.acknowledged += 1
        self.workload.records += len(messages)
        self.note(f"put {len(messages)}, the last at {done[-1].physical_offset}")
        return True

    async def probe(self) -> None:
        """Put until it works."""
        while True:
            if await self._put_these([self._message(self.workload.topics[0])]):
                return
            await asyncio.sleep(0.02)

    async def read_from_begin(self, topic: Topic, partition: int) -> None:
        """Everything that is kept."""
        at = 0
        while at < self._queued.next_offset((topic.name, partition)):
            before, at = at, await self._asker.get(topic.name, partition, at, stale=False)
            if at == before:
                await asyncio.sleep(0.1)
