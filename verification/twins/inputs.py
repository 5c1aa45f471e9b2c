"""Random inputs for the functions that have a compiled twin: sound ones, and ones that are cut,
flipped or made up."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from dledger.checksum import crc32
from dledger.protocol.messages.client import AppendRequest
from dledger.protocol.messages.entry import HEADER_SIZE, LogEnd
from dledger.protocol.messages.entry_runs import Entries, pack_sizes, pieces_of, stamp_all
from dledger.protocol.messages.fetched import FETCHED_ROW, RUN_ROW
from dledger.protocol.wire import encode, pack_append_responses
from dledger.protocol.wire.framing import CHECKED, PREFIX_SIZE, Frame, pack_frame
from dledger.records.body.header import BodyHeader, BodyKind, Codec, Flag, encode_header
from dledger.records.body.one_record import LARGEST, padded
from dledger.records.body.one_records import KINDS, ONE
from dledger.types import Index, Position, Term

BIG = (0, 1, -1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 62) + 5, -(1 << 62))
Make = Callable[[random.Random], tuple[Any, ...]]


def body(dice: random.Random) -> bytes:
    """A batch, or anything else."""
    if dice.random() < 0.1:
        return dice.randbytes(dice.choice([0, 1, 16, 47, 63, 64, 200]))
    other = [0] * 6
    if dice.random() < 0.3:
        other[dice.randrange(6)] = 1
    header = BodyHeader(
        BodyKind.DATA,
        topic_id=1 + other[0],
        partition=1 + other[1],
        count=dice.choice([1, 1, 2, 1000, 0 if dice.random() < 0.1 else 3]),
        last_time_us=dice.randrange(-(10**15), 10**15),
        producer_id=other[2] << dice.choice([0, 40]),
        codec=Codec(other[3]),
        flags=Flag(other[4]),
        schema_version=other[5],
    )
    return encode_header(header) + dice.randbytes(dice.choice([0, 1, 7, 100, 1000]))


def bodies(dice: random.Random) -> list[Any]:
    made = [body(dice) for _ in range(dice.randrange(9))]
    return [memoryview(one) if dice.random() < 0.5 else one for one in made]


def entries(dice: random.Random) -> Entries:
    end = LogEnd(Position(Term(2), Index(dice.randrange(99))), dice.randrange(5000), chain(dice))
    return stamp_all(
        end, Term(3), dice.choice([1, 1, 2]), bodies(dice), dice.choice([4096, 1 << 20])
    )


def chain(dice: random.Random) -> int:
    return dice.choice([0, 1, dice.getrandbits(32)])


def damaged(dice: random.Random, data: bytes) -> bytes:
    """The bytes, most of the time as they are; else with a flipped bit, a field of its own, cut, or
    unverified."""
    if not data or dice.random() < 0.6:
        return data
    changed, at = bytearray(data), dice.randrange(len(data))
    way = dice.randrange(4)
    if way == 0:
        changed[at] ^= 1 << dice.randrange(8)
    elif way == 1:
        changed[at : at + 8] = dice.choice(BIG).to_bytes(9, "big", signed=True)[-8:]
    elif way == 2:
        del changed[at:]
    elif len(changed) >= HEADER_SIZE:
        changed[36:44] = bytes(8)
    return bytes(changed)


def one_run(dice: random.Random) -> tuple[bytes, list[int]]:
    """The bytes and the starts of a run; with damage in the bytes alone."""
    runs = [run for run in entries(dice).runs if len(run.pieces) == 1]
    if not runs:
        return b"", dice.choice([[], [0]])
    data = damaged(dice, bytes(runs[0].pieces[0]))
    if len(data) < runs[0].starts[-1]:
        data = bytes(runs[0].pieces[0])
    return data, list(runs[0].starts)


def for_stamp_bodies(dice: random.Random) -> tuple[Any, ...]:
    many = bodies(dice)
    begin, largest = dice.randrange(len(many) + 2), dice.choice([0, 65, 71, 164, 1 << 15])
    some = sum(HEADER_SIZE + len(one) for one in many[begin : begin + dice.randrange(4)])
    room = dice.choice([-5, 0, 1 << 20, 1 << 40, some, some + 7, some + 8])
    numbers = (dice.randrange(1 << 40) for _ in range(3))
    return (many, begin, largest, room, dice.choice([1, 2, -1]), *numbers, chain(dice))


def for_split_runs(dice: random.Random) -> tuple[Any, ...]:
    made = [*entries(dice), *(entries(dice) if dice.random() < 0.4 else ())]
    data = damaged(dice, b"".join(bytes(one) for one in pieces_of(made)))
    return data, damaged(dice, pack_sizes(made))


def for_count_chained(dice: random.Random) -> tuple[Any, ...]:
    data, starts = one_run(dice)
    return data, starts, dice.randrange(max(1, len(starts))), chain(dice)


def for_any_body_begins(dice: random.Random) -> tuple[Any, ...]:
    data, starts = one_run(dice)
    prefix = data[HEADER_SIZE : HEADER_SIZE + dice.choice([1, 2, 20])] or b"x"
    return data, starts, damaged(dice, prefix) or b"y"


def for_pack_units(dice: random.Random) -> tuple[Any, ...]:
    return (one_run(dice)[1], dice.choice([1, 2]), *(dice.randrange(1 << 40) for _ in range(3)))


def for_plain_batches(dice: random.Random) -> tuple[Any, ...]:
    many = bodies(dice)
    return many, dice.randrange(len(many) + 2)


def for_plain_batches_of_run(dice: random.Random) -> tuple[Any, ...]:
    data, starts = one_run(dice)
    return data, starts, dice.randrange(len(starts) + 2), HEADER_SIZE


def for_pack_batches(dice: random.Random) -> tuple[Any, ...]:
    data, starts = one_run(dice)
    batches = [(dice.randrange(1, 1 << 32), dice.randrange(-(10**15), 10**15)) for _ in starts[1:]]
    numbers = [dice.randrange(1 << 40) for _ in range(5)]
    numbers[3] = dice.choice([-(1 << 63), 0, 10**14])
    return data, starts, batches, *numbers


def for_pack_rows(dice: random.Random) -> tuple[Any, ...]:
    size = dice.choice([1, 8, 40, 56])
    return (
        dice.randbytes(size * dice.randrange(5)),
        size,
        dice.choice([0, 5, (1 << 32) - 1, 1 << 40]),
    )


def for_fill_answers(dice: random.Random) -> tuple[Any, ...]:
    count = dice.randrange(6)
    ids = [dice.getrandbits(32) for _ in range(count)]
    return (
        pack_append_responses([0], [0], 0),
        ids,
        [dice.randrange(-1, 1 << 62) for _ in range(count)],
        dice.randrange(1 << 62),
    )


def for_take_frames(dice: random.Random) -> tuple[Any, ...]:
    """Frames with one header for the most part, which may be cut or damaged at any place."""
    frames = b""
    for number in range(dice.randrange(1, 6)):
        request = AppendRequest(timeout_ms=10_000 if dice.random() < 0.9 else dice.randrange(99999))
        many = [body(dice)] if dice.random() < 0.9 else []
        parts = [bytes(part) for part in encode(request, number, many)]
        if dice.random() < 0.1:  # of another kind
            parts[0] = pack_frame(99, number, parts[0][PREFIX_SIZE:], len(b"".join(parts[1:])))
        if dice.random() < 0.1:  # of another version, or with bits that have no meaning
            parts[0] = with_byte(parts[0], dice.choice([0, 1, 2, 3, 6, 7]), dice.randrange(256))
        frames += b"".join(parts)
    length = int.from_bytes(frames[12:16], "big")
    data, most = memoryview(damaged(dice, frames)), dice.choice([0, 1, 3, 99])
    largest_header, largest = (
        dice.choice([length - 1, length, 1 << 20]),
        dice.choice([100, 1 << 16]),
    )
    return data, 0, most, largest_header, largest, frame, []


def with_byte(frame: bytes, at: int, value: int) -> bytes:
    """The prefix and header with another byte there, and the checksum that belongs to it."""
    head = frame[:at] + bytes([value]) + frame[at + 1 : CHECKED]
    crc = crc32(frame[PREFIX_SIZE:], crc32(head))
    return head + crc.to_bytes(4, "big") + frame[PREFIX_SIZE:]


def for_rows_by_key(dice: random.Random) -> tuple[Any, ...]:
    """A column of keys, which may be a slice, have rows without a key, and more bytes than keys."""
    keys = [
        None if dice.random() < 0.2 else dice.randbytes(dice.choice([0, 1, 2, 3, 4, 7, 36, 300]))
        for _ in range(dice.choice([0, 1, 8, 9, 40]))
    ]
    column = pa.array(keys, pa.binary())
    valid, offsets, data = (bytes(part or b"") for part in column.buffers())
    first = dice.choice([0, dice.randrange(len(keys) + 1)])
    rows = dice.choice([len(keys) - first, dice.randrange(len(keys) - first + 1)])
    if dice.random() < 0.1:
        rows += dice.choice([1, 8, 1 << 40])
    partitions = dice.choice([1, 2, 7, 50, 1 << 16, (1 << 16) + 1])
    if offsets and dice.random() < 0.2:
        at = dice.choice([len(offsets) - 4, 4 * dice.randrange(len(offsets) // 4)])
        wrong = dice.choice([-1, -(1 << 31), (1 << 31) - 1, len(data) - 1, len(data) + 1, 3])
        offsets = offsets[:at] + struct.pack("=i", wrong) + offsets[at + 4 :]
    return offsets, data, valid, first, rows, partitions, dice.randrange(partitions)


def for_spread_bytes(dice: random.Random) -> tuple[Any, ...]:
    """A column of bytes, which may be a slice, and an order of its rows; now and then a row or a
    value outside of it, or room for other bytes."""
    values = [dice.randbytes(dice.choice([0, 1, 4, 36])) for _ in range(dice.choice([1, 2, 9]))]
    _, offsets, data = pa.array(values, pa.binary()).buffers()
    first = dice.choice([0, dice.randrange(len(values))])
    order = dice.sample(range(len(values) - first), len(values) - first)
    size = sum(map(len, values[first:]))
    if dice.random() < 0.2:
        order[0] = dice.choice([0, -1, len(order), len(values), (1 << 31) - 1])
    size += dice.choice([0] * 8 + [-1, 1])
    packed, offsets = struct.pack(f"={len(order)}i", *order), bytes(offsets)
    if dice.random() < 0.2:
        at = 4 * dice.randrange(len(offsets) // 4)
        wrong = dice.choice([-1, -(1 << 31), (1 << 31) - 1, len(data or b"") + 1, 3])
        offsets = offsets[:at] + struct.pack("=i", wrong) + offsets[at + 4 :]
    starts = bytearray(max(len(packed) + 4 + dice.choice([0] * 8 + [-4, 1, 4]), 0))
    return offsets, bytes(data or b""), first, packed, starts, bytearray(max(size, 0))


def for_count_sound(dice: random.Random) -> tuple[Any, ...]:
    """An answer's bodies, any of which may leave out offsets, have no records, or another CRC."""
    gap, position = dice.choice([0, 0, HEADER_SIZE]), dice.randrange(1 << 40)
    base, rows, payload = position - dice.choice([0, 0, 1, 2]), b"", b""
    for _ in range(dice.randrange(5)):
        one, count = body(dice), dice.choice([1, 1, 3, 3, 3, 1 << 31])
        if dice.random() < 0.1:
            base, count = dice.choice([(base ^ 1, 1), (base, 0), ((1 << 63) - 1, 1), (-9, 9)])
        crc = dice.choice([crc32(one)] * 9 + [0, 7])
        rows += FETCHED_ROW.pack(base, count, len(one), crc, 1, 1)
        payload, base = payload + dice.randbytes(gap) + one, min(base + count, (1 << 63) - 1)
    return damaged(dice, rows), memoryview(damaged(dice, payload)), gap, position


