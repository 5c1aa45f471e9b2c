"""Topics that are deleted, or made again, while a micro-batch is planned and read."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from dledger.datasource.read.reader import LogReader
from dledger.datasource.table.schema import read_schema
from dledger.errors import TopicNotFound, TopicRecreated
from dledger.streaming.reader import LogStreamReader
from tests.datasource.hops import hop
from tests.streaming.stream_engine import Query, add_topic, numbers

PATTERN = {"subscribePattern": "[t-v]", "startingOffsets": "earliest"}
GO_ON = {"failOnDataLoss": "false", "onTopicRecreate": "restart"}


def delete(log: Any) -> None:
    log.delete_topic("u")


def recreate(log: Any) -> None:
    add_topic(log, "u", 20)


@pytest.fixture
def two(log: Any) -> Any:
    """Topics t with 0, 1, 2 and u with 10."""
    add_topic(log, "u", 10)
    return log


def reader_of(log: Any, **options: str) -> LogStreamReader:
    given = {"dledger.bootstrap.servers": log.address, **options}
    return LogStreamReader(given, read_schema(False), clock=lambda: 0.0, sleep=lambda _: None)


def planned(reader: LogStreamReader) -> tuple[dict[str, Any], dict[str, Any]]:
    """Where the first batch starts and ends."""
    start = reader.initialOffset()
    return start, reader.latestOffset(start, ReadAllAvailable())


def values_of(reader: Any, slices: Any) -> list[bytes]:
    """What tasks read, each in a process of its own."""
    batches = (batch for one in slices for batch in reader.read(hop(one)))
    return sorted(row["value"] for batch in batches for row in batch.to_pylist())


ALONE = [(delete, {"failOnDataLoss": "false"}), (recreate, {"onTopicRecreate": "restart"})]


@pytest.mark.parametrize(("happens", "options"), ALONE)
def test_topic_gone_between_the_batch_end_and_the_tasks_is_left_out(
    two: Any, caplog: pytest.LogCaptureFixture, happens: Any, options: dict[str, str]
) -> None:
    reader = reader_of(two, **PATTERN, **options)
    start, end = planned(reader)
    happens(two)
    assert values_of(reader, reader.partitions(start, end)) == numbers(0, 1, 2)
    assert caplog.text.count("topic 'u' was deleted") == 1
    assert "records 0 to 0 of partition 0" in caplog.text


@pytest.mark.parametrize("question", ["offsets", "stored_bytes"])
@pytest.mark.parametrize(("happens", "options"), ALONE)
def test_a_topic_that_goes_while_tasks_are_planned_is_left_out(
    two: Any, happens: Any, options: dict[str, str], question: str
) -> None:
    reader = reader_of(two, **PATTERN, **options)
    start, end = planned(reader)
    two.before(question, lambda: happens(two))
    slices: Any = reader.partitions(start, end)
    assert [one.info.name for one in slices] == ["t"] if question == "offsets" else ["t", "u"]
    assert values_of(reader, slices) == numbers(0, 1, 2)


@pytest.mark.parametrize(("happens", "options"), ALONE)
def test_the_task_of_a_topic_that_went_after_it_was_planned_reads_nothing(
    two: Any, caplog: pytest.LogCaptureFixture, happens: Any, options: dict[str, str]
) -> None:
    reader = reader_of(two, **PATTERN, **options)
    slices = reader.partitions(*planned(reader))
    happens(two)
    assert values_of(reader, slices) == numbers(0, 1, 2)
    assert "records 0 to 0 of partition 0" in caplog.text


@pytest.mark.parametrize("where", ["planning", "task"])
@pytest.mark.parametrize(
    ("happens", "options", "error", "way"),
    [
        (
            delete,
            {"onTopicRecreate": "restart"},
            TopicNotFound,
            "'u' was deleted.*'failOnDataLoss' to false",
        ),
        (
            recreate,
            {"failOnDataLoss": "false"},
            TopicRecreated,
            "'u' was deleted and created.*'onTopicRecreate' to",
        ),
    ],
)
def test_topic_gone_without_opt_in_is_an_error_that_names_the_records(
    two: Any, happens: Any, options: dict[str, str], error: type[Exception], way: str, where: str
) -> None:
    reader = reader_of(two, **PATTERN, **options)
    start, end = planned(reader)
    slices = reader.partitions(start, end)
    happens(two)
    with pytest.raises(error, match=way) as raised:
        values_of(reader, reader.partitions(start, end) if where == "planning" else slices)
    assert "records 0 to 0 of partition 0" in str(raised.value)


@pytest.mark.parametrize("question", ["offsets", "stored_bytes"])
@pytest.mark.parametrize(
    ("happens", "rows"), [(delete, numbers(0, 1, 2)), (recreate, numbers(0, 1, 2, 20))]
)
@pytest.mark.parametrize("now", [False, True])
def test_topic_gone_while_the_batch_end_is_determined_is_left_out(
    two: Any,
    happens: Any,
    rows: list[bytes],
    question: str,
    now: bool,
) -> None:
    query = Query(two, **PATTERN, **GO_ON, maxBytesPerTrigger="1g")
    query.start(available_now=now)
    query.begin()
    two.before(question, lambda: happens(two))
    query.drain()
    query.crash()  # what was made again while tasks were planned is for the next run
    assert sorted(query.drain()) == sorted(rows)


@pytest.mark.parametrize("happens", [delete, recreate])
def test_topic_gone_while_the_first_offset_is_determined_is_not_read(
    two: Any, happens: Any
) -> None:
    query = Query(two, **PATTERN)
    two.before("offsets", lambda: happens(two))
    assert set(query.drain()) >= set(numbers(0, 1, 2))
    assert numbers(10)[0] not in query.values()


@pytest.mark.parametrize("happens", [delete, recreate])
def test_a_batch_read_is_planned_anew_when_a_topic_goes_meanwhile(two: Any, happens: Any) -> None:
    given = {"dledger.bootstrap.servers": two.address, "subscribePattern": "[t-v]"}
    reader = LogReader(given, read_schema(False))
    two.before("offsets", lambda: happens(two))
    rows = values_of(reader, reader.partitions())
    assert rows == numbers(0, 1, 2) if happens is delete else sorted(numbers(0, 1, 2, 20))


@pytest.mark.parametrize(("fail", "error"), [("true", TopicNotFound), ("false", None)])
def test_the_task_of_a_batch_read_whose_topic_is_deleted(two: Any, fail: str, error: Any) -> None:
    given = {"dledger.bootstrap.servers": two.address, "subscribe": "t,u", "failOnDataLoss": fail}
    reader = LogReader(given, read_schema(False))
    slices = reader.partitions()
    delete(two)
    if error is None:
        assert values_of(reader, slices) == numbers(0, 1, 2)
        return
    with pytest.raises(error, match="'u' was deleted: records 0 to 0 of partition 0"):
        values_of(reader, slices)


def test_topic_recreated_during_planning_is_left_for_the_next_batch(
    two: Any,
) -> None:
    """The query subscribes to the topic by its name."""
    reader = reader_of(two, subscribe="t,u", startingOffsets="earliest", onTopicRecreate="restart")
    start, end = planned(reader)
    recreate(two)
    assert values_of(reader, reader.partitions(start, end)) == numbers(0, 1, 2)
    later = reader.latestOffset(end, ReadAllAvailable())
    assert values_of(reader, reader.partitions(end, later)) == numbers(20)


def test_a_run_that_ends_where_the_log_ended_does_so_though_a_topic_goes(
    two: Any,
) -> None:
    query = Query(two, **PATTERN, **GO_ON, maxBytesPerTrigger="1g")
    query.start(available_now=True)
    two.append("t", 0, numbers(3))
    two.before("offsets", lambda: delete(two), at=2)  # the first one is for the first offset
    assert query.drain() == numbers(0, 1, 2)
    query.crash()
    assert query.drain() == numbers(0, 1, 2, 3)
