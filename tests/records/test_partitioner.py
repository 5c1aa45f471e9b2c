"""Keys land where Kafka's default partitioner puts them."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dledger.records.columns.partitioner import (
    FEW,
    Division,
    divided_by_codes,
    divided_by_key,
    murmur2,
    murmur2_of,
    partitions_for,
)


def one_by_one(data: bytes) -> int:
    """Murmur2 as Kafka's Java client computes it (org.apache.kafka.common.utils.Utils), a byte at a
    time."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    for i in range(len(data) // 4):
        k = int.from_bytes(data[4 * i : 4 * i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    tail = data[len(data) // 4 * 4 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


@given(
    st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 5), st.sampled_from([1, FEW + 1])
)
def test_murmur2_of_a_column_is_that_of_each_key(keys: list[bytes], skip: int, times: int) -> None:
    keys = keys * times
    column = pa.array([b"xyz"] * skip + keys, pa.binary()).slice(skip)
    assert murmur2(column).to_pylist() == [one_by_one(key) for key in keys]
    assert [murmur2_of(key) for key in keys] == [one_by_one(key) for key in keys]


def test_long_keys_among_short_ones_are_hashed_as_each_alone() -> None:
    short = [b"k" * (n % 7) for n in range(50)]
    keys = short + [bytes(range(256)) * 4 + b"x" * n for n in range(FEW + 3)]
    hashes = [one_by_one(key) for key in keys]
    for count in range(len(keys) + 1):
        assert murmur2(pa.array(keys[count:], pa.binary())).to_pylist() == hashes[count:]


def test_murmur2_agrees_with_kafkas_own_test_values() -> None:
    """From UtilsTest.testMurmur2 of the Java client."""
    cases = {
        b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, b"abc": 479470107,
    }  # fmt: skip
    got = murmur2(pa.array(list(cases), pa.binary())).view(pa.int32()).to_pylist()
    assert got == list(cases.values())


def test_a_key_lands_on_one_partition_of_those_there_are() -> None:
    assert partitions_for(pa.array([b"21"], pa.binary()), 7).to_pylist() == [
        (-973932308 & 0x7FFFFFFF) % 7
    ]


@given(
    st.lists(st.none() | st.binary(max_size=9), max_size=40), st.integers(0, 5), st.integers(1, 9)
)
def test_division_gives_each_partition_its_rows_in_order(
    keys: list[bytes | None], skip: int, partitions: int
) -> None:
    column = pa.array([b"xyz"] * skip + keys, pa.binary()).slice(skip)
    batch = pa.record_batch({"key": column, "row": pa.array(range(len(keys)), pa.int64())})
    chosen = [0 if k is None else (one_by_one(k) & 0x7FFFFFFF) % partitions for k in keys]
    expected = {at: [n for n, one in enumerate(chosen) if one == at] for at in sorted(set(chosen))}
    for division in (
        divided_by_key(column, partitions, keyless=0),
        divided_by_codes(pa.array(chosen, pa.int64())),
    ):
        found = {at: rows.column("row").to_pylist() for at, rows in division.of(batch)}
        assert list(found.items()) == list(expected.items())


def test_batch_of_one_partition_is_handed_on_without_a_copy() -> None:
    batch = pa.record_batch({"key": pa.array([b"21", b"21"], pa.binary())})
    for division in (
        divided_by_key(batch.column(0), 7, keyless=0),
        divided_by_codes(pa.array([3, 3])),
    ):
        ((_, rows),) = division.of(batch)
        assert rows is batch


values = st.one_of(st.binary(max_size=9), st.none())


@given(st.lists(st.tuples(values, values), min_size=2, max_size=30), st.data())
def test_rows_are_divided_as_arrow_takes_them(
    rows: list[tuple[bytes | None, bytes | None]], data: st.DataObject
) -> None:
    """Slices and null values too, whether the extension does it or Arrow."""
    skip = data.draw(st.integers(0, len(rows) - 2))
    order = pa.array(data.draw(st.permutations(range(len(rows) - skip))), pa.int32())
    keys, others = zip(*rows, strict=True)
    full = ["ä" * (number % 5) for number in range(len(rows))]
    batch = pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([other or b"" for other in others], pa.binary()),
            "text": pa.array(full, pa.string()),
            "number": pa.array(range(len(rows)), pa.int64()),
        },
        metadata={"dledger.schema": "1"},
    ).slice(skip)
    division = Division([(3, 0, 1), (5, 1, batch.num_rows)], order)
    found = dict(division.of(batch))
    assert pa.concat_batches(found.values()).equals(batch.take(order), check_metadata=True)
    assert found[3].num_rows == 1
    found[5].validate(full=True)