def for_join_values(dice: random.Random) -> tuple[Any, ...]:
    data = dice.randbytes(dice.choice([0, 8, 400]))
    starts = [dice.randrange(len(data) + 1) for _ in range(dice.choice([0, 1, 2, 20]))]
    sizes = [dice.randrange(min(40, len(data) - start) + 1) for start in starts]
    return memoryview(data), *(struct.pack(f"={len(each)}q", *each) for each in (starts, sizes))


def for_fetched_rows(dice: random.Random) -> tuple[Any, ...]:
    """A run, any of whose bodies may have no records, or offsets that go back."""
    base, rows = dice.choice([0, 5, -3, (1 << 63) - 9]), b""
    for _ in range(dice.randrange(5)):
        numbers = [dice.choice(BIG) for _ in range(5)]
        rows += RUN_ROW.pack(base, *numbers, *(dice.getrandbits(32) for _ in range(2)))
        base += dice.choice(
            [1, 1, 1, 2, 7, (1 << 32) - 1] + [0, -1, 1 << 32] * (dice.random() < 0.1)
        )
        base = min(base, (1 << 63) - 1)
    return damaged(dice, rows), base, dice.randrange(-1, 9)


def for_stretches(dice: random.Random) -> tuple[Any, ...]:
    counts = [dice.choice([1, 1, 1, 2, 0, 1 << 31]) for _ in range(dice.randrange(8))]
    rows = [FETCHED_ROW.pack(0, count, dice.getrandbits(32), 0, 1, 1) for count in counts]
    return damaged(dice, b"".join(rows)), dice.choice([0, HEADER_SIZE])


