"""The compiled digest beside that of NumPy, and what it does with buffers that are not what is said
of them."""

from __future__ import annotations

import importlib.util
import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.records.digest import digest, mixing

if mixing.native is None:
    pytest.skip("the extension could not be compiled here", allow_module_level=True)

native: Any = mixing.native
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
            patch.setattr(mixing, "native", None)
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
    with pytest.raises(ValueError, match="offset"):
        native.hash_bytes(
            struct.pack(f"<{len(bounds)}i", *bounds),
            width,
            first,
            b"12345678",
            bytearray(8 * words),
        )


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
    assert not any(total)


def test_what_is_no_buffer_and_what_cannot_be_written_is_refused() -> None:
    for wrong in (None, "text", 1, [1, 2]):
        with pytest.raises(TypeError):
            native.sum_mixed(wrong)
    with pytest.raises((TypeError, BufferError)):
        native.hash_bytes(struct.pack("<2i", 0, 1), 4, 0, b"1", bytes(8))
    with pytest.raises(ValueError, match="contiguous"):
        native.sum_mixed(np.arange(8, dtype=np.uint64)[::2])


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
        texts = [chance.randbytes(chance.choice([0, 1, 7, 8, 9, 64])) for _ in range(2)]
        out = bytearray(chance.choice([0, 3, 8, 64]))
        try:
            if chance.random() < 0.5:
                native.hash_bytes(
                    texts[0], chance.choice([4, 8]), chance.choice(edges), texts[1], out
                )
            else:
                kind, valid = (
                    chance.choice([1, -1, 2, -2, 4, -4, 8, -8]),
                    chance.choice([None, texts[1]]),
                )
                native.add_cells(
                    out, texts[0], kind, chance.choice(edges), valid, chance.choice(edges), 1
                )
        except ValueError:
            refused += 1
    assert 0 < refused < 20_000
