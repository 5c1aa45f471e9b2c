"""Messages of a store by key, by id or by place: through RocketMQ's index files where it has them, else by a scan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger.errors import FormatError
from dledger.foreign.forms import DLEDGER, Store
from dledger.foreign.ranges import FileRange, plan_store, read_range
from dledger.foreign.storage import Storage
from dledger.messages.entry import HEADER_SIZE
from dledger.rocketmq.columns import Wanted
from dledger.rocketmq.hosts import OffsetId
from dledger.rocketmq.index_file import IndexReader
from dledger.rocketmq.scan import Piece

__all__ = ["Found", "Search", "message_with_id", "search"]

INDEX: Final = "index"
NAME_DIGITS: Final = 17
MATCHED: Final = ("physical_offset", "unique_key", "keys")


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for; everything that is given must fit."""

    topic: str = ""
    key: str = ""
    """A word of the message's KEYS, or its unique key."""
    stored_from: int | None = None
    """Milliseconds since 1970."""
    stored_before: int | None = None
    """Milliseconds since 1970."""

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.topic.__eq__ if self.topic else None, self.stored_from, self.stored_before)


@dataclass(frozen=True, slots=True)
class Found:
    """A message, or damage that was come by."""

    row: dict[str, Any] | None = None
    """By the names of `dledger.rocketmq.columns.SCHEMA`."""
    damage: Piece | None = None


def search(store: Store, wanted: Search, slots: int) -> Iterator[Found]:
    """Messages that fit, in the order of the log.

    Args:
        slots: of each index file (the broker's maxHashSlotNum).

    Raises:
        FormatError: the index contradicts itself, or has another number of slots.
    """
    indexes = _indexes(store.storage, slots) if wanted.topic and wanted.key else []
    if not indexes:
        yield from _scan(store, wanted, 0, None)
        return
    begin = min(index.begin_offset for index in indexes)
    end = max(index.end_offset for index in indexes)
    yield from _scan(store, wanted, 0, begin)
    # times are compared in the messages: an index has whole seconds since its first one, none before it
    places = {place for index in indexes for place in index.lookup(wanted.topic, wanted.key)}
    for place in sorted(places):
        row = message_at(store, place)
        if row is not None and _fits(row, wanted):
            yield Found(row)
    yield from _scan(store, wanted, end + 1, None)


def message_at(store: Store, place: int) -> dict[str, Any] | None:
    """The message at a physical offset; None where no sound one begins."""
    for form in store.forms:
        begin = place - HEADER_SIZE if form.name == DLEDGER else place
        file = form.file_at(begin)
        if file is None:
            continue
        one = FileRange(file.path, file.span, begin, begin + 1, exact=True)
        batch = next(iter(read_range(store.storage, store.layout, one)), None)
        rows = batch.rows.slice(0, 1).to_pylist() if batch is not None and batch.rows is not None else []
        if rows and rows[0]["physical_offset"] == place:
            row: dict[str, Any] = rows[0]
            return row
    return None


def message_with_id(store: Store, text: str) -> dict[str, Any] | None:
    """The message with this broker's id; None where there is none, or it is no such id."""
    try:
        wanted = OffsetId.parse(text)
    except FormatError:
        return None
    row = message_at(store, wanted.physical_offset)
    return row if row is not None and row["message_id"] == str(wanted) else None


def _indexes(storage: Storage, slots: int) -> list[IndexReader]:
    """A file has 420 MB by default; of these only the places are read that a look-up needs."""
    listing = storage.list(INDEX)
    files = {} if listing is None else listing.files
    indexes = []
    for name in sorted(n for n in files if len(n) == NAME_DIGITS and n.isdecimal()):
        path = f"{INDEX}/{name}"
        try:
            indexes.append(IndexReader(partial(storage.read_exactly, path, 0), files[name], slots))
        except FormatError as error:
            raise FormatError(f"{storage.join(path)}: {error}. The slots are the broker's maxHashSlotNum") from error
    return [index for index in indexes if index.count > 1]


def _scan(store: Store, wanted: Search, begin: int, stop: int | None) -> Iterator[Found]:
    """All of a part of the log; messages that fit are then read once more, with everything in them."""
    if stop is not None and stop <= begin:
        return
    for one in plan_store(store, begin, stop, wanted.wanted).ranges:
        for batch in read_range(store.storage, store.layout, one, MATCHED, wanted.wanted):
            yield from (Found(damage=piece) for piece in batch.damage)
            if batch.rows is not None:
                for place in _matching(batch.rows, wanted.key):
                    row = message_at(store, place)
                    if row is not None:
                        yield Found(row)


def _matching(rows: pa.RecordBatch, key: str) -> Sequence[int]:
    """Physical offsets of the rows with this key, which may be one of several words."""
    if not key:
        places: list[int] = rows.column(0).to_pylist()
        return places
    near = pc.or_kleene(pc.equal(rows.column(1), key), pc.match_substring(rows.column(2), key)).fill_null(False)
    return [row["physical_offset"] for row in rows.filter(near).to_pylist() if _has_key(row, key)]


def _has_key(row: dict[str, Any], key: str) -> bool:
    return row["unique_key"] == key or key in (row["keys"] or "").split(" ")


def _fits(row: dict[str, Any], wanted: Search) -> bool:
    stored = row["store_timestamp"].timestamp() * 1000 if row["store_timestamp"] else 0
    late = wanted.stored_from is None or stored >= wanted.stored_from
    early = wanted.stored_before is None or stored < wanted.stored_before
    return row["topic"] == wanted.topic and _has_key(row, wanted.key) and late and early
