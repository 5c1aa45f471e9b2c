"""Arrow in both directions: nothing lost, doubled or out of order, and the exact types that Spark
wants."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from dledger.datasource.read import rows as reading
from dledger.datasource.read.rows import lengths, table_rows
from dledger.datasource.table.schema import WriteColumns, read_schema
from dledger.datasource.write.records import Router
from dledger.errors import ConfigError
from dledger.protocol.messages.fetched import FetchedBatch
from dledger.records.body.records import encode_batch
from dledger.records.body.schema import RECORD_SCHEMA
from dledger.records.columns.partitioner import Division, whole
from dledger.records.frames.coalescing import Coalescer, cut
from dledger.records.frames.spreading import Spread
from tests.datasource.fake_log import fetched

HEADERS = RECORD_SCHEMA.field("headers").type
PLAIN, WHOLE = (
    to_arrow_schema(schema, timezone="UTC")
    for schema in (read_schema(False), read_schema(True, True))
)
TIME = RECORD_SCHEMA.field("timestamp").type


def stored(
    base: int, values: list[bytes], entry: int = -1, term: int = -1, **columns: pa.Array
) -> tuple[FetchedBatch, bytes]:
    data = {"value": pa.array(values, pa.binary()), **columns}
    header, payload = encode_batch(pa.record_batch(data), topic_id=1, partition=0, now_us=7)
    body = header + payload.to_pybytes()
    count, size = len(values), len(body)
    return FetchedBatch(base, count, size, crc=0, index=entry, term=term), body


def batches_of(*given: Any) -> list[pa.RecordBatch]:
    return [batch for batch, _ in table_rows(*given)]


@given(st.lists(st.just(1) | st.integers(1, 30), min_size=1, max_size=12), st.data())
def test_a_range_of_bodies_is_read_row_for_row(counts: list[int], data: st.DataObject) -> None:
    bodies = []
    base = 100
    for count in counts:
        values = [str(o).encode() for o in range(base, base + count)]
        bodies.append(stored(base, values, entry=7 * base, term=count))
        base += count
    start = data.draw(st.integers(100, base))
    end = data.draw(st.integers(start, base))
    covering = [
        (b, body) for b, body in bodies if b.base_offset + b.count > start and b.base_offset < end
    ]
    answers = [fetched(*covering)] if covering else []
    rows = [
        row for batch in batches_of(answers, "t", 3, start, end, WHOLE) for row in batch.to_pylist()
    ]
    assert [row["offset"] for row in rows] == list(range(start, end))
    assert [row["value"] for row in rows] == [str(o).encode() for o in range(start, end)]
    assert {(row["topic"], row["partition"], row["timestampType"], row["key"]) for row in rows} <= {
        ("t", 3, 0, None)
    }
    source = [(one.term, one.index) for one, _ in bodies for _ in range(one.count)]
    assert [(row["term"], row["entryIndex"]) for row in rows] == source[start - 100 : end - 100]
    assert [row["size"] for row in rows] == [len(row["value"]) for row in rows]
    alone = map(fetched, covering)
    plain = [
        row for batch in batches_of(alone, "t", 3, start, end, PLAIN) for row in batch.to_pylist()
    ]
    assert plain == [{name: row[name] for name in PLAIN.names} for row in rows]


def test_rows_that_are_cut_are_of_their_own_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of bodies of one record each, which are decoded together."""
    monkeypatch.setattr(reading, "MOST_ROWS", 2)
    bodies = [stored(offset, [b"v"], entry=7 * offset, term=offset) for offset in range(7)]
    found = pa.Table.from_batches(batches_of([fetched(*bodies)], "t", 0, 0, 7, WHOLE))
    places = [(row["offset"], row["term"], row["entryIndex"]) for row in found.to_pylist()]
    assert places == [(offset, offset, 7 * offset) for offset in range(7)]


def test_optional_columns_come_back_as_they_were_written() -> None:
    keys = pa.array([b"k", None], pa.binary())
    times = pa.array([1, 2], TIME)
    headers = pa.array([[{"key": "h", "value": b"v"}], None], HEADERS)
    body = stored(0, [b"a", b"b"], key=keys, timestamp=times, headers=headers)
    (batch,) = batches_of([fetched(body)], "t", 0, 0, 2, WHOLE)
    assert batch.column("key").to_pylist() == [b"k", None]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [1, 2]
    assert batch.column("headers").to_pylist() == [[{"key": "h", "value": b"v"}], None]
    assert batch.column("size").to_pylist() == [2, 1]
    assert batch.column("entryIndex").to_pylist() == [-1, -1]


