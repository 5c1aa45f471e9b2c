"""The session of one client process: its client, dice and values, and its part of the history."""

from __future__ import annotations

from typing import Any

from dledger.client.aio.client import AsyncClient
from dledger.errors import DLedgerError
from dledger.testing.checkers.history import OpenOperation, OperationKind
from dledger.testing.checkers.values import encode_value, value_id
from verification.sim.loop import SimLoop
from verification.sim.machine import Machine
from verification.sim.rng import Rng
from verification.sim.settings import addresses_of
from verification.sim.shared_history import SharedHistory, Topic


class ClientSession:
    """The state that every call of a client process needs."""

    def __init__(self, workload: SharedHistory, loop: SimLoop, rng: Rng, session: str) -> None:
        self.session = session
        self.workload = workload
        self.rng = rng
        self.plan = plan = workload.world.plan
        machine, names = Machine(loop, rng.fork("dice")), plan.names
        rng.shuffle(names)
        self.client = AsyncClient(addresses_of(names), environment=machine, **plan.client)
        self.known = workload.known
        self.values = 0
        """How many values it has made."""
        self._writer = workload.new_writer()

    def note(self, text: str) -> None:
        self.workload.world.story.tell(self.session, text)

    def place(self) -> tuple[Topic, int]:
        topic = self.rng.pick(self.workload.topics)
        return topic, self.rng.below(topic.partitions)

    def new_values(self) -> tuple[tuple[int, ...], list[bytes]]:
        count = self.rng.spread(1, self.plan.most_records)
        numbers = tuple(value_id(self._writer, self.values + at) for at in range(count))
        self.values += count
        values = [encode_value(number, self.plan.value_bytes) for number in numbers]
        self.known.update(zip(values, numbers, strict=True))
        return numbers, values

    def new_value(self, size: int) -> tuple[int, bytes]:
        """One that is as large as that, and its number."""
        number = value_id(self._writer, self.values)
        self.values += 1
        value = encode_value(number, size)
        self.known[value] = number
        return number, value

    def begin(
        self, kind: OperationKind, topic: Topic, partition: int, **known: Any
    ) -> OpenOperation:
        """A call of this session begins, see `Recorder.begin`."""
        recorder = self.workload.recorder
        return recorder.begin(kind, self.session, topic.name, partition, **known)

    def ended(self, call: OpenOperation, what: str, error: DLedgerError) -> None:
        if error.definite:
            call.failed()
        else:
            call.unknown()
        self.note(f"{what}: {type(error).__name__}: {error}")

    async def append(
        self,
        topic: Topic,
        partition: int,
        numbers: tuple[int, ...],
        values: list[bytes],
        what: str = "append",
    ) -> bool:
        """One append; whether it was acknowledged. ``what``: its name in the story."""
        call = self.begin(OperationKind.APPEND, topic, partition, values=numbers)
        try:
            done = await self.client.append(topic.name, values, partition=partition)
        except DLedgerError as error:
            self.ended(call, what, error)
            return False
        call.ok(start=done.start)
        self.acknowledged(topic, partition, done.start, done.start + len(values), len(values))
        return True

    async def append_large(self, topic: Topic, partition: int, size: int) -> None:
        """One record of that size."""
        number, value = self.new_value(size)
        await self.append(topic, partition, (number,), [value])

    def acknowledged(self, topic: Topic, partition: int, start: int, end: int, count: int) -> None:
        topic.ends[partition] = max(topic.ends[partition], end)
        self.workload.done(topic.name, partition, start, end, count)
        self.note(f"appended {count} to {topic.name}/{partition}, {start} to {end}")
