"""The sink without a JVM: every hop pickled, every task failed, repeated and raced."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from dledger.datasource.table.column_text import columns
from dledger.datasource.write import nameless
from dledger.datasource.write.sink_task import Task
from dledger.datasource.write.writer import BatchWriter
from dledger.errors import ConfigError, ReplayMismatch, TopicNotFound, TransactionError, Unavailable
from dledger.streaming.writer import LogStreamWriter
from tests.datasource.hops import hop
from tests.datasource.spark_writes import OUTSIDE, Writes

FRAME = columns("value string")
BY_TOPIC = columns("value string, topic string")
WITH_PARTITION = columns("value string, partition int")
RUN_1, RUN_2 = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
IN_QUERY = Task(0, 0, "query-1", RUN_1, 5)
RERUN = replace(IN_QUERY, run_id=RUN_2)


def batches(*values: str) -> Iterable[pa.RecordBatch]:
    return iter([pa.record_batch({"value": [value]}) for value in values])


class Spark(Writes):
    """Does what Spark's driver and executors do with a writer, in their order, with pickles in
    between."""

    def writer(self, make: Callable[..., Any] = BatchWriter, **more: str) -> Any:
        return hop(make(self.options(**more), FRAME, overwrite=False))

    def tasks(self, writer: Any, parts: list[list[str]], task: Task) -> list[Any]:
        messages = []
        for partition, values in enumerate(parts):
            self.task = replace(task, partition=partition)
            messages.append(hop(hop(writer).write(batches(*values))))
        self.task = OUTSIDE
        return messages

    def begun(
        self,
        parts: list[list[str]],
        task: Task = OUTSIDE,
        make: Callable[..., Any] = BatchWriter,
        **more: str,
    ) -> tuple[Any, list[Any]]:
        """A write before its commit: its writer, and the messages of its tasks."""
        writer = self.writer(make, **more)
        return writer, self.tasks(writer, parts, task)

    def save(self, parts: list[list[str]], task: Task = OUTSIDE, **more: str) -> None:
        writer, messages = self.begun(parts, task, **more)
        hop(writer).commit(messages)

    def committed_before(self, name: str, sequence: int) -> None:
        """By an earlier release, which kept no digest."""
        self.group.create_topic("t")
        stage = self.group.stage(name, sequence)
        self.group.commit_transaction(name, sequence, [stage.close()])

    def stream(self, parts: list[list[str]], task: Task, **more: str) -> None:
        _, messages = self.begun(parts, task, LogStreamWriter, **more)
        self.writer(LogStreamWriter, **more).commit(messages, task.batch_id)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch, group: Any) -> Spark:
    return Spark(group, monkeypatch)


def test_a_batch_write_appears_at_once_when_it_is_committed(spark: Spark) -> None:
    writer, messages = spark.begun([["a", "b"], [], ["c"]])
    assert spark.group.values("t") == []
    writer.commit(messages)
    assert spark.group.values("t") == [b"a", b"b", b"c"]


def test_two_batch_jobs_are_two_writes(spark: Spark) -> None:
    spark.save([["a"]])
    spark.save([["a"]])
    assert spark.group.values("t") == [b"a", b"a"]


def test_a_batch_job_with_a_txn_id_writes_once_however_often_it_runs(spark: Spark) -> None:
    spark.save([["a"]], txnId="load-2024-01-01")
    spark.save([["a"]], txnId="load-2024-01-01")
    assert spark.group.values("t") == [b"a"]


def test_a_nameless_write_while_a_query_runs_is_warned_of(
    spark: Spark, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark does not say whether foreachBatch has made it."""
    spark.save([["a"]])
    assert caplog.text == ""
    monkeypatch.setattr(nameless, "runs_streams", lambda: True)
    spark.save([["b"]])
    assert "a write to topic 't' has no query and no 'txnId'" in caplog.text
    caplog.clear()
    spark.save([["c"]], txnId="c")
    spark.save([["d"]], IN_QUERY)
    spark.save([[]])
    assert caplog.text == ""