@pytest.mark.parametrize(
    "names",
    [[name] for name in WHOLE.names]
    + [["value", "key"], ["offset", "headers", "topic"], ["entryIndex", "size"]],
)
def test_some_columns_are_those_of_all(names: list[str]) -> None:
    """In any order, and of bodies that are put together and cut."""
    headers = pa.array([[{"key": "h", "value": b"v"}], None], HEADERS)
    keys = pa.array([b"key", None], pa.binary())
    bodies = [
        stored(2 * at, [b"a" * at, b"b"], entry=at, key=keys, headers=headers) for at in range(3)
    ]
    schema = pa.schema([WHOLE.field(name) for name in names])
    (found,) = batches_of([fetched(*bodies)], "t", 3, 1, 6, schema)
    (whole,) = batches_of([fetched(*bodies)], "t", 3, 1, 6, WHOLE)
    assert found.schema == schema
    assert found.equals(whole.select(names))


def test_lengths_of_a_column_are_those_of_its_own_rows_and_none_for_null() -> None:
    column = pa.array([b"left out", b"abc", None, b"", b"defgh", b"left out"], pa.binary())
    assert lengths(column.slice(1, 4)).tolist() == [3, 0, 0, 5]
    assert lengths(pa.nulls(2, pa.binary())).tolist() == [0, 0]
    assert lengths(pa.array([], pa.binary())).tolist() == []


def test_small_bodies_are_put_together_and_large_ones_cut() -> None:
    small = [stored(i, [b"x" * 100]) for i in range(1000)]
    assert [b.num_rows for b in batches_of(map(fetched, small), "t", 0, 0, 1000, PLAIN)] == [1000]
    large = [stored(0, [b"x" * (1 << 18)] * 64)]
    batches = batches_of(map(fetched, large), "t", 0, 0, 64, PLAIN)
    assert [b.num_rows for b in batches] == [12, 13, 13, 13, 13]
    tiny = [stored(0, [b""] * 200_000), stored(200_000, [b""] * 30_000)]
    sizes_of_tiny = [b.num_rows for b in batches_of(map(fetched, tiny), "t", 0, 0, 230_000, PLAIN)]
    assert sizes_of_tiny == [50_000, 50_000, 50_000, 50_000, 30_000]


def test_offsets_go_on_behind_records_that_were_left_out() -> None:
    answers = [fetched(stored(0, [b"a", b"b"]), stored(5, [b"c"]), stored(6, [b"d"]))]
    found = [
        (batch.column("offset").to_pylist(), behind)
        for batch, behind in table_rows(answers, "t", 0, 0, 7, PLAIN)
    ]
    assert found == [([0, 1], 2), ([5, 6], 7)]


KINDS = {"value": pa.binary(), "key": pa.binary(), "topic": pa.string(), "partition": pa.int32()}


def frame(**columns: Any) -> tuple[pa.RecordBatch, WriteColumns]:
    """A frame of these columns, each an array or a list of the type that is usual for it."""
    arrays = {
        name: pa.array(values, KINDS[name]) if isinstance(values, list) else values
        for name, values in columns.items()
    }
    return pa.record_batch(arrays), WriteColumns(**{name: i for i, name in enumerate(columns)})


def router_of(columns: WriteColumns, partitions: int, topic: str = "t", **spread: Any) -> Router:
    return Router(columns, topic, spread=Spread(**spread), partitions_of=lambda _: partitions)


def routed(router: Router, batch: pa.RecordBatch) -> dict[tuple[str, int], list[bytes]]:
    parts: dict[tuple[str, int], list[bytes]] = {}
    for routed in router.route(batch):
        for partition, records in routed.division.of(routed.records):
            values = records.column("value").to_pylist()
            parts.setdefault((routed.topic, partition), []).extend(values)
    return parts


