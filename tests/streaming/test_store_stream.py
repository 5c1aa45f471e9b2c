"""Streams over the files of a store that a broker is writing, without a JVM."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from dledger.datasource.stores.store_schema import store_schema
from dledger.errors import ConfigError, CorruptEntry, OffsetOutOfRange
from dledger.rocketmq.format.message import encode_message
from dledger.streaming.stores import StoreStreamReader
from pyspark_dledger import DefaultSource
from tests.streaming.stream_engine import Crash, Engine


class Query(Engine):
    """A streaming query over a store."""

    def __init__(self, root: Path, **options: str) -> None:
        given = {"path": str(root), "layout": "rocketmq", "fetch.maxWaitMs": "0"}
        given |= {"startingOffsets": "earliest", **options}
        super().__init__(StoreStreamReader, given, store_schema(given))

    def values(self, column: str = "body") -> list[Any]:
        return super().values(column)


def bodies(messages: Any) -> list[bytes]:
    return [message.body for message in messages]


@pytest.fixture
def log(tmp_path: Path, stores: Any) -> Any:
    """The commit log of a broker."""
    return stores.Log(tmp_path / "commitlog", 4096)


@pytest.fixture
def entries(tmp_path: Path, stores: Any) -> Any:
    """The log of a broker in DLedger mode."""
    return stores.Log(tmp_path / "dledger-n0" / "data", 4096, entries=True)


@pytest.fixture(params=["log", "entries"])
def either(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_messages_of_a_broker_are_shown_once_in_order_across_files(
    tmp_path: Path, stores: Any, either: Any
) -> None:
    messages = stores.some(120)
    either.append(messages[:1])
    query = Query(tmp_path)
    for n in range(1, 120):
        if n % 7 == 0:
            assert query.drain() == bodies(messages[:n])
        either.append(messages[n : n + 1])
    assert query.drain() == bodies(messages)
    assert query.trigger() is False
    assert either.end > 4 * 4096


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 9)),
        st.tuples(st.just("trigger"), st.booleans()),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("upgrade"), st.just(0)),
    ),
    max_size=25,
)


@given(
    steps=steps,
    most=st.sampled_from(["none", "1", "700", "5000"]),
    tasks=st.sampled_from(["1", "3"]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
def test_message_is_shown_once_despite_crashes_and_a_broker_upgrade(
    tmp_path_factory: pytest.TempPathFactory,
    stores: Any,
    steps: list[tuple[str, int]],
    most: str,
    tasks: str,
) -> None:
    root = tmp_path_factory.mktemp("store")
    log = stores.Log(root / "commitlog", 2048)
    messages = stores.some(250)
    wrote = 2
    log.append(messages[:2])
    query = Query(root, maxBytesPerTrigger=most, minPartitions=tasks)
    for what, how in steps:
        if what == "append":
            log.append(messages[wrote : wrote + how])
            wrote += how
        elif what == "trigger":
            with suppress(Crash):
                query.trigger(crash_at="after the plan is kept" if how else "")
        elif what == "restart":
            query.crash()
        elif not log.entries:
            log.close()
            log = stores.Log(root / "dledger-n0" / "data", 2048, log.end, entries=True)
            log.append(messages[wrote : wrote + 1])
            wrote += 1
    assert query.drain() == bodies(messages[:wrote])


def test_half_a_message_is_never_shown(tmp_path: Path, stores: Any, either: Any) -> None:
    """At each byte of its writing, whichever part comes first; in DLedger mode the checkpoint comes
    after it."""
    messages = stores.some(12)
    either.append(messages[:10])
    path, end = either.path(0), either.end
    before = path.read_bytes()
    if either.entries:
        either.commit(9)
    either.append(messages[10:11])
    after = path.read_bytes()
    for written in (*range(end, either.end - 20, 5), *range(either.end - 20, either.end)):
        for torn in (after[:written] + before[written:], before[:written] + after[written:]):
            if torn == after:
                continue
            path.write_bytes(torn)
            if either.entries:
                either.commit(9)
            query = Query(tmp_path, startingOffsets=str(end - 300))
            assert query.drain()[-1] == messages[9].body, written
            path.write_bytes(after)
            if either.entries:
                either.commit(10)
            assert query.drain()[-1] == messages[10].body


def test_in_dledger_mode_only_what_is_committed_is_shown(
    tmp_path: Path, stores: Any, entries: Any
) -> None:
    messages = stores.some(30)
    places = entries.append(messages[:20], term=1)
    entries.commit(-1)
    query = Query(tmp_path)
    assert query.drain() == []
    entries.commit(9)
    assert query.drain() == bodies(messages[:10])
    entries.end, entries.index, entries.units = places[15] - 48, 15, entries.units[:15]
    entries.append(messages[20:21], term=2)
    entries.commit(15)
    assert query.drain() == bodies(messages[:15] + messages[20:21])


def test_a_checkpoint_that_is_just_being_replaced_takes_nothing_back(
    tmp_path: Path, stores: Any, entries: Any
) -> None:
    """DLedger copies the checkpoint to checkpoint.bak, removes it, and then gives the next one its
    name."""
    messages = stores.some(30)
    entries.append(messages[:20])
    checkpoint = entries.folder.parent / "checkpoint"
    entries.commit(4)
    checkpoint.rename(checkpoint.with_suffix(".bak"))
    assert Query(tmp_path).drain() == bodies(messages[:5])
    query = Query(tmp_path)
    entries.commit(9)
    assert query.drain() == bodies(messages[:10])
    checkpoint.unlink()
    assert query.drain() == bodies(messages[:10])
    entries.commit(14)
    assert query.drain() == bodies(messages[:15])


def test_before_the_first_checkpoint_of_a_broker_nothing_is_shown(
    tmp_path: Path, stores: Any, entries: Any
) -> None:
    messages = stores.some(20)
    entries.append(messages)
    entries.commit(9)
    (entries.folder.parent / "checkpoint").unlink()
    query = Query(tmp_path)
    assert query.drain() == []
    entries.commit(9)
    assert query.drain() == bodies(messages[:10])


def test_first_checkpoint_of_a_node_below_the_shown_entries_is_no_error(
    tmp_path: Path, stores: Any
) -> None:
    """Of a node by itself nobody knows whether it is one of DLedger 0.4.0, which never writes a
    checkpoint."""
    log = stores.Log(tmp_path / "data", 4096, entries=True)
    for n in range(20):
        log.body(b"%d" % n, 1)
    query = Query(tmp_path, layout="dledger")
    query.drain()
    assert query.values("entryIndex") == list(range(20))
    log.commit(9)
    log.body(b"20", 1)
    query.drain()
    assert query.values("entryIndex") == list(range(20))
    log.commit(20)
    query.drain()
    assert query.values("entryIndex") == list(range(21))
    log.end = log.index = 0
    log.units = []
    log.write(0, bytes(4096))
    log.body(b"of another log", 1)
    log.commit(0)
    with pytest.raises(
        OffsetOutOfRange, match="this is another store, or a broker has given up what was read"
    ):
        query.trigger()


@pytest.mark.parametrize("back", [60, 1 << 16])
def test_entries_given_up_by_a_follower_without_checkpoint_stay_hidden(
    tmp_path: Path, stores: Any, monkeypatch: pytest.MonkeyPatch, back: int
) -> None:
    """DLedger 0.4.0 writes none."""
    monkeypatch.setattr("dledger.rocketmq.files.tail.LEAST_BACK", back)
    log = stores.Log(tmp_path / "data", 4096, entries=True)
    log.body(bytes([7]) * 3000, 1)
    for n in range(1, 20):
        log.body(b"%03d" % n, 1)
    query = Query(tmp_path, layout="dledger")
    log.end, log.index = log.end - 5 * 51, 15
    log.body(b"new", 2)
    query.drain()
    assert query.values("entryIndex") == list(range(16))
    log.body(b"two", 2)
    query.drain()
    assert query.values() == [b"\7" * 3000, *(b"%03d" % n for n in range(1, 15)), b"new", b"two"]


def test_a_stream_from_latest_keeps_its_first_batch_through_a_crash(
    tmp_path: Path, stores: Any, log: Any
) -> None:
    """Spark asks for the first offset again after a crash and keeps no answer; by then "latest" is
    behind the batch."""
    messages = stores.some(20)
    log.append(messages[:10])
    query = Query(tmp_path, startingOffsets="latest")
    query.start().initialOffset()
    log.append(messages[10:15])
    query.dies("after the plan is kept")
    log.append(messages[15:])
    assert query.drain() == bodies(messages[10:])


def test_available_now_reads_up_to_where_the_store_ended_and_no_further(
    tmp_path: Path, stores: Any
) -> None:
    plain, ledger = stores.upgraded(tmp_path)
    query = Query(tmp_path, maxBytesPerTrigger="2000")
    query.start(available_now=True)
    ledger.append(stores.some(5, first=900))
    assert query.drain() == bodies(stores.some(100))
    assert len(query.sink) > 5
    assert plain.end < ledger.end


def test_batch_ends_with_the_message_that_reaches_its_byte_limit(
    tmp_path: Path, stores: Any, either: Any
) -> None:
    either.append(stores.some(60))
    query = Query(tmp_path)
    size = either.end // 60
    query.trigger(ReadMaxBytes(1000))
    first = query.values("storedSize")
    assert 1000 <= sum(first) + 48 * either.entries * len(first) < 1000 + size + 60
    query.trigger(ReadMaxBytes(1))
    assert len(query.sink[1]) == 1
    query.trigger(ReadAllAvailable())
    assert query.values() == bodies(stores.some(60))
    with pytest.raises(ConfigError, match="cannot limit a batch by ReadMaxRows"):
        query.start().latestOffset(json.loads(query.begin()), ReadMaxRows(5))


def test_files_deleted_before_they_were_read_are_an_error_or_left_out(
    tmp_path: Path, stores: Any, log: Any
) -> None:
    log.append(stores.some(10))
    query, lenient = Query(tmp_path), Query(tmp_path, failOnDataLoss="false")
    query.drain()
    lenient.drain()
    log.append(stores.some(100, first=10))
    for n in (0, 4096):
        log.path(n).unlink()
    with pytest.raises(
        OffsetOutOfRange, match=r"were deleted before they were read: bytes .* to 8192 of commitlog"
    ):
        query.trigger()
    kept = lenient.drain()
    assert kept[:10] == bodies(stores.some(10))
    assert kept[10:] == bodies(stores.some(110))[-(len(kept) - 10) :]
    assert 30 < len(kept) < 90


def test_an_old_commit_log_that_was_read_may_go(tmp_path: Path, stores: Any) -> None:
    plain, ledger = stores.upgraded(tmp_path)
    query = Query(tmp_path)
    query.drain()
    behind = Query(tmp_path, maxBytesPerTrigger="1000")
    behind.trigger()
    for path in plain.folder.iterdir():
        path.unlink()
    plain.folder.rmdir()
    ledger.append(stores.some(3, first=100))
    assert query.drain() == bodies(stores.some(103))
    with pytest.raises(
        OffsetOutOfRange, match="were deleted before they were read: commitlog from"
    ):
        behind.trigger()


def test_an_old_commit_log_that_was_read_and_is_back_is_not_read_again(
    tmp_path: Path, stores: Any
) -> None:
    """A folder that is mounted again, or was moved for a while."""
    plain, ledger = stores.upgraded(tmp_path)
    query = Query(tmp_path)
    query.drain()
    away = plain.folder.rename(tmp_path / "away")
    ledger.append(stores.some(3, first=100))
    query.drain()
    away.rename(plain.folder)
    ledger.append(stores.some(3, first=103))
    assert query.drain() == bodies(stores.some(106))


def test_a_store_that_is_shorter_than_what_was_read_is_another_one(
    tmp_path: Path, stores: Any, log: Any
) -> None:
    log.append(stores.some(30))
    query = Query(tmp_path)
    query.drain()
    for path in log.folder.iterdir():
        path.unlink()
    log.end = 0
    log.append(stores.some(3))
    with pytest.raises(
        OffsetOutOfRange, match=r"has read commitlog of .* up to .*this is another store"
    ):
        query.trigger()


@pytest.mark.parametrize("fails", [True, False])
def test_damage_in_what_a_broker_has_passed_is_an_error_or_left_out(
    tmp_path: Path, stores: Any, log: Any, fails: bool
) -> None:
    messages = stores.some(12)
    places = log.append(messages)
    log.write(places[5] + 100, b"!")
    query = Query(tmp_path, onDamage="fail" if fails else "skip")
    if fails:
        with pytest.raises(
            CorruptEntry, match=f"bytes {places[5]} to {places[6]} of the log are damaged"
        ):
            query.drain()
    else:
        assert query.drain() == bodies(messages[:5] + messages[6:])


def test_damage_that_begins_where_a_batch_ended_is_told_of_by_the_next_one(
    tmp_path: Path, stores: Any, log: Any
) -> None:
    log.append(stores.some(5))
    query = Query(tmp_path)
    query.drain()
    log.write(log.end, b"?" * 100)
    assert query.trigger() is False
    begin = log.end
    log.end += 100
    log.append(stores.some(5, first=5))
    with pytest.raises(CorruptEntry, match=f"bytes {begin} to {begin + 100} of"):
        query.drain()


def test_a_torn_end_that_a_broker_wrote_over_is_read_as_what_is_there_now(
    tmp_path: Path, stores: Any, log: Any
) -> None:
    messages = stores.some(12)
    log.append(messages[:5])
    log.write(log.end, encode_message(messages[5].moved(log.end))[:150])
    query = Query(tmp_path)
    assert query.drain() == bodies(messages[:5])
    log.append(messages[6:])
    assert query.drain() == bodies(messages[:5] + messages[6:])


def test_topics_and_columns_are_chosen_as_in_a_batch(tmp_path: Path, stores: Any) -> None:
    stores.upgraded(tmp_path)
    query = Query(tmp_path, subscribe="payments", startingTimestamp=str(stores.FIRST + 50_000))
    assert query.drain() == bodies(m for m in stores.some(100)[50:] if m.topic == "payments")


def test_an_idle_query_waits_and_looks_again(tmp_path: Path, stores: Any, log: Any) -> None:
    log.append(stores.some(5))
    query = Query(tmp_path, **{"fetch.maxWaitMs": "1000"})
    query.drain()
    before, waited = query.now, query.wait

    def wait(seconds: float) -> None:
        waited(seconds)
        if query.now > before + 0.4:
            log.append(stores.some(1, first=5))

    query.reader = StoreStreamReader(query.given, query.schema, clock=lambda: query.now, sleep=wait)
    assert query.trigger()
    assert 0.4 < query.now - before < 0.5
    assert query.start().reportLatestOffset() is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxOffsetsPerTrigger": "5"}, "give 'maxBytesPerTrigger'"),
        ({"metadata": "damage"}, "is for a batch read and says nothing to a stream read"),
        ({"endingOffsets": "5"}, "is for a batch read"),
        ({"minOffsetsPerTrigger": "5"}, "says nothing to a read of files"),
    ],
)
def test_options_that_say_nothing_to_a_stream_of_files_are_refused(
    tmp_path: Path, stores: Any, options: dict[str, str], message: str
) -> None:
    stores.upgraded(tmp_path)
    with pytest.raises(ConfigError, match=message):
        Query(tmp_path, **options).trigger()


def test_offsets_of_something_else_are_refused(tmp_path: Path, stores: Any) -> None:
    stores.upgraded(tmp_path)
    reader = Query(tmp_path).start()
    for offset in (
        {"v": 1, "logs": {}},
        {"v": 9, "store": {}},
        {"v": 1, "store": {"commitlog": "x"}},
    ):
        with pytest.raises(ConfigError, match="checkpoint"):
            reader.latestOffset(offset, ReadAllAvailable())
    with pytest.raises(ConfigError, match="does not say where the log 'dledger' starts"):
        reader.partitions(
            {"v": 1, "store": {"commitlog": 5}}, {"v": 1, "store": {"commitlog": 5, "dledger": 7}}
        )


def test_the_format_finds_the_stream_by_the_layout(tmp_path: Path, stores: Any) -> None:
    stores.upgraded(tmp_path)
    source = DefaultSource({"path": str(tmp_path), "layout": "rocketmq"})
    assert isinstance(source.streamReader(schema=source.schema()), StoreStreamReader)