def for_one_record_parts(dice: random.Random) -> tuple[Any, ...]:
    """Bodies of one record, with a key or without, any of which may be of another shape."""
    gap, plain, keyed = dice.choice([0, 0, HEADER_SIZE]), dice.choice([8, 40]), dice.choice([8, 48])
    with_key, payload = dice.random() < 0.5, b""
    sizes: list[int] = []
    for _ in range(dice.choice([0, 1, 2, 5, 30])):
        is_keyed = with_key if dice.random() < 0.98 else not with_key
        flags = is_keyed * Flag.HAS_KEYS | dice.choice([0, 0, Flag.STAGED])
        flags |= Flag.HAS_HEADERS * (dice.random() < 0.02)
        time, count = dice.randrange(-(10**15), 10**15), 1 if dice.random() < 0.99 else 2
        header = BodyHeader(BodyKind.DATA, 1, 1, count, time, flags=Flag(flags))
        one = encode_header(header) + dice.randbytes((keyed if is_keyed else plain) - 4)
        if is_keyed:
            size = dice.choice([0, 1, 8, 11])
            one += struct.pack("<I", size) + dice.randbytes(padded(size))
            one += bytes([dice.random() < 0.02, 0, 0, 0])
        size = dice.choice([0, 3, 8, 70])
        one += struct.pack("<I", size) + dice.randbytes(padded(size))
        if dice.random() < 0.03:
            one = dice.choice([one[:-8], one + bytes(8), damaged(dice, one)])
        payload += dice.randbytes(gap) + one
        sizes.append(len(one))
    packed = struct.pack(f"={len(sizes)}q", *sizes)
    largest = dice.choice([LARGEST, LARGEST, LARGEST, 184])
    return memoryview(payload), packed, gap, largest, KINDS, ONE, plain, keyed