def test_a_failed_attempt_leaves_nothing_and_the_next_one_writes_once(spark: Spark) -> None:
    writer = spark.writer()
    spark.group.create_topic("t")
    spark.group.append_fault = [Unavailable("no leader")]
    with pytest.raises(Unavailable):
        spark.tasks(writer, [["a"]], OUTSIDE)
    assert spark.group.stages == {}
    writer.commit(spark.tasks(writer, [["a"]], replace(OUTSIDE, attempt=1)))
    assert spark.group.values("t") == [b"a"]


def test_the_stage_of_a_task_that_was_killed_is_not_committed(spark: Spark) -> None:
    """Speculation, or an executor that was lost: only the attempt whose message arrived counts."""
    writer, _ = spark.begun([["a"]])
    writer.commit(spark.tasks(writer, [["a"]], replace(OUTSIDE, attempt=1)))
    assert spark.group.values("t") == [b"a"]


@pytest.mark.parametrize("kind", ["stream", "save"])
def test_a_micro_batch_that_is_run_again_is_written_once(spark: Spark, kind: str) -> None:
    write: Callable[..., None] = getattr(spark, kind)
    write([["a"], ["b"]], IN_QUERY)
    write([["b", "a"]], RERUN)
    write([["c"]], replace(RERUN, batch_id=6))
    assert spark.group.values("t") == [b"a", b"b", b"c"]


def test_copied_checkpoint_with_another_topic_writes_everything_there(spark: Spark) -> None:
    spark.stream([["a"]], IN_QUERY)
    spark.stream([["b"]], RERUN, topic="fork")
    assert spark.group.values("fork") == [b"b"]


@pytest.mark.parametrize("kind", ["stream", "save"])
@pytest.mark.parametrize("batch_id", [4, 5])
def test_restored_checkpoint_with_other_rows_is_an_error_with_remedies(
    spark: Spark, kind: str, batch_id: int
) -> None:
    write: Callable[..., None] = getattr(spark, kind)
    write([["a"]], IN_QUERY)
    with pytest.raises(
        ReplayMismatch, match=r"restored from an older copy.*newest checkpoint.*onReplayMismatch"
    ):
        write([["b"]], replace(RERUN, batch_id=batch_id))
    assert spark.group.values("t") == [b"a"]
    assert spark.group.stages == {}


@pytest.mark.parametrize("batch_id", [4, 5])
def test_committed_rows_stand_with_a_warning_where_that_is_wanted(
    spark: Spark, batch_id: int, caplog: pytest.LogCaptureFixture
) -> None:
    spark.stream([["a"]], IN_QUERY)
    spark.stream([["b"]], replace(RERUN, batch_id=batch_id), onReplayMismatch="keep")
    spark.stream([["c"]], replace(RERUN, batch_id=6), onReplayMismatch="keep")
    assert spark.group.values("t") == [b"a", b"c"]
    assert (
        "already with other rows; what was committed stands, and these rows are not written"
        in caplog.text
    )


def test_rows_that_are_not_to_be_written_do_not_stay_staged(spark: Spark) -> None:
    """What was committed under the name of an earlier release is met only at the commit, when all
    is staged."""
    spark.committed_before("spark/query-1", 6)
    spark.stream([["a"], ["b"]], IN_QUERY, onReplayMismatch="keep")
    assert spark.group.values("t") == []
    assert spark.group.stages == {}


def test_a_txn_id_names_one_write_to_each_topic(
    spark: Spark, caplog: pytest.LogCaptureFixture
) -> None:
    spark.save([["a"]], txnId="2026-11-23")
    spark.save([["a"]], txnId="2026-11-23", topic="other")
    assert spark.group.values("other") == [b"a"]
    assert caplog.text == ""
    spark.save([["a"]], txnId="2026-11-23")
    assert "option 'txnId' '2026-11-23': this write was committed already" in caplog.text
    assert "1 rows, and nothing is written now" in caplog.text
    with pytest.raises(
        ReplayMismatch, match=r"'txnId' '2026-11-23' names one write to a topic.*a name of its own"
    ):
        spark.save([["b"]], txnId="2026-11-23")
    assert spark.group.values("t") == [b"a"]


