"""Random histories: the catalog does what a plain model does, alike on every node, through any
restart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.catalog.clients.producers import SESSION_MS
from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.protocol.messages.catalog_commands import (
    AbortTransaction,
    AddPartitions,
    CommitOffsets,
    CommitProgress,
    CommitTransaction,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    Expire,
    HoldRetention,
    InitProducer,
    OpenStage,
    StageSum,
)
from dledger.protocol.messages.codes import Code

NAMES = st.sampled_from(["a", "b"])
WRITERS = st.sampled_from(["v", "w"])
SMALL = st.integers(0, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, st.integers(1, 2)),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("grow"), NAMES, st.integers(1, 3)),
        st.tuples(st.just("init"), NAMES),
        st.tuples(
            st.just("send"), SMALL, SMALL, st.integers(-1, 1), st.integers(-2, 1), st.integers(0, 4)
        ),
        st.tuples(st.just("send"), SMALL, SMALL, st.just(0), st.just(0), st.integers(1, 4)),
        st.tuples(st.just("open"), WRITERS, SMALL, st.integers(1, 50)),
        st.tuples(st.just("put"), st.integers(0, 9), SMALL, st.integers(-2, 1), st.integers(1, 4)),
        st.tuples(st.just("put"), st.integers(0, 9), st.just(0), st.just(0), st.integers(1, 4)),
        st.tuples(
            st.just("commit"),
            WRITERS,
            SMALL,
            st.lists(st.integers(0, 9), max_size=3),
            st.booleans(),
        ),
        st.tuples(st.just("settle"), st.integers(0, 9)),
        st.tuples(st.just("abort"), WRITERS, SMALL, st.lists(st.integers(0, 9), max_size=2)),
        st.tuples(st.just("expire"), st.sampled_from([0, 10, 60, SESSION_MS])),
        st.tuples(st.just("mark"), NAMES, SMALL, st.integers(0, 20)),
        st.tuples(st.just("tell"), NAMES, SMALL, st.integers(0, 20), st.booleans()),
        st.tuples(st.just("hold"), st.booleans()),
        st.tuples(st.just("forget")),
    ),
    max_size=60,
)
"""What clients and leaders ask for; small numbers, so that they meet."""


class Model:
    """The same rules, written in the plainest way: lists and dicts, nothing packed, nothing
    forgotten for space."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[int, int]] = {}
        self.batches: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.sessions: dict[str, dict[str, Any]] = {}
        self.stages: dict[int, dict[str, Any]] = {}
        self.commits: dict[str, tuple[int, dict[str, Any]]] = {}
        self.groups: dict[str, dict[int, int]] = {}
        self.holds = False
        self.ids = 0
        self.producers = 0

    def place(self, where: tuple[int, int], count: int, index: int) -> int:
        batches = self.batches[where]
        base = sum(size for size, _ in batches)
        batches.append((count, index))
        return base

    def create(self, name: str, partitions: int) -> Code:
        if name in self.topics:
            return Code.SUCCESS if self.topics[name][1] == partitions else Code.TOPIC_EXISTS
        self.ids += 1
        self.topics[name] = self.ids, partitions
        self.batches.update({(self.ids, number): [] for number in range(partitions)})
        return Code.SUCCESS

    def grow(self, name: str, partitions: int) -> Code:
        if name not in self.topics:
            return Code.UNKNOWN_TOPIC
        topic_id, before = self.topics[name]
        if partitions < before:
            return Code.MALFORMED
        self.topics[name] = topic_id, partitions
        self.batches.update({(topic_id, number): [] for number in range(before, partitions)})
        return Code.SUCCESS

    def delete(self, name: str) -> Code:
        if name not in self.topics:
            return Code.UNKNOWN_TOPIC
        topic_id, partitions = self.topics.pop(name)
        for number in range(partitions):
            del self.batches[topic_id, number]
        self.groups.pop(name, None)
        return Code.SUCCESS

    def init(self, name: str) -> tuple[int, int]:
        if name not in self.sessions:
            self.producers += 1
            self.sessions[name] = {"id": self.producers, "epoch": -1}
        session = self.sessions[name]
        session.update(epoch=session["epoch"] + 1, results={}, used=True)
        return session["id"], session["epoch"]

    def send(
        self,
        where: tuple[int, int],
        count: int,
        index: int,
        producer: tuple[int, int],
        sequence: int,
    ) -> tuple[Code, int]:
        if where not in self.batches:
            return Code.UNKNOWN_TOPIC, -1
        if not count:
            return Code.MALFORMED, -1
        if not producer[0]:
            return Code.SUCCESS, self.place(where, count, index)
        session = next((s for s in self.sessions.values() if s["id"] == producer[0]), None)
        if session is None:
            return Code.UNKNOWN_PRODUCER, -1
        if producer[1] != session["epoch"]:
            return (Code.PRODUCER_FENCED if producer[1] < session["epoch"] else Code.MALFORMED), -1
        results = session["results"].setdefault(where, [])
        if sequence > len(results):
            return Code.OUT_OF_ORDER_SEQUENCE, -1
        if sequence == len(results):
            results.append(self.place(where, count, index))
            session["used"] = True
        return Code.SUCCESS, results[sequence]

    def put(
        self, stage_id: int, where: tuple[int, int], count: int, index: int, sequence: int
    ) -> Code:
        if where not in self.batches:
            return Code.UNKNOWN_TOPIC
        if stage_id not in self.stages:
            return Code.UNKNOWN_STAGE
        held = self.stages[stage_id]["held"]
        if sequence == len(held):
            held.append((where, count, index))
        return Code.SUCCESS if sequence < len(held) else Code.OUT_OF_ORDER_SEQUENCE

    def commit(
        self, writer: str, sequence: int, sums: list[StageSum]
    ) -> tuple[Code, dict[str, Any]]:
        last, result = self.commits.get(writer, (-1, {}))
        if sequence <= last:
            empty = {"offsets": {}, "records": 0}
            return Code.SUCCESS, {"repeated": True, **(result if sequence == last else empty)}
        for at, part in enumerate(sums):
            stage = self.stages.get(part.stage_id)
            if part.stage_id in [other.stage_id for other in sums[:at]]:
                return Code.MALFORMED, {}
            if stage is None:
                return Code.UNKNOWN_STAGE, {}
            if stage["of"] != (writer, sequence):
                return Code.TRANSACTION_CONFLICT, {}
            records = sum(count for _, count, _ in stage["held"])
            if (len(stage["held"]), records) != (part.batches, part.records):
                return Code.STAGE_INCOMPLETE, {}
            if any(where not in self.batches for where, *_ in stage["held"]):
                return Code.UNKNOWN_TOPIC, {}
        names = {topic_id: name for name, (topic_id, _) in self.topics.items()}
        offsets: dict[str, dict[int, list[int]]] = {}
        for part in sums:
            for where, count, index in self.stages[part.stage_id]["held"]:
                base = self.place(where, count, index)
                span = offsets.setdefault(names[where[0]], {}).setdefault(where[1], [base, base])
                span[1] = base + count
        result = {"offsets": offsets, "records": sum(part.records for part in sums)}
        self.commits[writer] = sequence, result
        self.drop(lambda stage: stage["of"][0] == writer and stage["of"][1] <= sequence)
        return Code.SUCCESS, {"repeated": False, **result}

    def drop(self, which: Any) -> None:
        self.stages = {
            stage_id: stage for stage_id, stage in self.stages.items() if not which(stage)
        }


