"""The same as ``reput`` for many messages at once: units and keys of a chunk of the commit log by
numpy and Arrow.

Queues and index get the same bytes. Messages that do not fit (entries of DLedger mode, delayed
messages, gaps in a queue, messages put already, damage) go through `Reput`, one at a time. A node,
which loads no Arrow, does not use this.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger.rocketmq.columns.borders import Rows
from dledger.rocketmq.columns.properties import text_bounds
from dledger.rocketmq.dispatch.build_consume_queue import ROLLBACK, SCHEDULE_TOPIC, Reput
from dledger.rocketmq.dispatch.chunk import Chunk, Ints, sound_rows
from dledger.rocketmq.format.index_file import HEADER, UNIT
from dledger.rocketmq.format.properties import java_hash
from dledger.rocketmq.store.index_file import MAX_INT, OpenIndex
from dledger.rocketmq.store.index_service import IndexService
from dledger.rocketmq.with_numpy import np, npt
from dledger.types import Buffer

CQ_UNIT: Final = np.dtype([("place", ">i8"), ("size", ">i4"), ("tags", ">i8")])
INDEX_UNIT: Final = np.dtype(
    [("hash", ">i4"), ("place", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
POWERS: Final = np.concatenate(
    (np.ones(1, np.uint32), np.cumprod(np.full(1 << 15, 31, np.uint32), dtype=np.uint32))
)
"""Of 31, as Java's 32-bit numbers have them."""


class ColumnReput(Reput):
    """A `Reput` for logs that come in large pieces, as when a slave catches up."""

    def dispatch(self, data: Buffer, start: int, file_end: int) -> int:
        """As `Reput.dispatch`."""
        # The chunk has only messages that all the rules hold for, and moves `offset` behind them.
        # `Reput` dispatches the rest, one message at a time.
        if start <= self.offset:
            view = memoryview(data).cast("B")[self.offset - start :]
            chunk = DispatchChunk.of(view, self.offset, self._index is not None)
            if chunk is not None:
                self._put_chunk(chunk)
        return super().dispatch(data, start, file_end)

    def _put_chunk(self, chunk: DispatchChunk) -> None:
        with self._writing():
            for key, rows in chunk.queues():
                self._put_queue(chunk, key, rows)
            if self._index is not None:
                put_keys(self._index, chunk)
        self.store_timestamp = int(chunk.stored[-1])
        self.offset = chunk.end

    def _put_queue(self, chunk: DispatchChunk, key: tuple[str, int], rows: Ints) -> None:
        """The messages of one queue."""
        offsets, places, sizes, tags = (
            column[rows] for column in (chunk.queue_offsets, chunk.places, chunk.sizes, chunk.tags)
        )
        # Offsets without a gap are one write, if they go on where the queue ends. Else each message
        # goes by the rules of `ConsumeQueues.put`.
        if bool((np.diff(offsets) == 1).all()):
            units = np.empty(len(rows), CQ_UNIT)
            units["place"], units["size"], units["tags"] = places, sizes, tags
            end = int(places[-1] + sizes[-1])
            if self._queues.put_units(key, int(offsets[0]), int(places[0]), end, units.tobytes()):
                return
        columns = (column.tolist() for column in (offsets, places, sizes, tags))
        for offset, place, size, code in zip(*columns, strict=True):
            self._queues.put(*key, offset, place, size, code)


class DispatchChunk(Chunk):
    """Sound plain messages one behind the other, with all that queues and index need of them."""

    def __init__(self, rows: Rows, start: int, *, with_keys: bool) -> None:
        super().__init__(rows, start)
        self.stored = rows.fields.int64(rows.born_host_end)
        tags = self.columns.column("tags").dictionary_encode()
        codes = np.array(
            [*(java_hash(one) if one else 0 for one in tags.dictionary.to_pylist()), 0], np.int64
        )
        self.tags: Ints = codes[tags.indices.fill_null(len(codes) - 1).to_numpy()]
        nothing = np.zeros(0, np.int64)
        self.key_rows, self.key_hashes = self._hashed_keys() if with_keys else (nothing, nothing)
        """Row and hash of each key, in the order in which a broker puts them: a row's unique key,
        then its words."""

    @staticmethod
    def of(view: memoryview, start: int, with_keys: bool) -> DispatchChunk | None:
        """The messages at the begin of these bytes; None where there are few, or some that need to
        be looked at one by one."""
        rows = sound_rows(view, start)
        if rows is None:
            return None
        try:
            chunk = DispatchChunk(rows, start, with_keys=with_keys)
        except UnicodeDecodeError:
            return None
        return None if SCHEDULE_TOPIC in chunk.topics else chunk

    def _hashed_keys(self) -> tuple[Ints, Ints]:
        words = pc.split_pattern(self.columns.column("keys"), " ")
        counts = pc.list_value_length(words).fill_null(0).to_numpy()
        rows = np.concatenate(
            (np.arange(len(self.places)), np.repeat(np.arange(len(self.places)), counts))
        )
        texts = pa.concat_arrays([self.columns.column("unique_key"), words.flatten()])
        sizes = pc.fill_null(pc.binary_length(texts), 0).to_numpy()
        there = np.flatnonzero(sizes)
        there = there[np.argsort(rows[there], kind="stable")]
        rows = rows[there]
        prefixes = np.array(
            [java_hash(f"{topic}#") & 0xFFFF_FFFF for topic in self.topics], np.uint32
        )
        return rows, hashes(texts.take(pa.array(there)), prefixes[self.topic_codes[rows]])


