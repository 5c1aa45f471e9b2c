"""A group in memory with the client's methods: enough of the log's rules to test the Spark edge
without a JVM."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from dledger.catalog.topics.schemas import Schemas
from dledger.client import Committed, Span
from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.operations.schemas import Evolved, TypedTopic, agree_schema
from dledger.client.protocol.reading.damage import DamagePolicy
from dledger.client.protocol.reading.fetched import FetchedBodies
from dledger.client.protocol.results import GroupOffsets, Lineage, Range
from dledger.errors import (
    OffsetOutOfRange,
    ProtocolError,
    ReplayMismatch,
    SchemaMismatch,
    TopicExists,
    TopicNotFound,
    TransactionError,
)
from dledger.protocol.messages.catalog_commands import EvolveSchema, StageSum
from dledger.protocol.messages.client import (
    ExecuteResponse,
    OffsetKind,
    OffsetsResponse,
    SchemasRequest,
    SchemasResponse,
    TopicInfo,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.fetched import FetchedBatch, FetchedBatches
from dledger.protocol.messages.shared_offsets import SharedOffsetsResponse
from dledger.records.body.records import decode_batch, encode_batch
from dledger.records.columns.types import Columns
from dledger.records.digest import RowsSum
from tests.datasource.stored_layout import cut

GROUPS: dict[str, FakeGroup] = {}
"""By address, so that what was pickled finds its group again."""
EPOCH_US = 1_700_000_000_000_000


def fetched(*bodies: tuple[FetchedBatch, bytes]) -> FetchedBodies:
    """An answer with these bodies."""
    batches = FetchedBatches.of(batch for batch, _ in bodies)
    return FetchedBodies(batches, memoryview(b"".join(body for _, body in bodies)))


@dataclass
class Stored:
    base: int
    count: int
    body: bytes

    def column(self, name: str) -> pa.Array:
        return decode_batch(self.body)[1][name]


@dataclass
class FakePartition:
    batches: list[Stored] = field(default_factory=list)
    begin: int = 0
    end: int = 0

    def add(self, count: int, body: bytes) -> None:
        self.batches.append(Stored(self.end, count, body))
        self.end += count


@dataclass
class FakeTopic:
    info: TopicInfo
    partitions: list[FakePartition]


class FakeStage:
    def __init__(self, group: FakeGroup, stage_id: int, key: tuple[str, int], label: str) -> None:
        self.group, self.stage_id, self.key, self.label = group, stage_id, key, label
        self.parts: list[tuple[str, int, int, bytes]] = []

    def append_batch(self, topic: str | TopicInfo, partition: int, batch: pa.RecordBatch) -> None:
        if self.group.append_fault:
            raise self.group.append_fault.pop()
        if isinstance(topic, TopicInfo):
            assert self.group.topic(topic.name).log_id == topic.log_id
            topic = topic.name
        self.group.topic(topic)
        self.parts.append(
            (topic, partition, batch.num_rows, self.group.body(topic, partition, batch))
        )

    def cancel(self) -> None:
        self.parts = []

    def close(self) -> StageSum:
        return StageSum(
            stage_id=self.stage_id, batches=len(self.parts), records=sum(p[2] for p in self.parts)
        )


class FakeProducer:
    """Appends at once, or fails through its future."""

    def __init__(self, group: FakeGroup, topic: str) -> None:
        self.group, self.topic = group, topic

    def append_batch(self, partition: int, batch: pa.RecordBatch) -> Future[None]:
        future: Future[None] = Future()
        if self.group.append_fault:
            future.set_exception(self.group.append_fault.pop())
        else:
            body = self.group.body(self.topic, partition, batch)
            self.group.part(self.topic, partition).add(batch.num_rows, body)
            future.set_result(None)
        return future

    def close(self) -> None:
        self.group.closed += 1


class _Infos:
    """The topics as the catalog has them."""

    def __init__(self, topics: dict[str, FakeTopic]) -> None:
        self.topics = topics

    def get(self, name: str) -> TopicInfo | None:
        return self.topics[name].info if name in self.topics else None


class _AnyPartition(dict[int, Any]):
    """Partitions that take notice of a new version."""

    def __missing__(self, key: int) -> Any:
        return SimpleNamespace()


class FakeGroup:
    """The group, and at once the client to it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.by_name: dict[str, FakeTopic] = {}
        self.stages: dict[int, FakeStage] = {}
        self.committed: dict[str, tuple[int, Committed]] = {}
        self.sums: dict[str, RowsSum] = {}
        self.append_fault: list[Exception] = []
        self.waits: list[int] = []
        self.known: list[Any] = []
        self.asked: list[str] = []
        """Every question about topics and offsets, by its name."""
        self.consumers: dict[str, dict[str, dict[int, int]]] = {}
        self.group_fault: list[Exception] = []
        self.told: list[str] = []
        """Who has committed offsets, each time."""
        self.holds: dict[str, bool] = {}
        self.made = 0
        self.closed = 0
        self.is_group = Lineage("A")
        self.shares: dict[str, dict[int, int]] = {}
        """Of a copy: how far it has the records of the group that it is made from."""
        topics: Any = SimpleNamespace(by_name=_Infos(self.by_name))
        self.versions = Schemas(topics, _AnyPartition())
        self.before_evolving: list[Callable[[], object]] = []
        """What other writers do just before this one changes a topic's columns."""
        GROUPS[address] = self

    def before(self, question: str, happens: Callable[[], object], at: int = 1) -> None:
        """Let it happen just before the question is asked for the ``at``-th time from now on."""
        real, turns = getattr(self, question), itertools.count(1)

        def asked(*args: Any, **more: Any) -> Any:
            if next(turns) == at:
                happens()
            return real(*args, **more)

        setattr(self, question, asked)

    def lineage(self) -> Lineage:
        return self.is_group

    def shared_offsets(self, group_id: str, topics: list[str]) -> SharedOffsetsResponse:
        """As far as the test says that the backup went; else all there is."""
        there = {name: self.by_name[name] for name in topics if name in self.by_name}
        return SharedOffsetsResponse(
            code=Code.SUCCESS,
            offsets={
                name: self.shares.get(name) or {at: p.end for at, p in enumerate(topic.partitions)}
                for name, topic in there.items()
            },
            log_ids={name: topic.info.log_id for name, topic in there.items()},
        )

    def make_anew(self, group_id: str, *topics: str) -> None:
        """Another group, with these topics, takes this one's place."""
        self.is_group = Lineage(group_id)
        self.by_name.clear()
        for topic in topics:
            self.create_topic(topic)

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> TopicInfo:
        if name in self.by_name:
            raise TopicExists(f"topic {name!r} exists")
        self.made += 1
        info = TopicInfo(
            name=name,
            topic_id=self.made,
            log_id=str(uuid.uuid4()),
            partitions=partitions,
            settings=settings,
        )
        self.by_name[name] = FakeTopic(info, [FakePartition() for _ in range(partitions)])
        self.versions.add(info)
        return info

    def schemas(self, topic: TopicInfo) -> list[Columns]:
        return [Columns.parse(text) for text in self.versions.by_topic[topic.topic_id]]

    def schema(self, topic: TopicInfo, version: int) -> Columns:
        found = self.schemas(topic)
        if not 1 <= version <= len(found):
            raise ProtocolError(
                f"topic {topic.name!r} has schema versions 1 to {len(found)}, not {version}"
            )
        return found[version - 1]

    def evolve_schema(self, topic: TopicInfo, base_version: int, columns: Columns) -> Evolved:
        if self.before_evolving:
            self.before_evolving.pop()()
        command = EvolveSchema(
            topic=topic.name, log_id=topic.log_id, base_version=base_version, schema=columns.text
        )
        answer = self.versions.evolve(command)
        if answer.code is not Code.SUCCESS:
            raise SchemaMismatch(answer.message)
        now = answer.result["schema"]
        return Evolved(
            answer.result["accepted"], answer.result["version"], Columns.parse(now) if now else None
        )

    def agree_schema(self, topic: TopicInfo, frame: Columns, **more: Any) -> TypedTopic:
        """The client's own operation; its questions are answered here."""
        core = ClientState.make("127.0.0.1:1", "", {})
        operation = agree_schema(core, topic, frame, **more)
        answer: Any = None
        while True:
            try:
                asked = operation.send(answer).message
            except StopIteration as done:
                return done.value
            if isinstance(asked, SchemasRequest):
                found = tuple(columns.text for columns in self.schemas(topic))
                answer = SchemasResponse(code=Code.SUCCESS, schemas=found, newest=len(found)), b""
                continue
            command = asked.command
            done = self.evolve_schema(topic, command.base_version, Columns.parse(command.schema))
            result = done._asdict() | {"schema": done.columns.text if done.columns else ""}
            answer = ExecuteResponse(code=Code.SUCCESS, result=result), b""

    def known_topic(self, name: str) -> TopicInfo:
        return self.topic(name)

    def add_partitions(self, name: str, partitions: int) -> None:
        topic = self.by_name[name]
        topic.info = replace(topic.info, partitions=partitions)
        topic.partitions += [FakePartition() for _ in range(partitions - len(topic.partitions))]

    def delete_topic(self, name: str) -> None:
        del self.by_name[name]

    def topics(self) -> list[TopicInfo]:
        self.asked.append("topics")
        return [topic.info for topic in self.by_name.values()]

    def topic(self, name: str) -> TopicInfo:
        if name not in self.by_name:
            raise TopicNotFound(f"no topic {name!r}")
        return self.by_name[name].info

    def part(self, topic: str, partition: int) -> FakePartition:
        return self.by_name[self.topic(topic).name].partitions[partition]

    def described(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        self.asked.append("described")
        return {name: self.topic(name) for name in names}

    def body(self, topic: str, partition: int, batch: pa.RecordBatch) -> bytes:
        header, payload = encode_batch(
            batch, topic_id=self.topic(topic).topic_id, partition=partition, now_us=EPOCH_US
        )
        return header + payload.to_pybytes()

    def append(
        self, topic: str, partition: int, values: Sequence[bytes | None], **columns: Any
    ) -> None:
        data = {"value": pa.array(values, pa.binary()), **columns}
        batch = pa.RecordBatch.from_arrays(list(data.values()), names=list(data))
        self.part(topic, partition).add(len(values), self.body(topic, partition, batch))

    def expire(self, topic: str, partition: int, begin: int) -> None:
        """Retention: whole batches below ``begin`` go."""
        part = self.part(topic, partition)
        part.batches = [b for b in part.batches if b.base + b.count > begin]
        part.begin = part.batches[0].base if part.batches else part.end

    def offsets(
        self,
        topics: Sequence[str],
        kind: OffsetKind,
        *,
        newer_than: Mapping[str, Mapping[int, int]] | None = None,
        wait_ms: int = 0,
        **_: Any,
    ) -> OffsetsResponse:
        self.asked.append("offsets")
        self.waits.append(wait_ms)
        self.known.append(newer_than)
        assert kind is OffsetKind.EDGES
        found = {t: self.by_name[self.topic(t).name] for t in topics}
        ends, begins = (
            {
                t: {i: getattr(p, edge) for i, p in enumerate(topic.partitions)}
                for t, topic in found.items()
            }
            for edge in ("end", "begin")
        )
        log_ids = {t: topic.info.log_id for t, topic in found.items()}
        return OffsetsResponse(code=Code.SUCCESS, offsets=ends, begins=begins, log_ids=log_ids)

    def offsets_at(self, times_us: Mapping[str, Mapping[int, int]], **_: Any) -> OffsetsResponse:
        found: dict[str, dict[int, int]] = {}
        for topic, times in times_us.items():
            for partition, time in times.items():
                fitting = (
                    one.base + i
                    for one in self.part(topic, partition).batches
                    for i, stamp in enumerate(one.column("timestamp").cast(pa.int64()).to_pylist())
                    if stamp >= time
                )
                found.setdefault(topic, {})[partition] = next(fitting, -1)
        ids = {topic: self.topic(topic).log_id for topic in times_us}
        return OffsetsResponse(code=Code.SUCCESS, offsets=found, log_ids=ids)

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[str, Mapping[int, int]],
        *,
        log_ids: Mapping[str, str] | None = None,
    ) -> None:
        if self.group_fault:
            raise self.group_fault.pop()
        for topic, partitions in offsets.items():
            if (log_ids or {}).get(topic, self.topic(topic).log_id) != self.topic(topic).log_id:
                raise TopicNotFound(f"topic {topic!r} was created again")
            assert all(0 <= o <= self.part(topic, p).end for p, o in partitions.items())
        self.told.append(group)
        for topic, partitions in offsets.items():
            self.consumers.setdefault(group, {}).setdefault(topic, {}).update(partitions)

    def hold_retention(self, group: str, hold: bool = True) -> None:
        self.holds[group] = hold

    def group(self, name: str) -> GroupOffsets:
        return GroupOffsets(name, self.consumers.get(name, {}))

    def split_many(self, spans: Sequence[Span]) -> list[list[Range]]:
        self.asked.append("split")
        return [self._pieces(span) for span in spans]

    def stored_bytes(
        self,
        topics: Sequence[str],
        partitions: Sequence[int],
        starts: Sequence[int],
        ends: Sequence[int],
    ) -> list[int]:
        self.asked.append("stored_bytes")
        columns = zip(topics, partitions, starts, ends, strict=True)
        return [sum(piece.bytes for piece in self._pieces(Span(*one, 1))) for one in columns]

    def _pieces(self, span: Span) -> list[Range]:
        part = self.part(span.topic, span.partition)
        return cut([(b.count, len(b.body)) for b in part.batches], span, part.begin)

    def fetch(
        self,
        topic_id: int,
        partition: int,
        start: int,
        end: int,
        *,
        damage: DamagePolicy | None = None,
    ) -> Iterator[FetchedBodies]:
        topic = next((t for t in self.by_name.values() if t.info.topic_id == topic_id), None)
        if topic is None:
            raise TopicNotFound(
                f"there is no partition {partition} of a topic with id {topic_id} (any more)"
            )
        part = topic.partitions[partition]
        if start < part.begin:
            raise OffsetOutOfRange("gone", part.begin, part.end)
        for batch in part.batches:
            if batch.base + batch.count > start and batch.base < end:
                place = FetchedBatch(batch.base, batch.count, size=len(batch.body), crc=0)
                yield replace(fetched((place, batch.body)), damage=damage)

    def producer(self, topic: str) -> FakeProducer:
        self.topic(topic)
        return FakeProducer(self, topic)

    def stage(
        self, writer_id: str, sequence: int, label: str = "", timeout_ms: int = 0
    ) -> FakeStage | Committed:
        if writer_id in self.committed and sequence <= self.committed[writer_id][0]:
            return self.committed[writer_id][1]
        self.made += 1
        stage = self.stages[self.made] = FakeStage(self, self.made, (writer_id, sequence), label)
        return stage

    def commit_transaction(
        self,
        writer_id: str,
        sequence: int,
        stages: Sequence[StageSum],
        rows: RowsSum | None = None,
        formerly: str = "",
    ) -> Committed:
        for name in filter(None, (writer_id, formerly)):
            if name not in self.committed or sequence > self.committed[name][0]:
                continue
            known = self.sums.get(name)
            last, done = self.committed[name]
            if rows is not None and (sequence < last or known not in (None, rows)):
                raise ReplayMismatch(
                    f"commit ({writer_id!r}, {sequence}): it was committed already with other rows"
                )
            return Committed(True, {}, done.records, checked=known is not None)
        if rows is not None and rows.count != sum(s.records for s in stages):
            raise TransactionError(f"the write has {rows.count} rows, and its stages others")
        if rows is not None:
            self.sums[writer_id] = rows
        chosen = [self.stages.get(s.stage_id) for s in stages]
        for one, wanted in zip(chosen, stages, strict=True):
            if one is None or one.key != (writer_id, sequence) or one.close() != wanted:
                raise TransactionError(f"stage {wanted.stage_id} is gone or incomplete")
        for one in chosen:
            assert one is not None
            for topic, partition, count, body in one.parts:
                self.part(topic, partition).add(count, body)
        self.stages = {i: s for i, s in self.stages.items() if s.key != (writer_id, sequence)}
        done = Committed(False, {}, sum(s.records for s in stages))
        self.committed[writer_id] = (sequence, done)
        return done

    def abort_transaction(
        self, writer_id: str, sequence: int, stage_ids: Sequence[int] = ()
    ) -> None:
        self.stages = {
            i: s
            for i, s in self.stages.items()
            if s.key != (writer_id, sequence) or (stage_ids and i not in stage_ids)
        }

    def values(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """Every value of a partition, in order."""
        batches = self.part(topic, partition).batches
        return [value for one in batches for value in one.column("value").to_pylist()]
