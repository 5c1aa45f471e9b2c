"""How far a store has been written, while a broker writes it: the end of its whole messages, and in
DLedger mode of the committed ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from dledger.rocketmq.files.dledger_end import committed_end, committed_index, ledger_end
from dledger.rocketmq.files.layout import DLEDGER, Form, LogFile, Store
from dledger.rocketmq.files.ranges import FileRange
from dledger.rocketmq.files.storage import NOTHING
from dledger.rocketmq.format.scanned_piece import ScannedPiece

INDEX: Final = "index"
LEAST_BACK: Final = 1 << 16
BLANK: Final = b"\xff\xff\xff\xff"
Places = dict[str, int]
"""Form -> place in the log, at the border between two messages."""


def begins(store: Store) -> Places:
    """Where each log of the store begins."""
    return {form.name: form.begin for form in store.forms}


def ends(store: Store, known: Mapping[str, int]) -> Places:
    """Behind the last whole message of each log; of one in DLedger mode, the last that is known to
    be committed.

    Args:
        known: borders up to which the logs are known to be sound.
    """
    return {form.name: _end(store, form, known.get(form.name, form.begin)) for form in store.forms}


def _end(store: Store, form: Form, known: int) -> int:
    file = form.files[-1]
    span = file.span
    if span.next_start is not None:  # the other log goes on behind this one
        return span.next_start
    if form.name != DLEDGER:
        return _written_end(store, file, known)
    if committed_index(store.storage, form) is None:
        if _is_young(store, form):
            return known
        at = known if span.start <= known <= span.data_end else span.start  # DLedger 0.4.0
        end = ledger_end(store.storage, form, _entry_before(store, form, at))
        return min(_written_end(store, file, at), end)
    committed = committed_end(store.storage, form)
    if committed is None:  # its entry is not there yet
        return known
    if committed >= known:
        return max(committed, form.begin)
    # Messages shown once stay shown while they are there: this checkpoint is a copy, or the first
    # one of a node that had none.
    return min(known, _written_end(store, file, committed), ledger_end(store.storage, form))


def _written_end(store: Store, file: LogFile, known: int) -> int:
    """Behind the last whole message of the log's last file; ``known`` is a border."""
    inside = file.span.start <= known <= file.span.data_end
    reader = file.reader(store.storage, entries=store.layout == DLEDGER)
    return reader.written_end(known if inside else file.span.start)


def _is_young(store: Store, form: Form) -> bool:
    """Whether this is a broker's log of DLedger mode before its first checkpoint, some seconds
    after its begin."""
    if store.layout == DLEDGER or form.base is None:
        return False
    return INDEX in (store.storage.list(form.base) or NOTHING).folders


def _entry_before(store: Store, form: Form, at: int) -> int:
    """Where an entry begins before a border, for telling the entries behind it; the log's begin
    where there is none."""
    back = LEAST_BACK
    while at - back > form.begin:
        found = place_at(store, form, at - back, at)
        file = form.file_at(found)
        if found < at and file is not None:
            magic = store.storage.read_exactly(file.path, file.span.start, found, 4)
            if magic != BLANK:
                return found
        back *= 8
    return form.begin


def bounded(
    store: Store, starts: Mapping[str, int], stops: Mapping[str, int], most: int | None
) -> Places:
    """Where a part of [starts, stops) ends that has at most ``most`` bytes, or one message where
    that has more."""
    places, left = dict(starts), most
    for form in store.forms:
        start, stop = starts.get(form.name, 0), stops.get(form.name, 0)
        if start >= stop:
            continue
        if left is None or stop - start <= left:
            places[form.name] = stop
            left = None if left is None else left - (stop - start)
            continue
        if left > 0 or places == dict(starts):
            places[form.name] = _border(store, form, start, stop, start + left)
        break
    return places


def place_at(store: Store, form: Form, wanted: int, stop: int) -> int:
    """The first border of a log at or behind a place; ``stop`` where there is none before it."""
    if wanted <= form.begin:
        return form.begin
    return stop if wanted >= stop else _border(store, form, wanted - 1, stop, wanted)


def _border(store: Store, form: Form, start: int, stop: int, wanted: int) -> int:
    """The last border up to ``wanted`` as far as it can be told, and behind ``start``."""
    file = form.file_at(wanted)
    if file is None:  # in a gap between files
        return next((f.span.start for f in form.files if f.span.start > wanted), stop)
    begin = max(wanted, start + 1)
    reader = file.reader(store.storage, entries=store.layout == DLEDGER)
    found = reader.border(begin, file.span.data_end)
    if found is None:
        found = file.span.file_end if file.span.next_start is None else file.span.next_start
    return min(found, stop)


def ranges_between(
    store: Store, starts: Mapping[str, int], stops: Mapping[str, int]
) -> list[FileRange]:
    """The files of [starts, stops), which are borders; no bytes behind ``stops`` are read."""
    ranges: list[FileRange] = []
    for form in store.forms:
        start, stop = starts.get(form.name, form.begin), stops.get(form.name, form.begin)
        for file in form.files:
            span = file.span
            if stop < span.data_end:
                span = replace(span, data_end=max(stop, span.start), next_start=stop)
            begin, end = max(start, span.start), min(stop, span.data_end)
            if begin < end:
                ranges.append(FileRange(file.path, span, begin, end, exact=True))
    return ranges


def faults_between(
    store: Store, starts: Mapping[str, int], stops: Mapping[str, int]
) -> list[ScannedPiece]:
    """The faults between files of [starts, stops)."""
    return [
        fault
        for form in store.forms
        for fault in form.faults
        if starts.get(form.name, form.begin) < fault.end
        and fault.start < stops.get(form.name, form.begin)
    ]
