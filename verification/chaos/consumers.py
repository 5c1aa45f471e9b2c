"""Consumers: reads from any replica, end offsets fresh and stale, and the offsets of a consumer
group."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from dledger.errors import DLedgerError
from dledger.testing.checkers.history import OperationKind
from dledger.testing.checkers.values import decode_value
from verification.chaos.clients import Place, Worker

MAX_ASKING: Final = 64
"""Questions of a watcher that are not answered."""
LOOK_BACK: Final = 2000
"""Records that a consumer reads again at most when it goes back."""


class Consumer(Worker):
    """Follows all partitions, goes back now and then, and commits how far it has come to a group of
    its own."""

    def __init__(self, place: Place, name: str, rate: float, seed: int, **settings: Any) -> None:
        super().__init__(place, name, rate, seed, **settings)
        self._positions = dict.fromkeys(place.partitions(), 0)
        self._committed: dict[tuple[str, int], int] = {}
        self._maybe: dict[tuple[str, int], set[int]] = {}
        """Offsets of commits with an unknown outcome: any of them may take effect, even late."""

    async def step(self) -> None:
        await self.pause()
        chance = self.dice.random()
        topic, partition = self.any_partition()
        if chance < 0.5:
            await self._read(topic, partition)
        elif chance < 0.9:
            await self._end(topic, stale=chance > 0.8)
        elif chance < 0.95:
            await self._commit(topic, partition)
        else:
            await self._check_group()

    async def _read(self, topic: str, partition: int) -> None:
        start = self._positions[topic, partition]
        if start and self.dice.random() < 0.2:
            start = self.dice.randint(max(0, start - LOOK_BACK), start)
        replica = self.dice.choice([None, *self.place.nodes])
        call = self.begin(OperationKind.READ, topic, partition, start=start)
        values: list[int] = []
        offsets: list[int] = []
        try:
            async for batch in self.client.read(topic, partition, start, replica=replica):
                values += map(decode_value, batch.column("value").to_pylist())
                offsets += batch.column("offset").to_pylist()
        except DLedgerError as error:
            self.place.failed(error)
            self._keep(call, values, offsets, start, to_end=False)
            return
        self._keep(call, values, offsets, start, to_end=True)
        self._positions[topic, partition] = start + len(values)

    @staticmethod
    def _keep(
        call: Any, values: list[int], offsets: list[int], start: int, *, to_end: bool
    ) -> None:
        """Records that came before an error were read all the same."""
        if not values and not to_end:
            call.failed()
            return
        gapless = offsets == list(range(start, start + len(values)))
        call.ok(values=tuple(values), offsets=() if gapless else tuple(offsets), to_end=to_end)

    async def _end(self, topic: str, *, stale: bool) -> None:
        calls = {
            at: self.begin(OperationKind.END, topic, at, stale=stale)
            for at in range(self.place.topics[topic])
        }
        try:
            ends = await self.client.end_offsets(topic, stale=stale)
        except DLedgerError as error:
            self.place.failed(error)
            for call in calls.values():
                call.failed()
            return
        for at, call in calls.items():
            call.ok(start=ends[at])

    async def _commit(self, topic: str, partition: int) -> None:
        where, offset = (topic, partition), self._positions[topic, partition]
        try:
            await self.client.commit_offsets(self.name, {topic: {partition: offset}})
        except DLedgerError as error:
            self.place.failed(error)
            if not error.definite:
                self._maybe.setdefault(where, set()).add(offset)
            return
        self._committed[where] = offset

    async def _check_group(self) -> None:
        found = (await self.client.group(self.name)).offsets
        for (topic, partition), offset in self._committed.items():
            told = found.get(topic, {}).get(partition)
            if told != offset and told not in self._maybe.get((topic, partition), ()):
                self.place.wrong.append(
                    f"group {self.name}: {offset} was committed for {topic}/{partition}, and it "
                    f"has {told}"
                )


class Watcher(Consumer):
    """Asks for fresh end offsets without waiting for the answers before, so that a leader that was
    stopped or cut off finds questions from all the time that it was, and not only one from each
    client."""

    def __init__(self, place: Place, name: str, rate: float, seed: int, **settings: Any) -> None:
        super().__init__(place, name, rate, seed, **settings)
        self._asking: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """As the base's; calls without an answer in the end are cancelled."""
        try:
            await super().run()
        finally:
            for task in self._asking:
                task.cancel()
            await asyncio.gather(*self._asking, return_exceptions=True)

    async def step(self) -> None:
        await self.pause()
        if len(self._asking) < MAX_ASKING:
            topic, _ = self.any_partition()
            task = asyncio.ensure_future(self._end(topic, stale=False))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