class Run:
    """One history on a log and a model, each step compared."""

    def __init__(self, log: Any) -> None:
        self.log = log
        self.model = Model()
        self.now = 0
        self.opened: list[int] = []
        self.snapshots: list[bytes] = []

    def step(self, what: str, *args: Any) -> None:
        getattr(self, what)(*args)
        log, model = self.log, self.model
        topics = {one.name: (one.topic_id, one.partitions) for one in log.catalog.topics()}
        assert topics == model.topics
        for where, batches in model.batches.items():
            assert [span[1:] for span in log.spans(*where)] == batches
        assert log.catalog.group("g") == model.groups
        assert sorted(log.catalog.transactions.stages) == sorted(model.stages)
        self.check_hold()
        self.snapshots.append(log.catalog.snapshot())

    @property
    def index(self) -> int:
        return len(self.log.entries)

    def where(self, number: int) -> tuple[int, int]:
        """One of a few partitions, some of which are not there."""
        return max(1, self.model.ids - number // 2), number % 2

    def create(self, name: str, partitions: int) -> None:
        of = {"name": name, "log_id": f"id-{self.index}", "partitions": partitions}
        made = self.log.run(CreateTopic(**of, if_absent=True))
        assert made.code is self.model.create(name, partitions)

    def grow(self, name: str, partitions: int) -> None:
        grown = self.log.run(AddPartitions(name=name, partitions=partitions))
        assert grown.code is self.model.grow(name, partitions)

    def delete(self, name: str) -> None:
        assert self.log.run(DeleteTopic(name=name)).code is self.model.delete(name)

    def init(self, name: str) -> None:
        result = self.log.run(InitProducer(producer_name=name, time_ms=self.now)).result
        assert (result["producer_id"], result["epoch"]) == self.model.init(name)

    def data(self, where: tuple[int, int], count: int, **of: Any) -> Any:
        return self.log.data(count, topic_id=where[0], partition=where[1], **of)

    def send(self, which: int, number: int, epoch: int, sequence: int, count: int) -> None:
        where = self.where(number)
        session = next((s for s in self.model.sessions.values() if s["id"] == which), None)
        if session is None:
            producer, sequence = (which, 0), 0
        else:
            producer = which, max(0, session["epoch"] + epoch)
            sequence = max(0, len(session["results"].get(where, [])) + sequence)
        expected = self.model.send(where, count, self.index, producer, sequence)
        result = self.data(where, count, producer=producer, sequence=sequence)
        assert result[:2] == expected

    def open(self, writer: str, sequence: int, timeout_ms: int) -> None:
        at = self.index
        times = {"timeout_ms": timeout_ms, "time_ms": self.now}
        opened = self.log.run(OpenStage(writer_id=writer, sequence=sequence, label="", **times))
        last, result = self.model.commits.get(writer, (-1, {}))
        if sequence <= last:
            expected = result if sequence == last else {"offsets": {}, "records": 0}
            assert opened.result == {"committed": True, **expected}
        else:
            assert opened.result == {"stage_id": at}
            self.opened.append(at)
            deadline = self.now + timeout_ms
            self.model.stages[at] = {"of": (writer, sequence), "held": [], "deadline": deadline}

    def stage_id(self, number: int) -> int:
        return self.opened[-1 - number] if number < len(self.opened) else 10_000 + number

    def put(self, number: int, partition: int, sequence: int, count: int) -> None:
        stage_id, where = self.stage_id(number), self.where(partition)
        sequence = max(0, len(self.held(stage_id)) + sequence)
        expected = self.model.put(stage_id, where, count, self.index, sequence)
        result = self.data(where, count, stage=stage_id, sequence=sequence)
        assert (result.code, result.base_offset) == (expected, -1)

    def held(self, stage_id: int) -> list[Any]:
        """What a stage holds; nothing where there is none of that id."""
        return self.model.stages[stage_id]["held"] if stage_id in self.model.stages else []

    def sum_of(self, stage_id: int) -> StageSum:
        held = self.held(stage_id)
        records = sum(count for _, count, _ in held)
        return StageSum(stage_id=stage_id, batches=len(held), records=records)

    def commit(self, writer: str, sequence: int, numbers: list[int], right: bool) -> None:
        sums = [self.sum_of(self.stage_id(number)) for number in numbers]
        if not right and sums:
            sums[-1] = StageSum(stage_id=sums[-1].stage_id, batches=9, records=9)
        self.committed(writer, sequence, sums)

    def committed(self, writer: str, sequence: int, sums: list[StageSum]) -> None:
        expected = self.model.commit(writer, sequence, sums)
        command = CommitTransaction(writer_id=writer, sequence=sequence, stages=tuple(sums))
        done = self.log.run(command)
        assert (done.code, done.result) == expected

    def settle(self, number: int) -> None:
        """Commit as a well-behaved writer does: all stages of one transaction, then the same
        again."""
        stage = self.model.stages.get(self.stage_id(number))
        if stage is not None:
            stages = self.model.stages.items()
            sums = [self.sum_of(one) for one, other in stages if other["of"] == stage["of"]]
            for _ in range(2):
                writer, sequence = stage["of"]
                self.committed(writer, sequence, sums)

    def abort(self, writer: str, sequence: int, numbers: list[int]) -> None:
        ids = tuple(self.stage_id(number) for number in numbers)
        self.log.run(AbortTransaction(writer_id=writer, sequence=sequence, stage_ids=ids))
        self.model.stages = {
            stage_id: stage
            for stage_id, stage in self.model.stages.items()
            if stage["of"] != (writer, sequence) or (ids and stage_id not in ids)
        }

    def expire(self, later: int) -> None:
        self.now += later
        self.log.run(Expire(time_ms=self.now))
        self.model.drop(lambda stage: stage["deadline"] <= self.now)
        known = {session.name for session in self.log.catalog.producers.sessions.values()}
        for name in list(self.model.sessions):
            if name not in known:
                session = self.model.sessions.pop(name)
                assert not session["used"], (
                    "a session that was used since the last expiry must not be forgotten"
                )
        if later == SESSION_MS:
            for session in self.model.sessions.values():
                session["used"] = False

    def mark(self, name: str, number: int, offset: int) -> None:
        command = CommitOffsets(consumer_group="g", offsets={name: {number: offset}})
        self.told(command, name, number, offset)

    def tell(self, name: str, number: int, offset: int, right: bool) -> None:
        there = self.log.catalog.topics_state.by_name.get(name)
        log_id = there.log_id if there is not None and right else "another"
        offsets = {name: {number: offset}}
        command = CommitProgress(
            consumer_group="g", offsets=offsets, log_ids={name: log_id}, time_ms=self.now
        )
        self.told(command, name, number if right else 9, offset)

    def hold(self, hold: bool) -> None:
        assert self.log.run(HoldRetention(consumer_group="g", hold=hold)).code is Code.SUCCESS
        self.model.holds = hold

    def forget(self) -> None:
        assert self.log.run(DeleteGroup(consumer_group="g")).code is Code.SUCCESS
        self.model.groups, self.model.holds = {}, False

    def check_hold(self) -> None:
        """Nothing that the group has not processed lies before the entry from which on it holds."""
        wanted = [
            index
            for name, offsets in self.model.groups.items()
            for number, offset in offsets.items()
            for end, index in self.ends_of(self.model.topics[name][0], number)
            if end > offset
        ]
        held = [hold.index for hold in self.log.catalog.consumer_groups.holds()]
        assert bool(held) == (self.model.holds and bool(wanted))
        assert not held or held[0] <= min(wanted)

    def ends_of(self, topic_id: int, number: int) -> Iterator[tuple[int, int]]:
        """(end offset, entry) of each batch."""
        end = 0
        for count, index in self.model.batches[topic_id, number]:
            end += count
            yield end, index

    def told(
        self, command: CommitOffsets | CommitProgress, name: str, number: int, offset: int
    ) -> None:
        code = self.log.run(command).code
        topic_id, partitions = self.model.topics.get(name, (0, 0))
        if number >= partitions:
            assert code is Code.UNKNOWN_TOPIC
        elif offset > sum(count for count, _ in self.model.batches[topic_id, number]):
            assert code is Code.OFFSET_OUT_OF_RANGE
        else:
            assert code is Code.SUCCESS
            self.model.groups.setdefault(name, {})[number] = offset


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, data=st.data())
def test_any_history_matches_model_on_all_nodes_and_after_restart(
    new_log: Any, steps: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    run = Run(new_log())
    for step in [("create", "a", 2), ("init", "a"), ("open", "v", 0, 50), *steps]:
        run.step(*step)
    log = run.log
    final = log.catalog.snapshot()
    other = log.replay(Catalog(MemoryTables()))
    assert other.snapshot() == final, "two nodes with the same log"
    snapshot = data.draw(st.sampled_from(run.snapshots))
    spans = {where: log.spans(*where) for where in run.model.batches}
    log.catalog = log.replay(Catalog.restore(snapshot, log.tables))
    assert log.catalog.snapshot() == final, "restored and replayed is as never stopped"
    assert {where: log.spans(*where) for where in run.model.batches} == spans
    for where, before in spans.items():
        run.data(where, 1)
        assert log.spans(*where)[:-1] == before
        assert log.spans(*where)[-1][2] == log.catalog.applied_index
