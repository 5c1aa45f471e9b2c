"""A committed log to apply: what the tests of the catalog drive it with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from dledger.catalog.clients.transactions import Transactions
from dledger.catalog.results import CommandResult, DataResult
from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.partition import Partition
from dledger.catalog.topics.table import MemoryTables
from dledger.protocol.messages.catalog_commands import (
    Command,
    CommitTransaction,
    CommitWrite,
    CreateTopic,
    InitProducer,
    OpenStage,
    StageSum,
)
from dledger.records.body.header import BodyHeader, BodyKind, Flag

WEEK_MS = 7 * 24 * 3600 * 1000


class Log:
    """Applies entries to a catalog as they are committed, and keeps them for a replay."""

    def __init__(self) -> None:
        self.tables = MemoryTables()
        self.catalog = Catalog(self.tables)
        self.entries: list[tuple[Any, ...]] = []
        self.pos = 0

    def run(self, command: Command) -> CommandResult:
        """Commit a command."""
        self.entries.append((command,))
        return self.catalog.apply_command(len(self.entries) - 1, command)

    def noop(self) -> None:
        """Commit an entry that says nothing."""
        self.entries.append(())
        self.catalog.apply_other(len(self.entries) - 1)

    def data(
        self,
        count: int = 1,
        *,
        topic_id: int = 1,
        partition: int = 0,
        producer: tuple[int, int] = (0, 0),
        sequence: int = 0,
        stage: int | None = None,
        time: int = 0,
        size: int = 100,
        version: int = 0,
    ) -> DataResult:
        """Commit a batch. Only what the log says as well is refused by a leader at once."""
        session, flags = (producer, Flag(0)) if stage is None else ((stage, 0), Flag.STAGED)
        batch = BodyKind.DATA, topic_id, partition, count, time, time
        header = BodyHeader(*batch, *session, sequence, flags=flags, schema_version=version)
        refused = self.catalog.check_append(header)
        self.entries.append((self.pos, size, header, len(self.entries) & 0xFFFF))
        self.pos += size + 112
        result = self.catalog.apply_data(len(self.entries) - 1, *self.entries[-1])
        assert refused in (None, result)
        return result

    def restart(self) -> bytes:
        """Go on with the catalog of a snapshot, which is as the one before; the snapshot."""
        data = self.catalog.snapshot()
        self.catalog = Catalog.restore(data, self.tables)
        assert self.catalog.snapshot() == data
        return data

    def replay(self, catalog: Catalog) -> Catalog:
        """Apply to another catalog what it lacks."""
        for index in range(catalog.applied_index + 1, len(self.entries)):
            entry = self.entries[index]
            if not entry:
                catalog.apply_other(index)
            elif len(entry) == 1:
                catalog.apply_command(index, entry[0])
            else:
                catalog.apply_data(index, *entry)
        return catalog

    def topic(self, name: str = "t", partitions: int = 1) -> int:
        result = self.run(
            CreateTopic(name=name, log_id=f"{name}-{len(self.entries)}", partitions=partitions)
        )
        return int(result.result["topic_id"])

    def producer(self, name: str = "p") -> tuple[int, int]:
        result = self.run(InitProducer(producer_name=name)).result
        return result["producer_id"], result["epoch"]

    def stage(
        self, writer: str = "w", sequence: int = 0, *, timeout_ms: int = 1000, time_ms: int = 0
    ) -> int:
        of = {"writer_id": writer, "sequence": sequence, "label": "l"}
        opened = self.run(OpenStage(**of, timeout_ms=timeout_ms, time_ms=time_ms))
        return int(opened.result["stage_id"])

    def staged(
        self, *counts: int, writer: str = "w", sequence: int = 0, topic_id: int = 1
    ) -> tuple[int, int, int]:
        """A stage with batches of so many records; id, batches and records."""
        stage = self.stage(writer, sequence)
        for at, count in enumerate(counts):
            self.data(count, stage=stage, sequence=at, topic_id=topic_id)
        return stage, len(counts), sum(counts)

    def commit(
        self, *stages: tuple[int, int, int], writer: str = "w", sequence: int = 0
    ) -> CommandResult:
        """Commit stages of (id, batches, records)."""
        command = CommitTransaction(writer_id=writer, sequence=sequence, stages=sums_of(stages))
        return self.run(command)

    def commit_write(
        self, *stages: tuple[int, int, int], rows: int, digest: int = 1, **more: Any
    ) -> CommandResult:
        """As `commit`, with count and digest of the rows."""
        given: dict[str, Any] = {"writer_id": "w", "sequence": 0, **more}
        return self.run(
            CommitWrite(stages=sums_of(stages), records=rows, digest=f"{digest:016x}", **given)
        )

    def spans(self, topic_id: int = 1, partition: int = 0) -> list[tuple[int, int, int]]:
        """(base offset, count, entry) of all that can be read."""
        begin = self.catalog.begin_offset(topic_id, partition)
        found = self.catalog.find(topic_id, partition, begin, -1, 1 << 40)
        return [(ref.base_offset, ref.count, ref.index) for ref in found]


def sums_of(stages: Iterable[tuple[int, int, int]]) -> tuple[StageSum, ...]:
    return tuple(StageSum(stage_id=i, batches=b, records=r) for i, b, r in stages)


@pytest.fixture
def log() -> Log:
    """A log with a topic ``t`` of id 1 and two partitions."""
    log = Log()
    log.topic("t", 2)
    return log


@pytest.fixture
def small() -> Callable[[int], Transactions]:
    """``small(most)``: transactions of that many writers, over one partition."""
    partition = Partition(MemoryTables(), "t", topic_id=1, number=0)
    return lambda most: Transactions({1 << 32: partition}.get, set(), max_writers=most)


@pytest.fixture(scope="session")
def new_log() -> type[Log]:
    """To make logs within a test, as often as hypothesis wants."""
    return Log
