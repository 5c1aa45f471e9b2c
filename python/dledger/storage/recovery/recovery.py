"""Recovery of the files at a start: which parts are kept, cut, rewritten, rebuilt or faulty; each
is reported.

The rules (numbers as in docs on durability):

- Everything up to the mark is durable. Damage in it is rot: kept, reported, never cut, never served
  (D4).
- Bytes behind the mark that are no entry, with no entry behind them, are a write that a crash cut
  short: no sync covered them, so no entry there was acknowledged. They go.
- Damage behind the mark with believable entries behind it: after a restart of the operating system,
  pages that were written and not synced may be missing in any order, so all from there on was never
  acknowledged and goes. Otherwise (same run of the system, or no mark to tell) no crash explains
  it: kept and reported, never guessed (B8).
- A good entry behind the mark may be page cache that a failed sync left unwritten, so it is written
  to a new file and synced before it counts as durable (D15).
- Index units are written again from the data wherever they differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dledger.errors import CorruptStore
from dledger.protocol.messages.entry import Entry, LogEnd
from dledger.storage.api import Fault, RecoveryReport
from dledger.storage.log.index_rebuild import first_index, index_damaged, rebuild_index
from dledger.storage.log.tolerant_reader import fault_of
from dledger.storage.log.walker import Bad, Finish, Walker
from dledger.storage.meta.recovery_point import EMPTY_LOG, RecoveryPoint, before_first, empty_log
from dledger.storage.recovery.open_files import Parts
from dledger.types import NO_INDEX, Index


@dataclass(slots=True)
class Recovered:
    """The log as it is after recovery; all of it durable."""

    begin: LogEnd
    """The place before the first entry; chain_crc -1: unknown."""
    end: LogEnd
    report: RecoveryReport


@dataclass(slots=True)
class _Findings:
    faulty: list[Fault] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    rewritten: list[str] = field(default_factory=list)
    rebuilt_units: int = 0
    scanned: int = 0


def recover(parts: Parts, commit_hint: Index) -> Recovered:
    """Bring the files into a state in which the next entry can be appended.

    Raises:
        CorruptStore: files are missing or contradict one another; nothing was changed.
        OSError: the disk failed.
    """
    begin, mark = _begin(parts), parts.mark
    begin_index, known = Index(begin.position.index + 1), begin
    if mark is not None and mark.durable.position.index >= begin_index:
        known = mark.durable
        if not parts.data.has(known.end_pos - 1):
            raise CorruptStore(
                f"{parts.data.path(known.end_pos - 1)} is missing: entries up to "
                f"{known.position.index} were durable here; put the file back, or empty the "
                "directory and let it back in with 'dledger admit'"
            )
    # In front of ``indexed`` data and index were synced, so the scan begins there. Later damage of
    # entries before it is found by reads and by the scrub.
    start = begin
    if mark is not None and begin_index <= mark.indexed.position.index <= known.position.index:
        start = mark.indexed
    found = _Findings()
    if start is not begin:
        _check_start(parts, start, found)
        _check_index(parts, start, begin, found)
    walker = Walker(parts.data, start, known=None if mark is None else known)
    reason = _walk(parts, walker, known, commit_hint, found)
    end = _finish(parts, walker.end, reason, known, found)
    if end.position.index < begin_index:
        end = empty_log(begin)
    if len(parts.data.starts) > 1:  # at most one empty file is kept ahead of the log
        parts.data.drop_behind(end.end_pos + parts.data.file_size)
    parts.index.cut_behind(end.position.index)
    parts.index.files.sync()
    report = RecoveryReport(
        kept=f"entries {begin_index} to {end.position.index}; {found.scanned} of them scanned, "
        f"behind the mark at "
        f"{start.position.index}",
        cut=tuple(found.cut),
        rebuilt=(f"{found.rebuilt_units} index units from the data",)
        if found.rebuilt_units
        else (),
        rewritten=tuple(found.rewritten),
        notes=tuple(parts.notes),
        faulty=tuple(found.faulty),
    )
    return Recovered(begin, end, report)


def _begin(parts: Parts) -> LogEnd:
    """The place before the first kept entry; chain_crc -1: unknown."""
    starts, mark = parts.data.starts, parts.mark
    if not starts:
        if mark is not None and mark.durable.position.index >= 0:
            raise CorruptStore(
                f"{parts.data.directory} is empty, but entries up to "
                f"{mark.durable.position.index} were durable here: put the files back, or empty "
                "the whole directory and let it back in with 'dledger admit'"
            )
        return before_first(0, parts.settings.begin_pos, 0)
    pos = starts[0]
    if mark is not None and mark.begin_pos == pos:
        return mark.begin
    if pos == 0:
        return EMPTY_LOG
    first = first_index(parts.data, pos)
    if first is None:
        raise CorruptStore(
            f"{parts.data.path(pos)} does not start with an entry, so nobody knows which index "
            "the log begins at: empty the directory and let it back in with 'dledger admit'"
        )
    return before_first(first, pos, -1)


def _check_start(parts: Parts, start: LogEnd, found: _Findings) -> None:
    """The last entry in front of the scan must be the one that the mark names."""
    unit = parts.index.get(start.position.index)
    if unit is None or unit.pos + unit.size != start.end_pos:
        return  # the index will be rebuilt there when it is asked
    entry = Walker(parts.data, start).entry_at(unit.pos)
    if isinstance(entry, Entry) and LogEnd.after(entry) == start:
        return
    reason = (
        entry
        if isinstance(entry, str)
        else f"it is {entry}, not entry {start.position.index} of the mark"
    )
    index = start.position.index
    found.faulty.append(Fault(index, index, unit.pos, str(parts.data.path(unit.pos)), reason))


def _check_index(parts: Parts, stop: LogEnd, begin: LogEnd, found: _Findings) -> None:
    """Rebuild the index of every file in front of ``stop`` whose first or last entry it does not
    find."""

    def on_damage(event: Bad) -> None:
        fault = fault_of(parts.data, event)
        if fault is not None and event.first not in (known.first for known in found.faulty):
            found.faulty.append(fault)

    for start, following in zip(parts.data.starts, [*parts.data.starts, None][1:], strict=True):
        if start >= stop.end_pos:
            break
        is_begin = start == begin.end_pos
        first = begin.position.index + 1 if is_begin else first_index(parts.data, start)
        last: Index | None = stop.position.index
        if following is not None and following < stop.end_pos:
            behind = first_index(parts.data, following)
            last = None if behind is None else Index(behind - 1)
        ends = (
            None if first is None else parts.index.get(first),
            None if last is None else parts.index.get(last),
        )
        if ends[0] is None or ends[1] is None or ends[0].pos != start:
            found.rebuilt_units += rebuild_index(
                parts.data, parts.index, start, stop, begin, on_damage=on_damage
            )[0]


def _walk(parts: Parts, walker: Walker, known: LogEnd, commit_hint: Index, found: _Findings) -> str:
    """Pass over the log; returns the fault behind its end, "" when no byte is there."""
    end, unsure = walker.end, False
    for event in walker.walk():
        if isinstance(event, Entry):
            unsure = False
            found.scanned += 1
            found.rebuilt_units += parts.index.put_again(event)
        elif isinstance(event, Bad):
            if _lost_pages(parts, event, known, commit_hint):
                walker.end = end
                return (
                    f"entry {event.first} at {event.pos}: {event.reason}; written but not synced "
                    f"when the system stopped, like all behind it (from {event.resume} on)"
                )
            _keep_faulty(parts, event, walker, found)
            # Damage of unknown length may reach over the log's end. The mark, where the damage
            # stops there, or a good entry behind it says that it does not.
            unsure = event.resume != known.end_pos
        elif isinstance(event, Finish):
            if unsure:
                raise CorruptStore(
                    f"{parts.data.path(end.end_pos)}: damage from entry {end.position.index} to "
                    "the end of the log leaves unknown where the log ends: empty the directory "
                    "and let it back in with 'dledger admit'"
                )
            return _tail(walker, event, commit_hint)
        end = walker.end
    raise AssertionError("a walk ends with Finish")


def _lost_pages(parts: Parts, event: Bad, known: LogEnd, commit_hint: Index) -> bool:
    """Whether a crash of the system explains damage that has entries behind it."""
    if event.pos < known.end_pos or event.first <= commit_hint or parts.mark is None:
        return False
    # A killed process loses no page that it wrote: only another run of the system can have lost
    # some. Entries before the mark or up to the hint were synced, so no crash lost them.
    boot = parts.disk.boot_id()
    return bool(boot) and bool(parts.mark.boot_id) and boot != parts.mark.boot_id


def _keep_faulty(parts: Parts, event: Bad, walker: Walker, found: _Findings) -> None:
    fault = fault_of(parts.data, event)
    if fault is None:
        parts.notes.append(
            f"{parts.data.path(event.pos)} at {event.pos}: {event.reason}; no entry is hit"
        )
        return
    found.faulty.append(fault)
    if event.first == event.last:
        index_damaged(parts.data, parts.index, event, walker)


def _tail(walker: Walker, event: Finish, commit_hint: Index) -> str:
    due = walker.end.position.index + 1
    if event.reason and due <= commit_hint:
        raise CorruptStore(
            f"entry {due} at pos {event.pos} in {event.file}: {event.reason}. It is at or below "
            f"entry {commit_hint}, which is known to be committed, so it is not cut. Empty the "
            "directory and let it back in with 'dledger admit'; the other nodes have the entries"
        )
    return (
        f"entry {due} at {event.pos}: {event.reason}; a write that was never acknowledged"
        if event.reason
        else ""
    )


def _finish(parts: Parts, end: LogEnd, reason: str, known: LogEnd, found: _Findings) -> LogEnd:
    """Cut the bytes behind the log and write its unsynced tail anew; afterwards all of it is
    durable."""
    data = parts.data
    if not data.starts:
        return end
    end_file = end.end_pos - end.end_pos % data.file_size
    if reason:
        found.cut.append(reason)
        data.drop_behind(end.end_pos)
    if end.end_pos > known.end_pos:
        first = known.end_pos - known.end_pos % data.file_size
        # a log of DLedger's, or a lost mark: all is synced, but only the last file copied
        if parts.mark is None:
            for start in data.starts:
                data.file(start).fdatasync()
            first = end_file
        for start in [s for s in data.starts if first <= s <= end_file]:
            # A second sync of the same file would not do: after a failed one the system may call
            # pages clean that are not on the disk (D15).
            keep = min(end.end_pos - start, data.file_size)
            data.rewrite(start, keep)
            found.rewritten.append(
                f"{data.path(start).name}: bytes {max(known.end_pos, start)} to {start + keep}"
            )
    # The log ends at the mark: no entry needs a new file, and the torn bytes are cut.
    elif reason and data.has(end.end_pos):
        data.cut(end.end_pos)
    for start in data.starts:  # padding, or a length, that a killed process left unsynced
        if start >= end_file:
            data.file(start).fdatasync()
    return end


def mark_of(recovered: Recovered, commit: Index, boot_id: bytes) -> RecoveryPoint:
    """The mark of a log that is durable and indexed as a whole."""
    return RecoveryPoint(
        durable=recovered.end,
        indexed=recovered.end,
        commit=commit,
        boot_id=boot_id,
        begin_index=Index(recovered.begin.position.index + 1),
        begin_pos=recovered.begin.end_pos,
        begin_chain=recovered.begin.chain_crc,
    )


def no_commit_beyond(commit: Index, end: LogEnd) -> Index:
    """A commit mark only covers entries that are here."""
    return Index(max(min(commit, end.position.index), NO_INDEX))