@pytest.mark.parametrize("kind", ["stream", "save"])
def test_batch_committed_by_earlier_release_is_recognised_once(
    spark: Spark, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """That release named a stream, and a batch write with a txnId, without the topic, and kept no
    digest."""
    task, name, more = {
        "stream": (IN_QUERY, "spark/query-1", {}),
        "save": (OUTSIDE, "txn/load", {"txnId": "load"}),
    }[kind]
    write: Callable[..., None] = getattr(spark, kind)
    spark.committed_before(name, task.batch_id)
    write([["a"]], task, **more)
    assert spark.group.values("t") == []
    assert "by an earlier release, which has left no digest of its rows" in caplog.text


def test_a_stream_goes_on_behind_what_an_earlier_release_committed(spark: Spark) -> None:
    spark.committed_before("spark/query-1", 5)
    spark.stream([["b"]], replace(IN_QUERY, batch_id=6))
    assert spark.group.values("t") == [b"b"]


def test_a_column_that_a_write_ignores_is_no_part_of_its_rows(spark: Spark) -> None:
    """A frame that was read has offsets; they are the log's own, and may differ when it is read
    again."""
    schema = columns("value string, offset int")
    for offset in (1, 2):
        writer = LogStreamWriter(spark.options(), schema, overwrite=False)
        spark.task = IN_QUERY
        rows = pa.record_batch({"value": ["a"], "offset": pa.array([offset], pa.int32())})
        writer.commit([hop(hop(writer).write(iter([rows])))], 5)
    assert spark.group.values("t") == [b"a"]


def test_a_commit_of_a_micro_batch_is_a_span(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, dict[str, Any]]] = []

    def span(name: str, **attributes: Any) -> Any:
        told.append((name, attributes))
        return nullcontext()

    writer, messages = spark.begun([["a"]], IN_QUERY, LogStreamWriter)
    monkeypatch.setattr("dledger.streaming.writer.span", span)
    writer.commit(messages, 5)
    assert told == [("commit micro-batch", {"topic": writer.sink.topic, "batch": 5})]


def test_a_commit_that_is_asked_twice_is_done_once(spark: Spark) -> None:
    """The driver died between the commit in the log and the one in the checkpoint."""
    writer, messages = spark.begun([["a"]], IN_QUERY, LogStreamWriter)
    writer.commit(messages, 5)
    writer.commit(messages, 5)
    assert spark.group.values("t") == [b"a"]


def test_an_abort_after_the_commit_undoes_nothing(spark: Spark) -> None:
    """Spark calls abort() when commit() raised, though the log may have committed."""
    writer, messages = spark.begun([["a"]], IN_QUERY, LogStreamWriter)
    writer.commit(messages, 5)
    writer.abort(messages, 5)
    spark.stream([["a"]], RERUN)
    assert spark.group.values("t") == [b"a"]


def test_an_abort_drops_its_own_stages_and_nobody_elses(spark: Spark) -> None:
    """A former driver's late abort must not take the stages of the run that goes on."""
    old, late = spark.begun([["a"]], IN_QUERY, LogStreamWriter)
    new, messages = spark.begun([["a"]], RERUN, LogStreamWriter)
    old.abort([None, *late], 5)
    old.abort([None], 5)
    new.commit(messages, 5)
    assert spark.group.values("t") == [b"a"]


def test_an_abort_drops_the_stages_of_all_tasks(spark: Spark) -> None:
    """An open stage keeps old files of the log until it times out."""
    writer, messages = spark.begun([["a"], [], ["b"], ["c"]])
    assert len(spark.group.stages) == 3
    writer.abort(messages)
    assert spark.group.stages == {}


def test_a_stage_that_was_dropped_is_no_commit_without_it(spark: Spark) -> None:
    writer, messages = spark.begun([["a"], ["b"]])
    writer.abort(messages[:1])
    with pytest.raises(TransactionError):
        writer.commit(messages)
    assert spark.group.values("t") == []


def test_a_task_of_a_committed_batch_sends_no_records(spark: Spark) -> None:
    spark.stream([["a"]], IN_QUERY)
    spark.group.append_fault = [Unavailable("must not be asked")]
    spark.stream([["a"]], RERUN)
    assert spark.group.append_fault