def test_rows_go_to_the_topic_and_partition_of_their_columns_in_order() -> None:
    values = pa.array(["1", "2", "3", "4", "5"], pa.string())
    batch, columns = frame(value=values, topic=["a", "b", "a", "b", "a"], partition=[1, 0, 0, 0, 1])
    assert routed(router_of(columns, 2, topic=""), batch) == {
        ("a", 1): [b"1", b"5"],
        ("a", 0): [b"3"],
        ("b", 0): [b"2", b"4"],
    }


def test_rows_with_a_key_go_by_it_and_rows_without_one_stay_together() -> None:
    batch, columns = frame(value=[b"1", b"2", b"3", b"4"], key=[b"21", None, b"21", None])
    by_key = (-973932308 & 0x7FFFFFFF) % 5
    parts = routed(router_of(columns, 5, first=by_key), batch)
    assert parts == {("t", by_key): [b"1", b"3"], ("t", (by_key + 1) % 5): [b"2", b"4"]}


def test_frames_without_keys_take_the_partitions_in_turn() -> None:
    batch, columns = frame(value=[b"1"])
    router = router_of(columns, 3)
    assert [[*routed(router, batch)] for _ in range(4)] == [
        [("t", partition)] for partition in (1, 2, 0, 1)
    ]


def test_a_partition_that_is_null_falls_back_to_the_key() -> None:
    batch, columns = frame(value=[b"1", b"2"], key=[b"21", b"21"], partition=[None, 1])
    assert routed(router_of(columns, 5), batch) == {("t", 0): [b"1"], ("t", 1): [b"2"]}


def test_round_robin_spreads_row_by_row_over_all_batches_whatever_the_key() -> None:
    router = router_of(WriteColumns(0, 1), 3, first=1, partitioner="roundRobin")
    found: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for first in range(0, 12, 4):
        values = [str(i).encode() for i in range(first, first + 4)]
        batch, _ = frame(value=values, key=[b"same"] * 4)
        for (_, partition), part in routed(router, batch).items():
            found[partition] += part
    assert found == {p: [str(i).encode() for i in range((p + 1) % 3, 12, 3)] for p in range(3)}


def test_explicit_partitions_must_all_be_there() -> None:
    batch, columns = frame(value=[b"1", b"2"], partition=[1, 0])
    router = router_of(columns, 2, partitioner="explicit")
    assert routed(router, batch) == {("t", 0): [b"2"], ("t", 1): [b"1"]}
    for partitions in ([1, None], [None]):
        batch, columns = frame(value=[b"1"] * len(partitions), partition=partitions)
        with pytest.raises(ConfigError, match=r"'partition' is null in some rows.*murmur2"):
            routed(router_of(columns, len(partitions), partitioner="explicit"), batch)


@pytest.mark.parametrize("wrong", [-1, 2])
def test_a_partition_that_the_topic_does_not_have_is_refused(wrong: int) -> None:
    batch, columns = frame(value=[b"1"], partition=[wrong])
    with pytest.raises(
        ConfigError, match=f"column 'partition' has {wrong}, but topic 't' has partitions 0 to 1"
    ):
        list(router_of(columns, 2).route(batch))


def test_a_row_without_a_topic_is_refused() -> None:
    batch, columns = frame(value=[b"1"], topic=[None])
    with pytest.raises(ConfigError, match="column 'topic' is null"):
        list(router_of(columns, 1, topic="").route(batch))


def test_columns_of_other_arrow_types_become_the_logs_own() -> None:
    kind = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
    batch, columns = frame(
        value=pa.array(["ä"], pa.large_string()),
        key=pa.array(["k"]),
        headers=pa.array([[{"key": "h", "value": b"1"}]], kind),
        timestamp=pa.array([5], pa.timestamp("us", tz="Europe/Berlin")),
    )
    records = router_of(columns, 1).records(batch)
    assert records.schema.equals(RECORD_SCHEMA)
    assert records.to_pylist()[0]["value"] == "ä".encode()


sizes = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.integers(0, 300), max_size=20)), max_size=20
)