def for_heads_match(dice: random.Random) -> tuple[Any, ...]:
    """Heads of which few are not what they should be."""
    width = dice.choice([1, 8, 48])
    due = [dice.randbytes(width) for _ in range(dice.randrange(1, 4))]
    kinds = [dice.randrange(len(due)) for _ in range(dice.randrange(6))]
    payload, ends = b"", []
    for kind in kinds:
        payload += dice.randbytes(dice.randrange(9)) + due[kind]
        ends.append(len(payload))
    numbers = struct.pack(f"={len(ends)}q", *ends), struct.pack(f"={len(kinds)}i", *kinds)
    return memoryview(damaged(dice, payload)), *numbers, b"".join(due), width


def for_is_ascii(dice: random.Random) -> tuple[Any, ...]:
    """Texts, any of which may have another byte, or an offset that leads elsewhere."""
    sizes = [dice.choice([0, 1, 7, 8, 30]) for _ in range(dice.randrange(9))]
    places = [dice.choice([0, 3]), *sizes]
    for at in range(1, len(places)):
        places[at] += places[at - 1]
    text = bytearray(dice.choices(range(128), k=places[-1] + dice.choice([0, 5])))
    if text and dice.random() < 0.3:
        text[dice.randrange(len(text))] |= 0x80
    if dice.random() < 0.2:
        at = dice.randrange(len(places))
        places[at] = dice.choice([-1, 0, places[at] + 1, len(text) + 1])
    width, first = dice.choice([4, 8]), dice.randrange(len(places))
    offsets = struct.pack(f"={len(places)}{'i' if width == 4 else 'q'}", *places)
    return offsets, memoryview(bytes(text)), width, first, dice.randrange(len(places) - first)


def frame(fields: tuple[int, int, bytes, memoryview]) -> Frame:
    """As the reader of frames makes one."""
    return Frame(*fields)


MAKERS: dict[str, Make] = {
    "stamp_bodies": for_stamp_bodies,
    "split_runs": for_split_runs,
    "count_chained": for_count_chained,
    "bodies_match": one_run,
    "any_body_begins": for_any_body_begins,
    "pack_units": for_pack_units,
    "plain_batches": for_plain_batches,
    "plain_batches_of_run": for_plain_batches_of_run,
    "pack_batches": for_pack_batches,
    "pack_rows": for_pack_rows,
    "fill_answers": for_fill_answers,
    "take_frames": for_take_frames,
    "rows_by_key": for_rows_by_key,
    "spread_bytes": for_spread_bytes,
    "count_sound": for_count_sound,
    "fetched_rows": for_fetched_rows,
    "stretches": for_stretches,
    "one_record_parts": for_one_record_parts,
    "heads_match": for_heads_match,
    "join_values": for_join_values,
    "is_ascii": for_is_ascii,
}
"""What makes the arguments of each function."""


def lying(dice: random.Random, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same arguments, one of which lies about the others: numbers that lead anywhere, or a
    shorter buffer."""
    changed = list(arguments)
    at = dice.randrange(len(changed))
    value = changed[at]
    if isinstance(value, list) and value and isinstance(value[0], int):
        value = list(value)
        value[dice.randrange(len(value))] = dice.choice((*BIG, 7, 48, 100, 5000))
        changed[at] = value
    elif isinstance(value, int):
        changed[at] = dice.choice((*BIG, 7, 48, 100))
    elif isinstance(value, bytes | memoryview):
        changed[at] = bytes(value)[: dice.randrange(len(value) + 1)]
    return tuple(changed)