def test_two_topics_of_one_foreach_batch_are_both_written(spark: Spark) -> None:
    for task in (IN_QUERY, RERUN):
        spark.save([["a"]], task, topic="t")
        spark.save([["b"]], task, topic="u")
    assert (spark.group.values("t"), spark.group.values("u")) == ([b"a"], [b"b"])


def test_second_write_of_batch_to_topic_is_refused_until_it_has_a_txn_id(
    spark: Spark,
) -> None:
    """Without the refusal the second write would find its transaction committed and drop its
    records in silence. It is refused also after a crash, which the first one preceded."""
    for task in (IN_QUERY, RERUN):
        spark.save([["a"]], task)
        with pytest.raises(ConfigError, match="txnId"):
            spark.save([["b"]], task)
    spark.save([["b"]], RERUN, txnId="second")
    assert spark.group.values("t") == [b"a", b"b"]


def test_write_left_running_by_batch_is_refused_after_query_moved_on(
    spark: Spark,
) -> None:
    """A thread inherits the batch it was started in; its write would pass for a repeat of that
    batch."""
    for batch_id in (5, 6, 7):
        spark.save([["a"]], replace(IN_QUERY, batch_id=batch_id))
    with pytest.raises(ConfigError, match="belongs to batch 5 of its query, which is at batch 7"):
        spark.save([["late"]], IN_QUERY)


def test_a_job_group_of_the_users_own_needs_named_writes(spark: Spark) -> None:
    """It replaces the run's id. A fixed one would make every repeat look like a second write."""
    grouped = replace(IN_QUERY, run_id="nightly")
    with pytest.raises(ConfigError, match="txnId"):
        spark.save([["a"]], grouped)
    for _ in range(2):
        spark.save([["a"]], grouped, txnId="orders")
    assert spark.group.values("t") == [b"a"]


def test_a_write_that_failed_may_be_tried_again_within_its_batch(spark: Spark) -> None:
    writer, messages = spark.begun([["a"]], IN_QUERY)
    writer.abort(messages)
    spark.save([["a"]], IN_QUERY)
    assert spark.group.values("t") == [b"a"]


def test_two_writes_at_once_to_one_topic_are_told_apart(spark: Spark) -> None:
    first, of_first = spark.begun([["a"]], IN_QUERY)
    second, of_second = spark.begun([["b"]], IN_QUERY)
    first.commit(of_first)
    with pytest.raises(ConfigError, match="txnId"):
        second.commit(of_second)
    assert spark.group.values("t") == [b"a"]


def test_the_same_topic_in_two_groups_is_two_writes(
    spark: Spark, make_group: Callable[[], Any]
) -> None:
    other = make_group()
    spark.save([["a"]], IN_QUERY)
    spark.save([["a"]], IN_QUERY, **{"dledger.bootstrap.servers": other.address})
    assert (spark.group.values("t"), other.values("t")) == ([b"a"], [b"a"])


def test_a_stream_with_a_topic_column_commits_all_topics_at_once(spark: Spark) -> None:
    writer = LogStreamWriter(spark.options(topic=""), BY_TOPIC, overwrite=False)
    spark.task = IN_QUERY
    rows = pa.record_batch({"value": ["1", "2", "3"], "topic": ["a", "b", "a"]})
    message = hop(writer).write(iter([rows]))
    assert (spark.group.values("a"), spark.group.values("b")) == ([], [])
    writer.commit([message], 5)
    assert (spark.group.values("a"), spark.group.values("b")) == ([b"1", b"3"], [b"2"])


def test_missing_topic_is_driver_error_when_creation_is_off(
    spark: Spark,
) -> None:
    spark.group.create_topic("orders")
    with pytest.raises(TopicNotFound, match=r"'t' does not exist.*orders"):
        spark.writer(createTopic="false")


def test_a_topic_is_created_with_the_partitions_of_the_option(spark: Spark) -> None:
    spark.save([["a"]], **{"createTopic.partitions": "3"})
    assert spark.group.topic("t").partitions == 3


