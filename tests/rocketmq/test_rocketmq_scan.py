"""A damaged file gives every sound message, and says exactly what is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dledger.checksum import crc32
from dledger.protocol.messages.entry import HEADER
from dledger.rocketmq.format.message import Message, decode_message, encode_blank, encode_message
from dledger.rocketmq.format.scan import Scanner, scan
from dledger.rocketmq.format.scanned_piece import PieceKind, ScannedPiece
from tests.rocketmq.made_logs import FIVE, make_log

START = 4096
SIZE = 4096
MESSAGES = (PieceKind.MESSAGE, PieceKind.ENTRY)


def spans(pieces: list[ScannedPiece], *kinds: PieceKind) -> list[tuple[int, int]]:
    return [(p.start, p.end) for p in pieces if p.kind in kinds]


def laid_out(data: bytes, start: int = START) -> list[ScannedPiece]:
    """All pieces, which must lie one behind the other without a gap."""
    pieces = list(scan(data, start))
    assert [p.end for p in pieces[:-1]] == [p.start for p in pieces[1:]]
    assert (pieces[0].start, pieces[-1].end) == (start, start + len(data))
    assert all((p.kind is PieceKind.DAMAGE) == bool(p.reason) for p in pieces)
    return pieces


@pytest.mark.parametrize("entries", [False, True])
def test_scan_of_a_sound_file_has_messages_and_the_blank(entries: bool) -> None:
    pieces = laid_out(make_log(FIVE, START, SIZE, entries=entries))
    kind = PieceKind.ENTRY if entries else PieceKind.MESSAGE
    blank = PieceKind.DLEDGER_BLANK if entries else PieceKind.BLANK
    assert [p.kind for p in pieces] == [kind] * len(FIVE) + [blank]


@pytest.mark.parametrize("entries", [False, True])
@pytest.mark.parametrize("bit", [0, 7])
def test_scan_with_any_bit_turned_keeps_every_other_message(entries: bool, bit: int) -> None:
    """Where the bit is in a part that no check covers, the message stays and is another one; else
    the damage is that message and nothing else, or only the entry's header, if the fault is there
    and the message is whole."""
    whole = make_log(FIVE, START, SIZE, entries=entries)
    sound = laid_out(whole)
    used = sound[-1].start - START + 8
    for at in range(used):
        data = bytearray(whole)
        data[at] ^= 1 << bit
        pieces = laid_out(bytes(data))
        (hit,) = [p for p in sound if p.start <= START + at < p.end]
        others = [p for p in sound if p is not hit]
        assert [p for p in pieces if p in others] == others, at
        here = [p for p in pieces if p not in others]
        damage = spans(here, PieceKind.DAMAGE)
        if damage and hit.kind in MESSAGES:
            # at 40 is the entry's CRC of the body: set, it has to agree
            within = START + at - hit.start
            header_only = hit.kind is PieceKind.ENTRY and within < 48 and not 40 <= within < 44
            expected = [(hit.start, hit.message_offset if header_only else hit.end)]
            assert damage == expected, (at, here)
            if damage == [(hit.start, hit.message_offset)]:
                assert here[1:] == [ScannedPiece(PieceKind.MESSAGE, hit.message_offset, hit.end)]
        elif damage:
            assert here[0].start == hit.start
        else:
            assert here == [hit]


PARTS = {"size": 3, "magic": 4, "crc": 11, "place": 35, "body size": 87, "body": 90}
PARTS["topic size"] = 88 + 11


@pytest.mark.parametrize("at", PARTS.values(), ids=PARTS)
def test_scan_refuses_a_message_with_another_value_in(at: int) -> None:
    """Each rule that makes a message sound, broken on its own."""
    first = make_log(FIVE[:1], START)
    data = bytearray(first + make_log(FIVE[3:], START + len(first)))
    data[at] ^= 1
    pieces = laid_out(bytes(data))
    assert [p.kind for p in pieces] == [PieceKind.DAMAGE, PieceKind.MESSAGE, PieceKind.MESSAGE]


def test_scan_refuses_topics_and_properties_that_are_no_text() -> None:
    data = bytearray(make_log(FIVE[:2], START))
    topic = data.index(b"TopicA")
    data[topic] = 0xFF
    pieces = laid_out(bytes(data))
    assert [p.kind for p in pieces] == [PieceKind.DAMAGE, PieceKind.MESSAGE]
    assert "topic is not UTF-8" in pieces[0].reason


def test_scan_of_a_torn_tail_has_the_damage_up_to_the_last_byte_written() -> None:
    whole = make_log(FIVE, START)
    last = laid_out(whole)[-1]
    written = whole[:-60].rstrip(b"\0")
    pieces = laid_out(written.ljust(SIZE, b"\0"))
    assert spans(pieces, *MESSAGES) == spans(laid_out(whole), *MESSAGES)[:-1]
    assert spans(pieces, PieceKind.DAMAGE) == [(last.start, START + len(written))]
    assert pieces[-1].kind is PieceKind.UNUSED


def test_scan_goes_on_behind_a_hole_of_zeros() -> None:
    whole = make_log(FIVE, START, SIZE)
    sound = laid_out(whole)
    hole = (sound[1].start, sound[2].end)
    data = bytearray(whole)
    data[hole[0] - START : hole[1] - START] = bytes(hole[1] - hole[0])
    pieces = laid_out(bytes(data))
    assert spans(pieces, PieceKind.DAMAGE) == [hole]
    assert spans(pieces, *MESSAGES) == [(p.start, p.end) for p in (sound[0], sound[3], sound[4])]


def test_scan_of_a_file_under_another_name_finds_no_message() -> None:
    """What lies elsewhere than it says is left over from another file: taking it would show
    messages twice."""
    pieces = laid_out(make_log(FIVE, START, SIZE), 2 * START)
    assert not spans(pieces, *MESSAGES)
    assert "says that it lies at 4,096" in pieces[0].reason


def test_scan_never_takes_a_message_out_of_the_body_of_another() -> None:
    inner = encode_message(FIVE[0].moved(0)) + encode_message(FIVE[3].moved(START + 1000))
    outer = Message("TopicA", inner)
    data = bytearray(make_log([outer, FIVE[4]], START))
    end = len(encode_message(outer))
    data[100] ^= 1
    pieces = laid_out(bytes(data))
    assert spans(pieces, PieceKind.DAMAGE) == [(START, START + end)]


def test_scan_takes_a_blank_only_when_it_reaches_to_the_end_of_the_file() -> None:
    whole = make_log(FIVE[:1], START)
    for short, kind in enumerate((PieceKind.BLANK, PieceKind.DAMAGE)):
        data = whole + encode_blank(SIZE - len(whole) - short)
        assert laid_out(data.ljust(SIZE, b"\0"))[1].kind is kind


def test_scan_of_stale_bytes_behind_a_blank_ignores_them() -> None:
    """Brokers until 4.9.0 left what was in their buffer there."""
    whole = make_log(FIVE[:1], START)
    blank = encode_blank(SIZE - len(whole))
    data = whole + blank + bytes(range(256)) * 20
    assert [p.kind for p in laid_out(data[:SIZE])] == [PieceKind.MESSAGE, PieceKind.BLANK]


def test_part_of_a_file_begins_at_the_next_message_from_any_byte() -> None:
    """So a file can be read in parts by many, and each message belongs to exactly one of them."""
    for entries in (False, True):
        data = make_log(FIVE, START, SIZE, entries=entries)
        sound = laid_out(data)
        scanner = Scanner(data, START)
        for offset in range(START, START + SIZE):
            assert scanner.next_sound(offset) == next((p for p in sound if p.start >= offset), None)


def test_entry_with_a_checksum_of_its_own_is_checked() -> None:
    data = bytearray(make_log(FIVE[:2], START, entries=True))
    body = data[48 : laid_out(bytes(data))[0].end - START]
    data[40:44] = crc32(bytes(body)).to_bytes(4, "big")
    assert [p.kind for p in laid_out(bytes(data))] == [PieceKind.ENTRY, PieceKind.ENTRY]
    data[48 + 15] ^= 1  # the queue id, which the message's own CRC does not cover
    pieces = laid_out(bytes(data))
    assert [p.kind for p in pieces] == [PieceKind.DAMAGE, PieceKind.ENTRY]
    assert Scanner(data, START).next_sound(START) == pieces[1]
    cut = bytes(data[: pieces[0].end - START]) + b"no message"
    assert [p.kind for p in laid_out(cut)] == [PieceKind.DAMAGE]


def test_entry_that_goes_on_behind_its_message_is_damage() -> None:
    data = bytearray(make_log(FIVE[:1], START, entries=True) + b"behind")
    data[4:8] = len(data).to_bytes(4, "big")
    data[44:48] = (len(data) - 48).to_bytes(4, "big")
    assert laid_out(bytes(data))[0].kind is PieceKind.DAMAGE


def test_damaged_last_message_that_ends_with_zeros_is_damage_to_its_end() -> None:
    message = make_log([Message("T", b"body")], START)
    data = bytearray(message.ljust(SIZE, b"\0"))
    data[88] ^= 1
    pieces = laid_out(bytes(data))
    ends = [(p.kind, p.end - START) for p in pieces]
    assert ends == [(PieceKind.DAMAGE, len(message)), (PieceKind.UNUSED, SIZE)]


def test_entry_without_a_body_is_no_damage() -> None:
    noop = HEADER.pack(2, 48, 0, 4, START, 0, 0, 0, 0)
    data = noop + make_log(FIVE[:1], START + 48, entries=True)
    assert [p.kind for p in laid_out(data)] == [PieceKind.NOOP, PieceKind.ENTRY]


def test_message_that_was_moved_says_where_it_lies_now() -> None:
    data = encode_message(FIVE[0].moved(48))
    assert decode_message(data).physical_offset == 48
    assert decode_message(data).moved(0) == replace(FIVE[0], body_crc=decode_message(data).body_crc)
