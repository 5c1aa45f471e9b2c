"""The compiled digest beside that of Arrow's functions, and what it does with buffers that are not
what is said of them."""

from __future__ import annotations

import importlib.util
import random
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.records import digest as package
from dledger.records.digest import digest
from dledger.records.digest import values as plain

native: Any = pytest.importorskip(
    "dledger.records.digest._native", reason="the extension could not be compiled here"
)
NUMBERS = [pa.type_for_alias(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
OTHERS = [
    *(pa.float32(), pa.float64(), pa.bool_(), pa.date32()),
    *(pa.timestamp("us"), pa.decimal128(20, 2)),
]
TEXTS = [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()]
NESTED = [
    pa.list_(pa.string()),
    pa.map_(pa.string(), pa.int16()),
    pa.struct([("a", pa.int8()), ("b", pa.string())]),
]


def value_of(kind: pa.DataType, chance: random.Random) -> Any:
    """A value of this type, at times a null or one at the edge of its range."""
    if chance.random() < 0.2:
        return None
    if pa.types.is_integer(kind):
        low = -(2 ** (kind.bit_width - 1)) if pa.types.is_signed_integer(kind) else 0
        high = low + 2**kind.bit_width - 1
        return chance.choice([low, high, chance.randint(low, high)])
    if kind in TEXTS:
        text = "".join(
            map(chr, chance.choices(range(32, 127), k=chance.choice([0, 1, 7, 8, 9, 100, 300])))
        )
        return text if "string" in str(kind) else text.encode()
    if pa.types.is_list(kind):
        return [value_of(kind.value_type, chance) for _ in range(chance.randrange(4))]
    if pa.types.is_map(kind):
        return [(str(n), value_of(kind.item_type, chance)) for n in range(chance.randrange(4))]
    if pa.types.is_struct(kind):
        return {field.name: value_of(field.type, chance) for field in kind}
    return chance.random() < 0.5 if pa.types.is_boolean(kind) else chance.randrange(2)


@given(st.integers(0, 2**32))
def test_both_ways_have_the_same_digests(seed: int) -> None:
    chance = random.Random(seed)
    kinds = chance.choices([*NUMBERS, *OTHERS, *TEXTS, *NESTED], k=chance.randrange(1, 6))
    rows = chance.randrange(1, 40)
    columns = [pa.array([value_of(kind, chance) for _ in range(rows)], kind) for kind in kinds]
    batch = pa.RecordBatch.from_arrays(columns, [f"c{place}" for place in range(len(kinds))])
    first = chance.randrange(rows)
    for part in (batch, batch.slice(first, chance.randrange(rows - first + 1))):
        found = digest(part)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(package, "way", plain)
            assert digest(part) == found


def test_the_extension_is_built_for_each_python_from_3_11_on() -> None:
    found = importlib.util.find_spec("dledger.records.digest._native")
    assert found is not None
    assert found.origin is not None
    assert ".abi3." in found.origin


@pytest.mark.parametrize(
    ("bounds", "width", "first", "words"),
    [
        pytest.param([0, 3, 9], 4, 0, 2, id="behind the values"),
        pytest.param([0, 5, 3], 4, 0, 2, id="backwards"),
        pytest.param([-1, 3, 4], 4, 0, 2, id="before the values"),
        pytest.param([-(2**31), 2**31 - 1, 2**31 - 1], 4, 0, 2, id="an overflow"),
        pytest.param([0, 3, 4], 4, 1, 2, id="too few"),
        pytest.param([0, 3, 4], 4, 2**62, 2, id="far away"),
        pytest.param([0, 3, 4], 4, 2**63 - 1, 2, id="at the end of the range"),
        pytest.param([0, 3, 4], 4, -1, 2, id="a negative place"),
        pytest.param([0, 3, 4], 8, 0, 2, id="of another width"),
        pytest.param([0, 3, 4], 3, 0, 2, id="of no width"),
        pytest.param([], 4, 0, 0, id="none"),
    ],
)
def test_offsets_that_lie_are_refused(
    bounds: list[int], width: int, first: int, words: int
) -> None:
    out, given = bytearray(8 * words), struct.pack(f"<{len(bounds)}i", *bounds)
    with pytest.raises(ValueError, match="offset"):
        native.hash_bytes(given, width, first, b"12345678", out)
    with pytest.raises(ValueError, match="offset"):
        native.add_bytes(out, given, width, first, b"12345678", None, 0, 1)


@pytest.mark.parametrize(
    ("bounds", "first"),
    [
        pytest.param([0, 1, 3], 0, id="behind the values"),
        pytest.param([7, 8, 10], 0, id="more than the values"),
        pytest.param([0, 1, 0], 0, id="backwards"),
        pytest.param([-1, 0, 1], 0, id="before the values"),
        pytest.param([0, 2**31 - 1, 2**31 - 1], 0, id="far behind"),
        pytest.param([0, 1, 2], 1, id="too few"),
        pytest.param([0, 1, 2], 2**63 - 1, id="at the end of the range"),
        pytest.param([0, 1, 2], -1, id="a negative place"),
    ],
)
def test_offsets_of_lists_and_maps_that_lie_are_refused(bounds: list[int], first: int) -> None:
    given, out = struct.pack("<3i", *bounds), bytearray(16)
    with pytest.raises(ValueError, match="offset"):
        native.sum_lists(given, first, bytes(16), out)
    for keys, items in ((16, 24), (24, 16)):
        with pytest.raises(ValueError, match="offset"):
            native.sum_maps(given, first, bytes(keys), bytes(items), out)


def test_wide_offsets_that_lie_are_refused() -> None:
    for bounds in ([0, 2**63 - 1], [-(2**63), 4], [2**62, 2**62], [0, 9]):
        with pytest.raises(ValueError, match="offset"):
            native.hash_bytes(struct.pack("<2q", *bounds), 8, 0, b"12345678", bytearray(8))


@pytest.mark.parametrize(
    ("values", "kind", "first", "valid", "bit", "words"),
    [
        pytest.param(b"1234567", 8, 0, None, 0, 1, id="half a value"),
        pytest.param(b"12345678", -8, 1, None, 0, 1, id="behind the values"),
        pytest.param(b"12345678", 8, -1, None, 0, 1, id="a negative place"),
        pytest.param(b"12345678", 8, 2**63 - 1, None, 0, 1, id="at the end of the range"),
        pytest.param(b"12345678", 3, 0, None, 0, 1, id="of 3 bytes"),
        pytest.param(b"12345678", 0, 0, None, 0, 1, id="of no bytes"),
        pytest.param(b"12345678", -(2**31), 0, None, 0, 1, id="of the least int"),
        pytest.param(b"1" * 9, 1, 0, b"\xff", 0, 9, id="too few bits"),
        pytest.param(b"1" * 8, 1, 0, b"\xff", 1, 8, id="bits that end too early"),
        pytest.param(b"1" * 8, 1, 0, b"\xff", -1, 8, id="a negative bit"),
        pytest.param(b"1" * 8, 1, 0, b"\xff", 2**63 - 8, 8, id="a bit far away"),
        pytest.param(b"1" * 8, 1, 0, b"", 0, 8, id="no bits"),
    ],
)
def test_values_that_lie_are_refused(
    values: bytes, kind: int, first: int, valid: bytes | None, bit: int, words: int
) -> None:
    total = bytearray(8 * words)
    with pytest.raises(ValueError, match=r"value|bits"):
        native.add_cells(total, values, kind, first, valid, bit, 1)
    with pytest.raises(ValueError, match=r"value|bits"):
        native.hash_cells(values, kind, first, valid, bit, total)
    assert not any(total)


def test_bits_and_decimals_that_lie_are_refused() -> None:
    total = bytearray(72)
    for valid, bit in ((b"\xff", 0), (b"\xff\xff", 8), (b"\xff\xff", -1), (b"", 0)):
        with pytest.raises(ValueError, match="bits"):
            native.add_bytes(total, bytes(40), 4, 0, b"", valid, bit, 1)
    for size, first in ((143, 0), (144, 1), (144, -1), (144, 2**63 - 1)):
        with pytest.raises(ValueError, match="values"):
            native.hash_decimals(bytes(size), first, total)
    assert not any(total)


def test_what_is_no_buffer_and_what_cannot_be_written_is_refused() -> None:
    for wrong in (None, "text", 1, [1, 2]):
        with pytest.raises(TypeError):
            native.sum_mixed(wrong)
    with pytest.raises((TypeError, BufferError)):
        native.hash_bytes(struct.pack("<2i", 0, 1), 4, 0, b"1", bytes(8))
    with pytest.raises((ValueError, BufferError), match="contiguous"):
        native.sum_mixed(memoryview(bytes(64))[::2])


def test_words_at_odd_addresses_are_read_as_others() -> None:
    values = [b"x" * 100, b"", b"y" * 9]
    bounds, data = struct.pack("<4i", 0, 100, 100, 109), b"".join(values)
    found = [bytearray(24) for _ in range(8)]
    for shift, out in enumerate(found):
        native.hash_bytes(
            memoryview(b"." * shift + bounds)[shift:],
            4,
            0,
            memoryview(b"." * shift + data)[shift:],
            out,
        )
    assert len(set(map(bytes, found))) == 1


def test_random_arguments_never_end_the_process() -> None:
    chance = random.Random(17)
    edges = [0, 1, -1, 7, 8, 9, 64, 2**31 - 1, 2**62, 2**63 - 1, -(2**63)]
    refused = 0
    for _ in range(20_000):
        some, other, third = (chance.randbytes(chance.choice([0, 1, 7, 8, 9, 64])) for _ in "123")
        out = bytearray(chance.choice([0, 3, 8, 64]))
        first, bit = chance.choice(edges), chance.choice(edges)
        kind, valid = chance.choice([1, -1, 2, -2, 4, -4, 8, -8]), chance.choice([None, other])
        call, *given = chance.choice(
            [
                (native.hash_bytes, some, chance.choice([4, 8]), first, other, out),
                (native.add_bytes, out, some, chance.choice([4, 8]), first, third, valid, bit, 1),
                (native.hash_cells, some, kind, first, valid, bit, out),
                (native.add_cells, out, some, kind, first, valid, bit, 1),
                (native.hash_decimals, some, first, out),
                (native.sum_lists, some, first, other, out),
                (native.sum_maps, some, first, other, third, out),
            ]
        )
        try:
            call(*given)
        except ValueError:
            refused += 1
    assert 0 < refused < 20_000