@given(sizes, st.integers(100, 2000))
def test_coalesced_bodies_keep_every_record_in_order_and_their_limits(
    batches: list[tuple[int, list[int]]], least: int
) -> None:
    coalescer = Coalescer(least, 2 * least, waiting=10 * least)
    wrote: dict[int, list[int]] = {}
    stored: dict[int, list[int]] = {}
    number = 0

    def take(parts: Any) -> None:
        for _, partition, records in parts:
            values = records.column("value").to_pylist()
            assert records.nbytes <= 2 * least + 8 or len(values) == 1
            stored.setdefault(partition, []).extend(int(v.partition(b":")[0]) for v in values)

    for partition, sizes_of_values in batches:
        values = []
        for length in sizes_of_values:
            values.append(f"{number}:".encode() + b"x" * length)
            wrote.setdefault(partition, []).append(number)
            number += 1
        batch = pa.record_batch({"value": pa.array(values, pa.binary())})
        take(coalescer.add("t", batch, whole(partition, len(values))))
    take(coalescer.rest())
    assert stored == wrote


def test_records_wait_for_so_many_bytes_of_others_and_no_longer() -> None:
    """A slice keeps its whole batch in memory, so a row that waited for ever would."""
    coalescer = Coalescer(10_000, 20_000, waiting=3000)
    batch = pa.record_batch({"value": pa.array([b"a" * 496, b"b" * 496], pa.binary())})
    for_two = Division([(1, 0, 1), (0, 1, 2)], pa.array([0, 1], pa.int32()))
    assert list(coalescer.add("t", batch, for_two)) == []
    found = [[at for _, at, _ in coalescer.add("t", batch, whole(0, 2))] for _ in range(3)]
    assert found == [[], [], [1, 0]]


def test_a_body_is_stored_before_a_batch_more_would_have_it_cut() -> None:
    """Else each one left a small rest, which costs a node as much as megabytes."""
    coalescer = Coalescer(3000, 4000)
    batch = pa.record_batch({"value": pa.array([b"x" * 696] * 2, pa.binary())})
    assert 2 * batch.nbytes < 3000 < 4000 < 3 * batch.nbytes
    bodies = [*(body for _ in range(6) for body in coalescer.add("t", batch, whole(0, 2)))]
    assert [records.num_rows for _, _, records in bodies] == [4, 4, 4]


def test_batches_of_other_columns_are_bodies_of_their_own() -> None:
    coalescer = Coalescer(10_000, 20_000)
    plain = pa.record_batch({"value": pa.array([b"a"], pa.binary())})
    keyed = pa.record_batch({"key": pa.array([b"k"]), "value": pa.array([b"b"])})
    given = [plain, keyed, pa.record_batch({"key": pa.array([b"k"]), "value": pa.array([b"c"])})]
    given += [plain, plain]
    bodies = [*(body for one in given for body in coalescer.add("t", one, whole(0, 1)))]
    bodies += coalescer.rest()
    values = [records.column("value").to_pylist() for _, _, records in bodies]
    assert values == [[b"a"], [b"b", b"c"], [b"a", b"a"]]
    # another partition had rows of the first columns in between
    for one, partition in ((plain, 0), (keyed, 1), (plain, 0)):
        assert list(coalescer.add("t", one, whole(partition, 1))) == []
    assert [records.num_rows for _, _, records in coalescer.rest()] == [2, 1]


def test_a_cut_never_splits_a_record() -> None:
    records = pa.record_batch({"value": pa.array([b"x" * 10, b"y" * 500, b"z" * 10], pa.binary())})
    assert [part.num_rows for part in cut(records, 100)] == [1, 1, 1]


def test_neither_direction_loads_pandas() -> None:
    """``pa.array`` and ``pa.scalar`` do at their first call, at half a second for every worker
    process."""
    code = """
import sys
import pyarrow as pa
for name in ("pandas", "pandas.core"):
    sys.modules.pop(name, None)
from dledger.datasource.write.records import Router
from dledger.records.frames.coalescing import Coalescer
from dledger.records.frames.spreading import Spread
from dledger.datasource.read.rows import Constants
from dledger.records.columns.arrays import number_column
from dledger.datasource.table.schema import WriteColumns, read_schema
import numpy as np
before = "pandas" in sys.modules
Constants("t", 0).of(5)
offsets = pa.py_buffer(np.array([0, 1, 2], np.int32))
values = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"ab")])
batch = pa.RecordBatch.from_arrays([values, values], names=["key", "value"])
spread = Spread()
router = Router(WriteColumns(1, 0), "t", spread=spread, partitions_of=lambda topic: 3)
coalescer = Coalescer()
[*(body for rows in router.route(batch) for body in coalescer.add(*rows)), *coalescer.rest()]
print("pandas" in sys.modules and not before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
