"""Entries that follow one another: stamped together, and checked together."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.checksum import crc32
from dledger.compiled import python
from dledger.protocol.messages.entry import (
    HEADER,
    HEADER_SIZE,
    MAGIC_NORMAL,
    MIN_BLANK_SIZE,
    Entry,
    LogEnd,
    chain_is_sound,
    parse,
    place,
    stamp,
)
from dledger.protocol.messages.entry_bytes import split_runs
from dledger.protocol.messages.entry_runs import (
    LARGE_BODY,
    Entries,
    bodies_are_sound,
    count_following,
    pack_sizes,
    pieces_of,
    read_entries,
    stamp_all,
)
from dledger.types import Index, Position, Term

SEGMENT = 512
END = LogEnd(Position(Term(3), Index(6)), 100, 0x1234)
Bodies = list[bytes]
bodies = st.lists(st.binary(max_size=SEGMENT - HEADER_SIZE - MIN_BLANK_SIZE), max_size=12)


def stamped(data: Bodies, end: LogEnd = END) -> list[Entry]:
    return list(stamp_all(end, Term(3), MAGIC_NORMAL, data, SEGMENT))


@given(data=bodies)
def test_entries_stamped_together_are_those_stamped_one_by_one(data: Bodies) -> None:
    end, found = END, stamped(data)
    for one, body in zip(found, data, strict=True):
        assert one == stamp(end, Term(3), MAGIC_NORMAL, body, SEGMENT)
        assert one == parse(bytes(one.header) + body)
        assert one.pos == place(end.end_pos, one.size, SEGMENT)
        assert chain_is_sound(one, end.chain_crc)
        end = LogEnd.after(one)
    assert count_following(END, Entries.of(found), SEGMENT) == len(data)
    assert bodies_are_sound(Entries.of(found))


def test_one_entry_too_large_for_a_segment_refuses_all() -> None:
    fits = SEGMENT - HEADER_SIZE - MIN_BLANK_SIZE
    assert len(stamped([bytes(fits)])) == 1
    with pytest.raises(ValueError, match="does not fit a segment"):
        stamped([b"", bytes(fits + 1)])


def in_one_piece(entries: list[Entry]) -> Entries:
    """The same entries as they come to a follower."""
    return read_entries(b"".join(map(bytes, pieces_of(entries))), pack_sizes(entries))


def again(entry: Entry, before: int, **fields: int) -> Entry:
    """The entry with other fields, and the chain of checksums that fits them."""
    changed = replace(entry, **fields)  # type: ignore[arg-type]
    size = HEADER_SIZE + len(entry.body)

    def header(chain: int) -> bytes:
        numbers = (changed.magic, size, changed.index, changed.term, changed.pos)
        return HEADER.pack(*numbers, 0, chain, changed.body_crc, len(entry.body))

    chain = crc32(header(0), before)
    return replace(changed, chain_crc=chain, header=header(chain))


def unverified(entry: Entry) -> Entry:
    """As DLedger itself writes it."""
    header = bytes(entry.header[:36]) + bytes(8) + bytes(entry.header[44:])
    return replace(entry, chain_crc=0, body_crc=0, header=header)


Change = Callable[[Entry, int], Entry]
CHANGES: dict[str, Change] = {
    "index": lambda one, chain: again(one, chain, index=one.index + 1),
    "pos": lambda one, chain: again(one, chain, pos=one.pos + 8),
    "term": lambda one, chain: again(one, chain, term=2),
    "chain": lambda one, chain: again(one, chain + 1),
    "chain-crc": lambda one, _: replace(
        one, header=bytes(one.header[:39]) + bytes([one.header[39] ^ 1]) + bytes(one.header[40:])
    ),
    "channel": lambda one, _: replace(
        one, header=bytes(one.header[:32]) + b"\0\0\0\1" + bytes(one.header[36:])
    ),
    "unverified": lambda one, _: unverified(one),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_run_ends_in_front_of_an_entry_that_does_not_follow(change: Change, at: int) -> None:
    entries = list(stamped([b"a", bytes(300), b"", b"bc", b"d", b"e"]))
    before = entries[at - 1].chain_crc if at else END.chain_crc
    entries[at] = change(entries[at], before)
    assert count_following(END, Entries.of(entries), SEGMENT) == at
    assert count_following(END, in_one_piece(entries), SEGMENT) == at


def test_unverified_entries_follow_one_another_until_one_is_verified() -> None:
    end = replace(END, chain_crc=0)
    old = [unverified(one) for one in stamped([b"a", b"b"], end)]
    behind = LogEnd.after(old[-1])
    assert behind.chain_crc == 0
    new = stamped([b"c", b"d"], behind)
    assert count_following(end, Entries.of(old + new), SEGMENT) == 4
    assert count_following(end, Entries.of(old + [unverified(one) for one in new]), SEGMENT) == 4
    mixed = Entries.of([*old, new[0], unverified(new[1])])
    assert count_following(end, mixed, SEGMENT) == 3


@given(data=bodies.filter(any), flip=st.integers(0, 1 << 16))
def test_a_changed_body_is_found_unless_its_entry_is_unverified(data: Bodies, flip: int) -> None:
    entries = stamped(data)
    at = next(number for number, body in enumerate(data) if body)
    body = bytearray(data[at])
    body[flip % len(body)] ^= 1 << flip % 8
    entries[at] = replace(entries[at], body=bytes(body))
    assert not bodies_are_sound(Entries.of(entries))
    assert not bodies_are_sound(in_one_piece(entries))
    entries[at] = unverified(entries[at])
    assert bodies_are_sound(Entries.of(entries))
    assert bodies_are_sound(in_one_piece(entries))


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_changed_large_body_is_found_unless_its_entry_is_unverified(at: int) -> None:
    """In one piece with others, as a push brings them."""
    data = [b"x" * (LARGE_BODY + number) for number in range(3)]
    entries = list(stamp_all(END, Term(3), MAGIC_NORMAL, data, 1 << 30))
    assert bodies_are_sound(in_one_piece(entries))
    entries[at] = replace(entries[at], body=data[at][:-1] + b"y")
    assert not bodies_are_sound(in_one_piece(entries))
    assert bodies_are_sound(in_one_piece([unverified(one) for one in entries]))


@given(data=bodies, cuts=st.tuples(st.integers(-3, 14), st.integers(-3, 14)))
def test_entries_in_runs_are_a_sequence_of_entries(data: Bodies, cuts: tuple[int, int]) -> None:
    runs, plain = stamp_all(END, Term(3), MAGIC_NORMAL, data, SEGMENT), stamped(data)
    assert runs == tuple(plain)
    assert list(runs) == plain
    assert len(runs) == len(plain)
    assert runs[slice(*cuts)] == tuple(plain[slice(*cuts)])
    for at in range(-len(plain), len(plain)):
        assert runs[at] == plain[at]
    with pytest.raises(IndexError):
        runs[len(plain)]
    sent = b"".join(map(bytes, pieces_of(runs)))
    assert sent == b"".join(bytes(one.header) + bytes(one.body) for one in plain)
    sizes = struct.unpack(f">{len(plain)}I", pack_sizes(runs))
    assert sizes == tuple(one.size for one in plain)
    read = read_entries(sent, pack_sizes(runs))
    assert read == runs
    assert [len(run) for run in read.runs] == [len(run) for run in runs.runs]
    if plain:
        assert (runs.first_index, runs.last_index) == (plain[0].index, plain[-1].index)
        assert runs.span == plain[-1].end_pos - plain[0].pos
        assert runs.runs[-1].end == LogEnd.after(plain[-1])


@given(data=bodies, magics=st.lists(st.sampled_from([1, 2]), min_size=12, max_size=12))
def test_a_run_is_of_one_magic_and_one_term(data: Bodies, magics: list[int]) -> None:
    """Whatever the entries are, they are read as they came."""
    end, plain = END, []
    for at, body in enumerate(data):
        plain.append(stamp(end, Term(3 + sum(magics[:at]) // 4), magics[at], body, SEGMENT))
        end = LogEnd.after(plain[-1])
    sent = b"".join(bytes(one.header) + bytes(one.body) for one in plain)
    read = read_entries(sent, pack_sizes(plain))
    assert read == tuple(plain)
    assert count_following(END, read, SEGMENT) == len(plain)


@pytest.mark.parametrize("large", [[0], [2], [0, 1], [1, 3]])
def test_a_large_body_is_a_run_that_is_not_copied(large: list[int]) -> None:
    data = [bytes(LARGE_BODY if at in large else 10) for at in range(4)]
    runs = stamp_all(END, Term(3), MAGIC_NORMAL, data, 1 << 20).runs
    alone = [run for run in runs if len(run.pieces) == 2]
    assert [run.pieces[1] for run in alone] == [data[at] for at in large]
    assert all(run.pieces[1] is data[at] for run, at in zip(alone, large, strict=True))
    assert [one.body for one in Entries(runs)] == data


@given(data=bodies, prefix=st.binary(min_size=1, max_size=3))
def test_a_body_with_a_prefix_is_found_in_a_run(data: Bodies, prefix: bytes) -> None:
    for run in stamp_all(END, Term(3), MAGIC_NORMAL, data, SEGMENT).runs:
        bodies = [bytes(one.body) for one in Entries((run,))]
        assert run.has_body_with(prefix) == any(body.startswith(prefix) for body in bodies)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([49], "49 bytes announced, 98 came"),
        ([49, 50], "more bytes announced than the 98 that came"),
        ([98], "entry 7 says size 49, body 1, in 98 bytes"),
        ([50, 48], "entry 7 says size 49"),
        ([51, 47], "entry 7"),
        ([47, 51], "at least 48 bytes, not 47"),
        ([0], "at least 48 bytes, not 0"),
        ([(1 << 32) - 1], "more bytes"),
    ],
    ids=str,
)
def test_entries_of_other_sizes_are_not_read(sizes: list[int], words: str) -> None:
    sent = b"".join(map(bytes, pieces_of(stamped([b"a", b"b"]))))
    packed = struct.pack(f">{len(sizes)}I", *sizes)
    for twin in (split_runs, python["split_runs"]):
        with pytest.raises(ValueError, match=words):
            twin(sent, packed)
        with pytest.raises(ValueError, match="no row of 4-byte sizes"):
            twin(sent, packed + b"x")


def test_a_run_ends_where_padding_is_due() -> None:
    """An entry that lies over the end of its file is not taken, whatever its checksums say."""
    plain = [stamp(END, Term(3), MAGIC_NORMAL, bytes(300), 1 << 20)]
    plain.append(stamp(LogEnd.after(plain[0]), Term(3), MAGIC_NORMAL, bytes(300), 1 << 20))
    sent = b"".join(map(bytes, pieces_of(plain)))
    read = read_entries(sent, pack_sizes(plain))
    assert len(read.runs) == 1
    assert count_following(END, read, 1 << 20) == 2
    assert count_following(END, read, SEGMENT) == 1
