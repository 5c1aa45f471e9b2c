"""Messages of a store by key, by id or by place: through RocketMQ's index files where it has them,
else by a scan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger.errors import FormatError
from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.rocketmq.columns.commit_log import Wanted
from dledger.rocketmq.files.claimed_end import last_claim
from dledger.rocketmq.files.index_cover import Cover, IndexPart, joined, read_cover
from dledger.rocketmq.files.layout import DLEDGER, Store
from dledger.rocketmq.files.ranges import FileRange, plan_store, read_range
from dledger.rocketmq.format.hosts import OffsetId
from dledger.rocketmq.format.index_file import key_hash
from dledger.rocketmq.format.scanned_piece import ScannedPiece

MATCHED: Final = ("physical_offset", "unique_key", "keys")


@dataclass(frozen=True, slots=True)
class Search:
    """The terms of a search; a message must match all that are given."""

    topic: str = ""
    key: str = ""
    """A word of the message's KEYS, or its unique key."""
    stored_from: int | None = None
    """Milliseconds since 1970."""
    stored_before: int | None = None
    """Milliseconds since 1970."""

    @property
    def wanted(self) -> Wanted:
        return Wanted(
            self.topic.__eq__ if self.topic else None, self.stored_from, self.stored_before
        )


@dataclass(frozen=True, slots=True)
class Found:
    """A message, damage that was come by, or a note on the index."""

    row: dict[str, Any] | None = None
    """By the names of `dledger.rocketmq.columns.commit_log.SCHEMA`."""
    damage: ScannedPiece | None = None
    note: str = ""


def search(store: Store, wanted: Search, slots: int) -> Iterator[Found]:
    """Messages that fit, in the order of the log. Where the index has a hole, or is damaged, the
    log is scanned.

    Args:
        slots: of each index file (the broker's maxHashSlotNum).

    Raises:
        FormatError: no index file can be used, or they have another number of slots.
    """
    cover = read_cover(store.storage, slots) if wanted.topic and wanted.key else Cover((), ())
    yield from (
        Found(note=f"{fault}. What it should cover is read through in the log")
        for fault in cover.faults
    )
    if (lost := _lost_end(store)) is not None:
        yield Found(note=lost)
    rows: dict[int, dict[str, Any]] = {}
    gaps = cover.gaps()
    for part in cover.parts:
        reason = _look_up(store, wanted, part, rows)
        if reason:
            path = store.storage.join(part.path)
            yield Found(note=f"{path}: {reason}. What it covers is read through in the log")
            gaps.append(part.span)
    scanned = chain.from_iterable(_scan(store, wanted, *gap) for gap in joined(gaps))
    yield from _in_order({at: row for at, row in rows.items() if _fits(row, wanted)}, scanned)


def _lost_end(store: Store) -> str | None:
    """The warning where index or queues know of a later message than the log has; None where they
    do not."""
    last = last_claim(store.storage)
    if last is None or last.place < store.forms[0].begin or message_at(store, last.place):
        return None
    return (
        f"{store.storage.join(last.path)}: it names a message at {last.place:,}, where none is: "
        "the log has lost its end, or is damaged there. 'dledger rocketmq verify' tells what is "
        "missing; put back the whole file"
    )


def _in_order(rows: dict[int, dict[str, Any]], scanned: Iterator[Found]) -> Iterator[Found]:
    """The messages that the index has led to and those scanned, by place, each once."""
    places = sorted(rows, reverse=True)
    for found in scanned:
        place = -1 if found.row is None else int(found.row["physical_offset"])
        while places and place >= 0 and places[-1] <= place:
            if (at := places.pop()) != place:
                yield Found(rows[at])
        yield found
    yield from (Found(rows[at]) for at in reversed(places))


def _look_up(store: Store, wanted: Search, part: IndexPart, rows: dict[int, dict[str, Any]]) -> str:
    """Add the messages that one index file names for the key; returns the damage of it, or of the
    log there."""
    reason = ""
    # times are compared in the messages: an index has whole seconds since its first one, none
    # before it
    try:
        places = part.reader.lookup(wanted.topic, wanted.key)
    except FormatError as error:
        return str(error)
    hashed = key_hash(wanted.topic, wanted.key)
    for place in places:
        row = message_at(store, place)
        if row is None:
            if place >= store.forms[0].begin:  # earlier ones were removed with their file
                reason = f"it names a message at {place:,}, and the log has none there"
        elif hashed not in {key_hash(row["topic"], key) for key in _keys(row)}:
            reason = f"it names a message at {place:,}, and that one has another key"
        else:
            rows[place] = row
    return reason


def message_at(store: Store, place: int) -> dict[str, Any] | None:
    """The message at a physical offset; None where no sound one begins."""
    for form in store.forms:
        begin = place - HEADER_SIZE if form.name == DLEDGER else place
        file = form.file_at(begin)
        if file is None:
            continue
        one = FileRange(file.path, file.span, begin, begin + 1, exact=True)
        batch = next(iter(read_range(store.storage, store.layout, one)), None)
        rows = batch.rows.slice(0, 1).to_pylist() if batch and batch.rows else []
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


def _scan(store: Store, wanted: Search, begin: int, stop: int | None) -> Iterator[Found]:
    """All of a part of the log; messages that fit are then read once more, with everything in
    them."""
    if stop is not None and stop <= begin:
        return
    plan = plan_store(store, begin, stop, wanted.wanted)
    yield from (Found(damage=piece) for piece in plan.faults)
    for one in plan.ranges:
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
    is_unique, has_word = pc.equal(rows.column(1), key), pc.match_substring(rows.column(2), key)
    near = rows.filter(pc.or_kleene(is_unique, has_word).fill_null(False)).to_pylist()
    return [row["physical_offset"] for row in near if key in _keys(row)]


def _keys(row: dict[str, Any]) -> list[str]:
    return [key for key in (row["unique_key"], *(row["keys"] or "").split(" ")) if key]


def _fits(row: dict[str, Any], wanted: Search) -> bool:
    stored = row["store_timestamp"].timestamp() * 1000 if row["store_timestamp"] else 0
    late = wanted.stored_from is None or stored >= wanted.stored_from
    early = wanted.stored_before is None or stored < wanted.stored_before
    return row["topic"] == wanted.topic and wanted.key in _keys(row) and late and early