def hashes(texts: pa.Array, prefixes: npt.NDArray[np.uint32]) -> Ints:
    """Java's hashes of texts, none of them empty, each behind another one whose hash is given; made
    positive as the index has them."""
    bounds = text_bounds(texts).astype(np.int64)
    if not len(texts):
        return np.zeros(0, np.int64)
    data = np.frombuffer(texts.buffers()[2], np.uint8)[bounds[0] : bounds[-1]]
    sizes, begins = np.diff(bounds), bounds[:-1] - bounds[0]
    # The hash of two texts in a row is hash(first) * 31**len(second) + hash(second), and that of
    # one text the sum of its bytes times 31**(bytes behind). All modulo 2**32, as Java counts.
    powers = POWERS[np.repeat(begins + sizes, sizes) - 1 - np.arange(len(data))]
    found = np.add.reduceat(data * powers, begins, dtype=np.uint32) + prefixes * POWERS[sizes]
    # Java hashes UTF-16 units. These equal the bytes of UTF-8 for ASCII alone, so other texts are
    # hashed one by one.
    if data.size and int(data.max()) > 0x7F:
        for n in np.flatnonzero(np.maximum.reduceat(data, begins) > 0x7F).tolist():
            text = texts[n].as_py()
            units = len(text.encode("utf-16-be")) // 2
            found[n] = (int(prefixes[n]) * pow(31, units, 1 << 32) + java_hash(text)) & 0xFFFF_FFFF
    positive = np.abs(found.astype(np.int32).astype(np.int64))
    return np.where(positive > MAX_INT, 0, positive)


def put_keys(index: IndexService, chunk: DispatchChunk) -> None:
    """All keys of a chunk: those of whole messages at once, as far as a file has room."""
    rows, found = chunk.key_rows, chunk.key_hashes
    new = (chunk.state[rows] != ROLLBACK) & (chunk.places[rows] >= index.end_offset)
    rows, found = rows[new], found[new]
    at, count = 0, len(rows)
    while at < count:
        row = int(rows[at])
        place = int(chunk.places[row])
        file = index.current() if place > index.end_offset else None
        stop = at if file is None else min(count, at + file.capacity - file.count)
        if at < stop < count:  # the message that goes on in the next file is put by itself
            stop = int(np.searchsorted(rows, rows[stop], "left"))
        if file is None or stop <= at:
            stop = int(np.searchsorted(rows, row, "right"))
            index.put_hashes(found[at:stop].tolist(), place, int(chunk.stored[row]))
        else:
            write_keys(
                file, found[at:stop], chunk.places[rows[at:stop]], chunk.stored[rows[at:stop]]
            )
            last = int(rows[stop - 1])
            index.note(int(chunk.places[last]), stop - int(np.searchsorted(rows, last, "left")))
        at = stop


def write_keys(file: OpenIndex, found: Ints, places: Ints, stored: Ints) -> None:
    """Write units to a file that has room for them, each leading to the one before it in its
    slot."""
    slots = found % file.slots
    order = np.argsort(slots, kind="stable")
    numbers = file.count + np.arange(len(found))
    is_first = np.diff(slots[order], prepend=-1) != 0
    is_last = np.append(is_first[1:], True)
    table = np.frombuffer(file.table, ">i4", file.slots, HEADER.size)
    before = table[slots[order]].astype(np.int64)
    before = np.where((before > 0) & (before < file.count), before, 0)
    # Sorted by slot, a unit leads to the one before it in the row. The first of a slot leads to the
    # newest unit that the file had there, and the slot to the last.
    before[~is_first] = numbers[order][:-1][~is_first[1:]]
    if file.is_empty:
        file.begin_timestamp, file.begin_offset = int(stored[0]), int(places[0])
    units = np.empty(len(found), INDEX_UNIT)
    units["hash"], units["place"] = found, places
    units["seconds"] = np.clip((stored - file.begin_timestamp) // 1000, 0, MAX_INT)
    units["previous"][order] = before

    def set_slots() -> int:
        table[slots[order][is_last]] = numbers[order][is_last]
        return int((before[is_first] == 0).sum())

    file.write_units(units.tobytes(), set_slots, int(places[-1]), int(stored[-1]))


assert INDEX_UNIT.itemsize == UNIT.size
