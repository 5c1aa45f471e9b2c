"""The bytes of a run's entries: all that looks at each entry of many, compiled where possible.

``data`` are the entries, header and body of each, one right behind the other; ``starts`` the place
of each in them and, last, their size.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Final

from dledger.checksum import crc32
from dledger.compiled import compiled
from dledger.protocol.messages.entry import HEADER, HEADER_SIZE, MIN_BLANK_SIZE
from dledger.types import Buffer

_ALL_BUT_CHAIN: Final = struct.Struct(">36s4x8s")
"""Packed again, the header has zeros in place of ``chainCrc``."""
crcs_at = struct.Struct(">36xII").unpack_from
"""``chainCrc`` and ``bodyCrc`` of the header at a place."""
_SIZE: Final = struct.Struct(">I")


@compiled
def stamp_bodies(
    bodies: Sequence[Buffer],
    begin: int,
    largest: int,
    room: int,
    magic: int,
    term: int,
    index: int,
    pos: int,
    chain_crc: int,
) -> tuple[bytes, list[int], int]:
    """The entries of the bodies from the place ``begin`` on, the first with this index, at this
    position, behind this ``chainCrc``; as many as are below ``largest`` bytes and fit into ``room``
    bytes of the file. Their bytes, their starts and the last one's ``chainCrc``."""
    parts: list[Buffer] = []
    starts, at, pack = [0], 0, HEADER.pack
    for body in islice(bodies, begin, None):
        length = len(body)
        size = HEADER_SIZE + length
        if length >= largest or at + size + MIN_BLANK_SIZE > room:
            break
        body_crc, place = crc32(body), pos + at
        chain_crc = crc32(pack(magic, size, index, term, place, 0, 0, body_crc, length), chain_crc)
        parts += (pack(magic, size, index, term, place, 0, chain_crc, body_crc, length), body)
        at += size
        index += 1
        starts.append(at)
    return b"".join(parts), starts, chain_crc


@compiled
def split_runs(data: Buffer, sizes: Buffer) -> list[tuple[int, int, int, int, int, list[int]]]:
    """Entries of these sizes, 4 bytes each, cut into runs: index, term, magic and pos of the first
    entry of each, its place in ``data``, and the starts from there on. Checksums are not looked at.

    Raises:
        ValueError: the sizes do not agree with one another.
    """
    if len(sizes) % _SIZE.size:
        raise ValueError(f"{len(sizes)} bytes are no row of 4-byte sizes")
    runs: list[tuple[int, int, int, int, int, list[int]]] = []
    starts: list[int] = []
    at = begin = 0
    due = (-1, -1, -1, -1)
    for (size,) in _SIZE.iter_unpack(sizes):
        if size < HEADER_SIZE:
            raise ValueError(f"an entry has at least {HEADER_SIZE} bytes, not {size}")
        if at + size > len(data):
            raise ValueError(f"more bytes announced than the {len(data)} that came")
        magic, stated, index, term, pos, _, _, _, body_size = HEADER.unpack_from(data, at)
        if stated != size or body_size != size - HEADER_SIZE:
            raise ValueError(f"entry {index} says size {stated}, body {body_size}, in {size} bytes")
        if (index, term, magic, pos) != due:
            if starts:
                starts.append(at - begin)
            begin, starts = at, []
            runs.append((index, term, magic, pos, begin, starts))
        starts.append(at - begin)
        at += size
        due = (index + 1, term, magic, pos + size)
    if starts:
        starts.append(at - begin)
    if at != len(data):
        raise ValueError(f"{at} bytes announced, {len(data)} came")
    return runs


@compiled
def count_chained(
    data: Buffer, starts: Sequence[int], most: int, chain_crc: int
) -> tuple[int, int]:
    """How many of the first ``most`` entries continue the chain of checksums behind ``chain_crc``,
    and the ``chainCrc`` of the last of them. An unverified entry continues one of such entries
    alone."""
    unpack, pack = _ALL_BUT_CHAIN.unpack_from, _ALL_BUT_CHAIN.pack
    for at, start in enumerate(islice(starts, most)):
        stated, body_crc = crcs_at(data, start)
        found = crc32(pack(*unpack(data, start)), chain_crc)
        if found != stated and (chain_crc or stated or body_crc):
            return at, chain_crc
        chain_crc = stated
    return most, chain_crc


@compiled
def bodies_match(data: Buffer, starts: Sequence[int]) -> bool:
    """Whether the body of each entry is the one that its leader stamped. That of an unverified
    entry is taken on trust, as DLedger does."""
    view = memoryview(data)
    for start, stop in pairwise(starts):
        chain_crc, body_crc = crcs_at(data, start)
        if (chain_crc or body_crc) and crc32(view[start + HEADER_SIZE : stop]) != body_crc:
            return False
    return True


@compiled
def any_body_begins(data: Buffer, starts: Sequence[int], prefix: bytes) -> bool:
    """Whether the body of an entry begins with these bytes, of which there is at least one."""
    view, byte, size = memoryview(data), prefix[-1], len(prefix)
    for start, stop in pairwise(starts):
        end = start + HEADER_SIZE + size
        # the last byte first: a slice costs more than all the rest
        if end <= stop and view[end - 1] == byte and view[end - size : end] == prefix:
            return True
    return False
