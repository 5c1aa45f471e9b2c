"""The rows of a partition's table.

Every batch is a row of 56 bytes, little-endian::

    byte 0             8       16    24              32           40             48     52    56
         | base offset | index | pos | newest so far | applied at | bytes before | size | crc |

``newest so far`` is the largest record time up to this row, ``applied at`` the entry that gave the
row its offsets (its own, or its transaction's COMMIT), ``bytes before`` the sum of the sizes of all
rows before it. These and the base offset never fall from row to row, so each can be searched;
``index`` can fall, because a transaction's batches lie in the log before the entry that commits
them. A row's count is the next one's base offset less its own.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from dledger.compiled import compiled
from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.protocol.messages.entry_bytes import crcs_at
from dledger.protocol.messages.fetched import RUN_ROW
from dledger.types import Buffer

ROW: Final = struct.Struct("<qqqqqqII")
ROW_SIZE: Final = 56
assert ROW.size == ROW_SIZE
assert ROW.format == RUN_ROW.format, "rows are sent as they are"


@compiled
def pack_batches(
    data: Buffer,
    starts: Sequence[int],
    counts_and_times: Sequence[tuple[int, int]],
    index: int,
    pos: int,
    base_offset: int,
    newest_us: int,
    bytes_before: int,
) -> tuple[bytes, list[int], int, int, int]:
    """The rows of a run of batches (see `dledger.protocol.messages.entry_bytes`), each with its
    records and its newest time; the first has this index and pos, and goes behind ``base_offset``,
    ``newest_us`` and ``bytes_before``. The rows, the first offset of each, and these three behind
    the last one."""
    pack = ROW.pack
    base_offsets: list[int] = []
    rows: list[bytes] = []
    for (start, stop), (count, last_us) in zip(pairwise(starts), counts_and_times, strict=True):
        size, (_, crc) = stop - start - HEADER_SIZE, crcs_at(data, start)
        if last_us > newest_us:
            newest_us = last_us
        base_offsets.append(base_offset)
        rows.append(
            pack(base_offset, index, pos + start, newest_us, index, bytes_before, size, crc)
        )
        base_offset += count
        bytes_before += size
        index += 1
    return b"".join(rows), base_offsets, base_offset, newest_us, bytes_before


def row_edges(rows: Buffer, next_offset: int, all_bytes: int) -> tuple[list[int], list[int]]:
    """The base offsets of a table's last rows, and the bytes before each; and both of the row to
    come."""
    fields = list(ROW.iter_unpack(rows))
    return [*[row[0] for row in fields], next_offset], [*[row[5] for row in fields], all_bytes]


def cut_rows(
    bases: list[int], before: list[int], start: int, end: int, target_bytes: int, max_pieces: int
) -> list[tuple[int, int]]:
    """`Partition.split` of a range that lies in the rows with these `row_edges`."""
    cuts: list[tuple[int, int]] = []
    row, stop = bisect_right(bases, start) - 1, bisect_left(bases, end)
    while row < stop and len(cuts) < max_pieces:
        done = before[row]
        row = min(max(row + 1, bisect_left(before, done + target_bytes)), stop)
        cuts.append((min(bases[row], end), before[row] - done))
    return cuts