def test_a_topic_is_created_with_its_description(spark: Spark) -> None:
    spark.save([["a"]], **{"createTopic.description": "orders of the shop"})
    assert spark.group.topic("t").settings == {"description": "orders of the shop"}


def test_partitions_that_a_topic_does_not_have_are_refused_on_the_driver(spark: Spark) -> None:
    spark.group.create_topic("t", 3)
    spark.save([["a"]], **{"createTopic.partitions": "3"})
    with pytest.raises(
        ConfigError, match=r"'createTopic.partitions' is 5, but topic 't' exists with 3"
    ):
        spark.writer(**{"createTopic.partitions": "5"})


def test_partitions_of_a_topic_column_are_checked_in_the_task(spark: Spark) -> None:
    spark.group.create_topic("a", 3)
    options = spark.options(topic="", **{"createTopic.partitions": "5"})
    writer = BatchWriter(options, BY_TOPIC, overwrite=False)
    with pytest.raises(
        ConfigError, match=r"'createTopic.partitions' is 5, but topic 'a' exists with 3"
    ):
        writer.write(iter([pa.record_batch({"value": ["1"], "topic": ["a"]})]))
    assert spark.group.stages == {}


@pytest.mark.parametrize(
    ("kind", "make", "batch_id"), [("stream", LogStreamWriter, [5]), ("save", BatchWriter, [])]
)
def test_at_least_once_is_seen_before_the_commit_and_again_after_a_repeat(
    spark: Spark, kind: str, make: Callable[..., Any], batch_id: list[int]
) -> None:
    way = {"deliveryGuarantee": "at-least-once"}
    writer, messages = spark.begun([["a", "b"], []], IN_QUERY, make, **way)
    assert spark.group.values("t") == [b"a", b"b"]
    assert spark.group.stages == {}
    hop(writer).commit(messages, *batch_id)
    hop(writer).abort([*messages, None], *batch_id)
    getattr(spark, kind)([["a"]], RERUN, **way)
    assert spark.group.values("t") == [b"a", b"b", b"a"]


def test_at_least_once_in_foreach_batch_needs_no_names(spark: Spark) -> None:
    """Nothing is deduplicated, so nothing can be mistaken for a repeat."""
    for value in ("a", "b"):
        spark.save([[value]], IN_QUERY, deliveryGuarantee="at-least-once")
    assert spark.group.values("t") == [b"a", b"b"]


def test_an_append_that_fails_fails_the_task_and_ends_its_producers(spark: Spark) -> None:
    spark.group.create_topic("t")
    spark.group.append_fault = [Unavailable("no leader")]
    with pytest.raises(Unavailable, match="no leader"):
        spark.tasks(spark.writer(deliveryGuarantee="at-least-once"), [["a"]], OUTSIDE)
    assert spark.group.closed >= 1
    spark.save([["a"]], deliveryGuarantee="at-least-once")
    assert spark.group.values("t") == [b"a"]


@pytest.mark.parametrize(
    ("given", "frame", "message"),
    [
        ({"partitioner": "explicit"}, FRAME, "no column 'partition'"),
        ({"partitioner": "roundRobin"}, WITH_PARTITION, "'partition' says where rows go"),
        (
            {"startingOffsets": "earliest"},
            FRAME,
            "'startingOffsets' is for a batch read or a stream read and says nothing",
        ),
    ],
)
def test_options_that_do_not_fit_the_frame_or_the_write_are_refused(
    spark: Spark, given: dict[str, str], frame: StructType, message: str
) -> None:
    for make in (BatchWriter, LogStreamWriter):
        with pytest.raises(ConfigError, match=message):
            make(spark.options(**given), frame, overwrite=False)


@pytest.mark.parametrize(
    ("make", "overwrite", "given", "message"),
    [
        (BatchWriter, True, {}, "mode overwrite would replace.*append"),
        (LogStreamWriter, True, {}, "output mode complete would replace.*append"),
        (LogStreamWriter, False, {"txnId": "x"}, "txnId"),
    ],
)
def test_a_mode_that_a_log_does_not_have_is_refused_with_the_way_out(
    spark: Spark, make: Callable[..., Any], overwrite: bool, given: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make(spark.options(**given), FRAME, overwrite=overwrite)
