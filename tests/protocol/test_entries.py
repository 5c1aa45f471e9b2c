"""Entries that follow one another: stamped together, and checked together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.checksum import crc32
from dledger.protocol.messages.entry import (
    HEADER,
    HEADER_SIZE,
    MAGIC_NORMAL,
    MIN_BLANK_SIZE,
    Entry,
    LogEnd,
    bodies_are_sound,
    chain_is_sound,
    count_following,
    parse,
    place,
    stamp,
    stamp_all,
)
from dledger.types import Index, Position, Term

SEGMENT = 512
END = LogEnd(Position(Term(3), Index(6)), 100, 0x1234)
Bodies = list[bytes]
bodies = st.lists(st.binary(max_size=SEGMENT - HEADER_SIZE - MIN_BLANK_SIZE), max_size=12)


def stamped(data: Bodies, end: LogEnd = END) -> list[Entry]:
    return stamp_all(end, Term(3), MAGIC_NORMAL, data, SEGMENT)


@given(data=bodies)
def test_entries_stamped_together_are_those_stamped_one_by_one(data: Bodies) -> None:
    end, found = END, stamped(data)
    for one, body in zip(found, data, strict=True):
        assert one == stamp(end, Term(3), MAGIC_NORMAL, body, SEGMENT)
        assert one == parse(bytes(one.header) + body)
        assert one.pos == place(end.end_pos, one.size, SEGMENT)
        assert chain_is_sound(one, end.chain_crc)
        end = LogEnd.after(one)
    assert count_following(END, found, SEGMENT) == len(data)
    assert bodies_are_sound(found)


def test_one_entry_too_large_for_a_segment_refuses_all() -> None:
    fits = SEGMENT - HEADER_SIZE - MIN_BLANK_SIZE
    assert len(stamped([bytes(fits)])) == 1
    with pytest.raises(ValueError, match="does not fit a segment"):
        stamped([b"", bytes(fits + 1)])


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
    "chain-crc": lambda one, _: replace(one, chain_crc=one.chain_crc ^ 1),
    "channel": lambda one, _: replace(
        one, header=bytes(one.header[:32]) + b"\0\0\0\1" + bytes(one.header[36:])
    ),
    "unverified": lambda one, _: unverified(one),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_run_ends_in_front_of_an_entry_that_does_not_follow(change: Change, at: int) -> None:
    entries = stamped([b"a", bytes(300), b"", b"bc", b"d", b"e"])
    before = entries[at - 1].chain_crc if at else END.chain_crc
    entries[at] = change(entries[at], before)
    assert count_following(END, entries, SEGMENT) == at


def test_unverified_entries_follow_one_another_until_one_is_verified() -> None:
    end = replace(END, chain_crc=0)
    old = [unverified(one) for one in stamped([b"a", b"b"], end)]
    behind = LogEnd.after(old[-1])
    assert behind.chain_crc == 0
    new = stamped([b"c", b"d"], behind)
    assert count_following(end, old + new, SEGMENT) == 4
    assert count_following(end, old + [unverified(one) for one in new], SEGMENT) == 4
    assert count_following(end, [*old, new[0], unverified(new[1])], SEGMENT) == 3


@given(data=bodies.filter(any), flip=st.integers(0, 1 << 16))
def test_a_changed_body_is_found_unless_its_entry_is_unverified(data: Bodies, flip: int) -> None:
    entries = stamped(data)
    at = next(number for number, body in enumerate(data) if body)
    body = bytearray(data[at])
    body[flip % len(body)] ^= 1 << flip % 8
    entries[at] = replace(entries[at], body=bytes(body))
    assert not bodies_are_sound(entries)
    entries[at] = unverified(entries[at])
    assert bodies_are_sound(entries)
