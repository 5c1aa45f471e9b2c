"""A file read through small windows, or in ranges, gives what it gives when it is read as a
whole."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dledger.protocol.messages.entry import HEADER
from dledger.rocketmq.columns.commit_log import Wanted, column_batches
from dledger.rocketmq.columns.entries import EntryScanner, entry_batches
from dledger.rocketmq.columns.windows import FileReader, LogSpan
from dledger.rocketmq.format.message import Message, encode_dledger_blank, encode_message
from dledger.rocketmq.format.scan import scan
from dledger.rocketmq.format.scanned_piece import PieceKind, ScannedPiece
from tests.rocketmq.made_logs import FIVE, column, damage_of, entry, make_log, of_messages

START = 4096
SIZE = 4608
WINDOWS = (64, 200, 517, 1 << 20)


def reading(data: bytes) -> Callable[[int, int], bytes]:
    """Reads a file with these bytes, and no others."""

    def read(offset: int, length: int) -> bytes:
        assert offset >= START
        part = data[offset - START : offset - START + length]
        assert len(part) == length
        return part

    return read


def of_file(
    data: bytes, *, begin: int = START, stop: int = 1 << 62, **how: Any
) -> tuple[list[int], list[ScannedPiece]]:
    """Places of the messages, and the damage with what the end of the log has of it, as a reader
    finds them."""

    span = LogSpan(START, START + len(data), START + max(SIZE, len(data)))
    name = "position" if how.get("entries") else "physical_offset"
    rows: list[int] = []
    damage: list[ScannedPiece] = []
    for batch in FileReader(reading(data), span, columns=(name,), **how).batches(begin, stop):
        rows += column([batch], name)
        damage += batch.damage
        if batch.tail is not None and "without the end" in batch.tail.reason:
            rows.append(batch.tail.start)  # sound as far as a checksum goes
        elif batch.tail is not None:
            damage.append(batch.tail)
    return rows, damage


def in_ranges(data: bytes, cuts: list[int], **how: Any) -> tuple[list[int], list[ScannedPiece]]:
    """The same of ranges one behind the other."""
    borders = itertools.pairwise([START, *sorted(cuts), START + SIZE])
    parts = [of_file(data, begin=begin, stop=stop, **how) for begin, stop in borders]
    rows, damage = zip(*parts, strict=True)
    return list(itertools.chain(*rows)), list(itertools.chain(*damage))


def expected(data: bytes) -> tuple[list[int], list[ScannedPiece]]:
    pieces = list(scan(data, START, file_end=START + max(SIZE, len(data))))
    places = [piece.message_offset for piece in of_messages(pieces)]
    return places, [p for p in pieces if p.kind is PieceKind.DAMAGE]


@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.parametrize("window", WINDOWS)
def test_any_window_gives_the_messages_of_the_whole_file(entries: bool, window: int) -> None:
    data = make_log(FIVE * 3, START, SIZE, entries=entries)
    found = of_file(data, window=window)
    assert found == expected(data)
    assert len(found[0]) == 15


@given(
    changes=st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(0, 255)), max_size=5),
    hole=st.tuples(st.integers(0, SIZE - 1), st.integers(0, 900)),
    cut=st.integers(0, SIZE),
    window=st.sampled_from(WINDOWS),
    entries=st.booleans(),
)
@example(changes=[], hole=(0, SIZE), cut=SIZE, window=64, entries=False)
@example(changes=[(700, 1)], hole=(0, 0), cut=SIZE, window=64, entries=True)
def test_any_window_finds_the_same_damage(
    changes: list[tuple[int, int]], hole: tuple[int, int], cut: int, window: int, entries: bool
) -> None:
    data = bytearray(make_log(FIVE * 2, START, SIZE, entries=entries))
    for at, value in changes:
        data[at] = value
    data[hole[0] : hole[0] + hole[1]] = bytes(len(data[hole[0] : hole[0] + hole[1]]))
    whole = bytes(data[:cut])
    assert of_file(whole, window=window) == expected(whole)


@given(
    change=st.tuples(st.integers(0, 2500), st.integers(0, 255)),
    cuts=st.lists(st.integers(START, START + SIZE), max_size=4),
    lookback=st.sampled_from([0, 50, 700]),
)
def test_ranges_give_every_message_and_all_damage_once(
    change: tuple[int, int], cuts: list[int], lookback: int
) -> None:
    data = bytearray(make_log(FIVE * 2, START, SIZE))
    data[change[0]] = change[1]
    assert in_ranges(bytes(data), cuts, window=300, lookback=lookback) == expected(bytes(data))


def test_range_that_begins_in_a_body_returns_no_forged_message() -> None:
    """A producer knows where its message will lie, and can put one into its body that lies where it
    says."""
    first = Message("TopicA", b"x" * 300)
    inner_at = START + len(encode_message(first)) + 88 + 20
    forged = encode_message(Message("Secret", b"forged", physical_offset=inner_at))
    outer = Message("TopicA", b"y" * 20 + forged + b"y" * 50)
    data = make_log([first, outer, first], START, SIZE)
    assert of_file(data, begin=inner_at - 5, lookback=0)[0][0] == inner_at  # so it would be
    assert inner_at not in of_file(data, begin=inner_at - 5, lookback=1000)[0]
    assert inner_at not in of_file(data, begin=inner_at - 5, lookback=150)[0]


def test_a_size_that_lies_makes_nobody_read_to_the_end_of_the_file() -> None:
    data = bytearray(make_log(FIVE, START, 1 << 20))
    struct.pack_into(">i", data, 0, 1 << 19)
    most = 0

    def read(offset: int, length: int) -> bytes:
        nonlocal most
        most = max(most, length)
        return bytes(data[offset - START : offset - START + length])

    span = LogSpan(START, START + len(data), START + len(data))
    batches = FileReader(read, span, window=1024).batches(START, span.data_end)
    assert len(column(batches, "body")) == len(FIVE) - 1
    assert most <= 1024 + 4096


def test_messages_of_other_topics_and_times_are_left_out_and_damage_is_not() -> None:
    data = bytearray(make_log(FIVE, START, SIZE))
    damaged = list(scan(data, START))[1]
    data[damaged.start - START + 60] ^= 1  # TopicB, which is not asked for
    data[damaged.start - START] ^= 1
    stored = FIVE[0].store_timestamp
    for wanted, topics in (
        (Wanted(topic=lambda name: name == "TopicA"), ["TopicA", "TopicA"]),
        (Wanted(stored_from=stored), ["TopicA"]),
        (Wanted(stored_from=stored + 1), []),
        (Wanted(stored_before=stored), ["t" * 300, "größe", "TopicA"]),
        (Wanted(stored_before=stored + 1, topic="TopicA".__eq__), ["TopicA", "TopicA"]),
    ):
        batches = list(column_batches(data, START, wanted=wanted, columns=["topic"]))
        assert column(batches, "topic") == topics
        assert [piece.start for piece in damage_of(batches)] == [damaged.start]


def entry_log(bodies: list[bytes], size: int) -> bytes:
    data = b""
    for index, body in enumerate(bodies):
        data += entry(body, index, START + len(data))
    return (data + encode_dledger_blank(size - len(data))).ljust(size, b"\0")


@given(
    bodies=st.lists(st.binary(max_size=60) | st.just(b"\0\0\0\1" * 9), max_size=8),
    changes=st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), max_size=3),
    cuts=st.lists(st.integers(START, START + SIZE), max_size=3),
    window=st.sampled_from(WINDOWS),
)
def test_entries_are_the_same_through_any_window_and_in_any_ranges(
    bodies: list[bytes], changes: list[tuple[int, int]], cuts: list[int], window: int
) -> None:
    """The bodies hold any bytes, and bytes of the file may be changed."""
    data = bytearray(entry_log(bodies, SIZE))
    for at, value in changes:
        data[at] = value
    batches = list(entry_batches(data, START))
    whole = column(batches, "position"), damage_of(batches)
    assert in_ranges(bytes(data), cuts, window=window, entries=True) == whole
    if not changes:
        assert (column(batches, "body"), damage_of(batches)) == (bodies, [])


def test_entry_columns_are_the_header_and_the_body() -> None:
    data = HEADER.pack(2, 48, 7, 5, START, 9, 0xFFFF_FFFF, 0, 0).ljust(200, b"\0")
    (batch, rest) = entry_batches(data, START)
    assert batch.rows is not None
    (row,) = batch.rows.to_pylist()
    assert row == {
        "entry_index": 7, "term": 5, "position": START, "size": 48, "magic": 2, "channel": 9,
        "chain_crc": 0xFFFF_FFFF, "body_crc": 0, "body": b"",
    }  # fmt: skip
    assert (rest.rows, rest.damage, rest.end) == (None, [], START + 200)


def test_entry_with_a_wrong_body_crc_is_damage_and_the_next_one_is_read() -> None:
    data = bytearray(entry_log([b"one", b"two"], 300))
    struct.pack_into(">I", data, 40, 12345)
    batches = list(entry_batches(data, START))
    (damaged,) = damage_of(batches)
    assert damaged.reason == "entry 0: the body does not match the entry's CRC"
    assert column(batches, "body") == [b"two"]


def test_entries_are_found_from_any_byte() -> None:
    data = entry_log([b"abc", b"\0\0\0\1" * 20, b""], 600)
    starts = [START, START + 51, START + 51 + 128]
    scanner = EntryScanner(data, START)
    for offset in range(START, START + 51 + 128 + 1):
        piece = scanner.next_sound(offset)
        assert piece is not None
        assert piece.start == next(s for s in starts if s >= offset)


def test_file_without_a_blank_is_damaged_at_its_end_if_a_file_follows() -> None:
    whole = make_log(FIVE, START, SIZE)
    end = START + len(make_log(FIVE, START))
    for data, damage in (
        (whole, []),
        (whole[: end - START + 20], []),  # the zeros behind the blank need not be there
        (whole[: end - START].ljust(SIZE, b"\0"), [(end, START + SIZE)]),
        (whole[: end - START], [(end, START + SIZE)]),
        (b"\0" * SIZE, [(START, START + SIZE)]),
    ):
        for cut in (START, START + 100, START + SIZE - 100):
            found = []
            for begin, stop in ((START, cut), (cut, START + SIZE)):
                span = LogSpan(START, START + len(data), START + SIZE, START + SIZE)
                found += damage_of(FileReader(reading(data), span).batches(begin, stop))
            assert [(d.start, d.end) for d in found] == damage


def test_the_smallest_message_is_read_where_it_is_the_last_one() -> None:
    data = make_log([Message("T", physical_offset=0)], START).ljust(SIZE, b"\0")
    assert of_file(data) == ([START], [])
    reader = FileReader(reading(data), LogSpan(START, START + SIZE, START + SIZE))
    assert reader.written_end(START) == START + 92


def test_damage_at_the_end_of_the_log_is_looked_at_twice() -> None:
    """Whoever reads while a broker writes can get the end of a message without its beginning."""
    data = make_log(FIVE, START)
    torn = bytearray(data)
    body = data.index(b"x" * 200)
    torn[body : body + 50] = bytes(50)
    reads = itertools.count()

    def read(offset: int, length: int) -> bytes:
        found = data if next(reads) else bytes(torn)
        return reading(found.ljust(SIZE, b"\0"))(offset, length)

    open_file = LogSpan(START, START + SIZE, START + SIZE)
    batches = list(FileReader(read, open_file).batches(START, START + SIZE))
    assert (len(column(batches, "body")), damage_of(batches)) == (len(FIVE), [])
    reads = itertools.count()
    closed = replace(open_file, next_start=START)
    assert damage_of(FileReader(read, closed).batches(START, START + SIZE))
