"""Which data files may go: whole ones, expired ones, from the front, and never to make room
(D12)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dledger.storage.api import DiskLevel, Held
from dledger.storage.disk.disk import DiskSpace
from dledger.storage.log.index_rebuild import first_index, header_at
from dledger.storage.log.reader import LogView
from dledger.storage.meta.recovery_point import RecoveryPoints
from dledger.storage.recovery.open_files import Parts, StoreSettings
from dledger.types import NO_INDEX, Index


@dataclass(frozen=True, slots=True)
class FileAge:
    """One data file with entries: the first entry behind it, and when it was last written (ms since
    1970), which is when the next file's first entry came: no record in it is newer."""

    start: int
    next_index: Index
    written_ms: int


def level_of(space: DiskSpace, settings: StoreSettings, no_room_for_next: bool) -> DiskLevel:
    """How full the disk is. Not being able to allocate the next file counts as full."""
    used = 1 - space.free / space.total if space.total else 1.0
    if (
        no_room_for_next
        or space.free < settings.disk_reserve_bytes
        or used >= settings.disk_full_ratio
    ):
        return DiskLevel.FULL
    return DiskLevel.WARN if used >= settings.disk_warn_ratio else DiskLevel.OK


def expired(
    files: Sequence[FileAge],
    settings: StoreSettings,
    limit: Index,
    now_ms: int,
    hour: int,
    level: DiskLevel,
) -> list[FileAge]:
    """The files that go now, oldest first; ``files`` are all but the last one, oldest first."""
    hours = {int(text) for text in settings.delete_when.split(";") if text}
    if hours and hour not in hours and level is DiskLevel.OK:
        return []
    victims: list[FileAge] = []
    total = (len(files) + 1) * settings.segment_bytes
    for file in files:
        old = 0 < settings.retention_ms <= now_ms - file.written_ms
        large = 0 < settings.retention_bytes < total
        if file.next_index - 1 > limit or not (old or large):
            break
        victims.append(file)
        total -= settings.segment_bytes
    return victims


def hold_back(
    files: Sequence[FileAge], settings: StoreSettings, held: Held, now_ms: int, level: DiskLevel
) -> list[FileAge]:
    """Of the expired ``files`` those that go in spite of their holds, oldest first; sets in
    ``held`` the bytes and the last entry that stay.

    A file stays that has an entry from ``held.first`` on, or is behind such a one, while it is not
    too old and those that stay are not too large together. On a disk that gets full none stays.
    """
    at = next((at for at, file in enumerate(files) if file.next_index > held.first), len(files))
    while at < len(files):
        too_old = now_ms - files[at].written_ms >= settings.retention_ms + held.max_ms
        too_large = 0 < held.max_bytes < (len(files) - at) * settings.segment_bytes
        if not (too_old or too_large or level is not DiskLevel.OK):
            break
        at += 1
    held.bytes = (len(files) - at) * settings.segment_bytes
    held.last = Index(files[-1].next_index - 1) if held.bytes else NO_INDEX
    return list(files[:at])


def without_expired(
    parts: Parts,
    view: LogView,
    level: DiskLevel,
    limit: Index,
    now_ms: int,
    hour: int | None,
    held: Sequence[Held] = (),
) -> LogView:
    """The view after the files that are expired now, and not ``held`` back, are gone."""
    if hour is None:
        hour = time.localtime(now_ms / 1000).tm_hour
    files = list(_ages(parts, view))
    candidates = expired(files, parts.settings, limit, now_ms, hour, level)
    left = [hold_back(candidates, parts.settings, each, now_ms, level) for each in held]
    victims = min([candidates, *left], key=len)
    if not victims:
        return view
    begin_index, begin_pos = victims[-1].next_index, victims[-1].start + parts.data.file_size
    return replace(
        view,
        begin_index=begin_index,
        begin_pos=begin_pos,
        begin_chain=_chain_at_end(parts, begin_index),
    )


def drop_front(parts: Parts, marks: RecoveryPoints, view: LogView) -> None:
    """Delete the files of data and index in front of the view."""
    parts.data.drop_front(view.begin_pos)
    marks.move_begin(view.begin_index, view.begin_pos, view.begin_chain)
    parts.index.drop_front(view.begin_index)


def _ages(parts: Parts, view: LogView) -> Iterator[FileAge]:
    """Without the last file with entries, and those behind it or behind one whose end cannot be
    told."""
    for start in parts.data.starts:
        following = start + parts.data.file_size
        first = first_index(parts.data, following) if following < view.end.end_pos else None
        if first is None:
            return
        yield FileAge(start, first, parts.disk.mtime_ms(parts.data.path(start)))


def _chain_at_end(parts: Parts, next_index: Index) -> int:
    """chainCrc of the entry in front of ``next_index``; -1 when it cannot be told."""
    unit = parts.index.get(next_index - 1)
    if unit is None:
        return -1
    fields = header_at(parts.data, unit.pos)
    return fields[6] if fields[2] == next_index - 1 and fields[4] == unit.pos else -1
