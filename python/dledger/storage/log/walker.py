"""Walking the data files: the entry at a place, and where the log goes on behind damage.

Used alike by recovery, `verify` and `dump`, so that all of them see the same log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dledger.checksum import crc32
from dledger.protocol.messages.entry import (
    HEADER,
    HEADER_SIZE,
    MAGIC_BLANK,
    MAX_MAGIC,
    MIN_BLANK_SIZE,
    Entry,
    LogEnd,
    body_is_sound,
    parse,
)
from dledger.protocol.messages.entry_runs import EntryRun
from dledger.storage.log.segments import SegmentFiles
from dledger.storage.log.sound_runs import sound_run
from dledger.storage.log.zeros import CHUNK, first_nonzero
from dledger.types import Buffer, Index, Position, slots_dataclass


class Chain:
    """Checks one header after the other against the chain of checksums.

    A damaged entry's stored checksum cannot be trusted as the seed of the next one, so both the
    stored and the computed one are tried: damage is charged to the entry that has it, not to its
    neighbour.
    """

    def __init__(self, seed: int) -> None:
        """``seed``: chainCrc of the entry before; -1: unknown."""
        self._seeds: tuple[int, ...] = () if seed < 0 else (seed,)

    def follows(self, entry: Entry) -> bool:
        """Whether the entry continues the chain; if so, go on behind it."""
        if entry.verified:
            sound = not self._seeds or entry.chain_crc in self._computed(entry.header)
        else:  # behind an entry with checksums there is none without
            sound = not any(self._seeds)
        if sound:
            self._seeds = (entry.chain_crc,)
        return sound

    def skip(self, header: Buffer) -> None:
        """Go on behind an entry that is damaged but has its header."""
        # At most three seeds: else each further damaged entry in a row would add one.
        stored: int = HEADER.unpack(header)[6]
        self._seeds = (stored, *self._computed(header)[:2])

    def _computed(self, header: Buffer) -> tuple[int, ...]:
        zeroed = b"".join((header[:36], b"\0\0\0\0", header[40:]))
        return tuple(crc32(zeroed, seed) for seed in self._seeds)

    def forget(self) -> None:
        """The entries in between are unknown: take the next one's word."""
        self._seeds = ()

    @property
    def seed(self) -> int:
        """chainCrc of the entry before, which is sound and has checksums; 0: there is none."""
        return self._seeds[0] if len(self._seeds) == 1 else 0


@slots_dataclass()
class Bad:
    """Damage with more of the log behind it. ``first > last``: no entry is hit, only padding behind
    ``last``."""

    first: Index
    last: Index
    pos: int
    reason: str
    resume: int
    """Where the log goes on."""


@slots_dataclass()
class Padding:
    """The rest of a file, behind its last entry."""

    pos: int
    size: int


@slots_dataclass()
class Finish:
    """The end of the believable log at ``pos``. An empty ``reason``: only zeros are there."""

    pos: int
    reason: str
    file: str = ""


Event = Entry | Bad | Padding | Finish
"""An entry is a sound one."""
Passed = EntryRun | Event
"""The entries of a run are sound ones, too."""


class Walker:
    """Walks from ``start`` to the end of the log.

    Args:
        start: chain_crc -1: unknown.
        known: where the log is known to have been, from the mark: damage in front of it ends there
            at the latest. Entries behind it have checksums.
    """

    def __init__(self, data: SegmentFiles, start: LogEnd, *, known: LogEnd | None = None) -> None:
        self._data = data
        self._known = known or LogEnd()
        self._is_ours = known is not None
        self._chain = Chain(start.chain_crc)
        self.end = start
        """Behind the last entry passed, sound or not."""
        self._chunk = b""
        self._chunk_pos = 0

    def bytes_at(self, pos: int, size: int) -> memoryview:
        """Bytes of one file, fewer at its end; reads ahead."""
        at = pos - self._chunk_pos
        if at < 0 or at + size > len(self._chunk):
            self._chunk, self._chunk_pos = self._data.pread(pos, max(size, CHUNK)), pos
            at = 0
        return memoryview(self._chunk)[at : at + size]

    def remaining(self, pos: int) -> int:
        """Bytes from ``pos`` to the end of its file."""
        return self._data.file_size - pos % self._data.file_size

    def walk(self) -> Iterator[Event]:
        """The log's events in order; ends with one Finish."""
        for passed in self.passes():
            if not isinstance(passed, EntryRun):
                yield passed
                continue
            for at in range(len(passed)):
                entry = passed.entry(at)
                self.end = LogEnd.after(entry)
                yield entry

    def passes(self) -> Iterator[Passed]:
        """As `walk`; of sound entries that were read together, runs."""
        pos = self.end.end_pos
        while True:
            # A log that ends with its file ends here; in the middle of a file its bytes decide.
            if self.remaining(pos) == self._data.file_size and not self._data.has(pos):
                yield Finish(pos, "")
                return
            found = self._sound_run(pos) or self._examine(pos)
            if isinstance(found, EntryRun):
                self.end, pos = found.end, found.end_pos
                self._chain = Chain(self.end.chain_crc)
                yield found
            elif isinstance(found, Entry):
                self.end = LogEnd.after(found)
                pos = found.end_pos
                yield found
            elif isinstance(found, int):
                yield Padding(pos, found - pos)
                pos = found
            else:
                event = self._damage(pos, found)
                yield event
                if isinstance(event, Finish):
                    return
                pos = event.resume

    def _sound_run(self, pos: int) -> EntryRun | None:
        """The sound entries at ``pos`` that were read ahead, behind a sound one; else None."""
        seed, begin = self._chain.seed, pos - self._chunk_pos
        if not seed or not 0 <= begin < len(self._chunk):
            return None
        end = LogEnd(self.end.position, pos, seed)
        return sound_run(self._chunk, begin, end, self.remaining(pos))

    def _examine(self, pos: int) -> Entry | int | str:
        """The entry at ``pos``, the next file's start behind padding, or the fault there ("" for
        zeros)."""
        remaining = self.remaining(pos)
        head = self.bytes_at(pos, min(HEADER_SIZE, remaining))
        if len(head) < min(HEADER_SIZE, remaining):
            return "the file ends here"
        if int.from_bytes(head[:4], "big", signed=True) == MAGIC_BLANK:
            return self._padding(pos, head, remaining)
        if not any(head):
            return ""
        entry = self.entry_at(pos)
        if isinstance(entry, str):
            return entry
        if entry.index != self.end.position.index + 1:
            return f"index {entry.index} where {self.end.position.index + 1} is due"
        if entry.term < self.end.position.term:
            return f"term {entry.term} behind term {self.end.position.term}"
        if not self._chain.follows(entry):
            return "the header does not match its checksum chainCrc"
        return entry

    def _padding(self, pos: int, head: memoryview, remaining: int) -> int | str:
        if int.from_bytes(head[4:8], "big") != remaining:
            return f"padding of {int.from_bytes(head[4:8], 'big')} bytes where {remaining} remain"
        if not self._data.has(pos + remaining):
            return "padding with no file behind it"
        return pos + remaining

    def entry_at(self, pos: int) -> Entry | str:
        """The entry at ``pos`` if it can be believed by itself, else why not."""
        remaining = self.remaining(pos)
        if remaining < HEADER_SIZE + MIN_BLANK_SIZE:
            return "neither an entry nor padding"
        head = self.bytes_at(pos, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return "the file ends here"
        magic, size, _, _, own_pos, channel, _, _, body_size = HEADER.unpack(head)
        if not 1 <= magic <= MAX_MAGIC:
            return f"no entry has magic {magic}"
        if size != body_size + HEADER_SIZE or body_size < 0 or size + MIN_BLANK_SIZE > remaining:
            return f"size {size} does not fit body size {body_size} and the file"
        if own_pos != pos:
            return f"pos {own_pos} at {pos}"
        if channel != 0:
            return f"channel {channel} is not 0"
        data = self.bytes_at(pos, size)
        if len(data) < size:
            return "the file ends within the entry"
        entry = parse(data)
        # a first NOOP, torn in its header
        if not entry.verified and self._is_ours and pos >= self._known.end_pos:
            return "it has no checksums"
        return entry if body_is_sound(entry) else "the body does not match its checksum bodyCrc"

    def _damage(self, pos: int, reason: str) -> Bad | Finish:
        """The event for the bytes at ``pos``, which are no entry."""
        due = Index(self.end.position.index + 1)
        file = str(self._data.path(pos))
        if not reason:
            found = first_nonzero(self._data, pos)
            if found is None and pos >= self._known.end_pos:
                return Finish(pos, "", file)
            reason = "zeros" if found is None else f"zeros, and then something at {found}"
            file = file if found is None else str(self._data.path(found))
        behind = self._resume(pos, due)
        # Entries up to the mark were durable. Where none of them can be believed behind the damage,
        # all are damaged, and the log goes on at the mark.
        if pos < self._known.end_pos and (behind is None or behind.pos >= self._known.end_pos):
            self.end = self._known
            self._chain = Chain(self._known.chain_crc)
            return Bad(due, self._known.position.index, pos, reason, self._known.end_pos)
        # Behind the mark, with no entry behind it: a torn write, as far as the files tell.
        if behind is None:
            return Finish(pos, reason, file)
        last = Index(behind.index - 1)
        if last < due:
            reason = f"damaged padding: {reason}"
        # The terms of the damaged entries are unknown. The term before them is a lower bound, and
        # the checks of later entries need no more than that.
        self.end = LogEnd(Position(self.end.position.term, last), behind.pos, 0)
        return Bad(due, last, pos, reason, behind.pos)

    def _resume(self, pos: int, due: int) -> Entry | None:
        """The first believable entry behind damage at ``pos``; the chain is set up for it."""
        # By the sizes in the damaged header first: when the very next entry lies there, only this
        # one is hit, and the chain can go on over its header.
        head = self.bytes_at(pos, HEADER_SIZE)
        if len(head) == HEADER_SIZE and self.remaining(pos) >= HEADER_SIZE + MIN_BLANK_SIZE:
            fields = HEADER.unpack(head)
            for length in dict.fromkeys((fields[1], fields[8] + HEADER_SIZE)):
                if length >= HEADER_SIZE and length + MIN_BLANK_SIZE <= self.remaining(pos):
                    after = self._believable(self._behind_padding(pos + length), due + 1)
                    if after is not None and after.index == due + 1:
                        self._chain.skip(bytes(self.bytes_at(pos, HEADER_SIZE)))
                        return after
        # Else any later entry. The headers in between are unknown, so the chain starts anew there.
        after = self.search(pos + 1, due)
        if after is not None and after.index > due:
            self._chain.forget()
        return after

    def _behind_padding(self, pos: int) -> int:
        head = bytes(self.bytes_at(pos, MIN_BLANK_SIZE))
        return pos + self.remaining(pos) if head == blank(self.remaining(pos)) else pos

    def _believable(self, pos: int, at_least: int) -> Entry | None:
        """The entry at ``pos`` if it can belong to this log behind the entries passed."""
        if not self._data.has(pos):
            return None
        entry = self.entry_at(pos)
        if isinstance(entry, str) or entry.index < at_least or entry.term < self.end.position.term:
            return None
        return None if self._contradicted(entry) else entry

    def _contradicted(self, entry: Entry) -> bool:
        """Whether an entry's index or term cannot be: no entry before it vouches for them, since
        the chain is broken there, but the mark and the entry behind, whose checksum covers its own,
        may know better."""
        known = self._known
        if entry.end_pos == known.end_pos:
            return LogEnd.after(entry) != known
        if entry.end_pos < known.end_pos and entry.index >= known.position.index:
            return True
        pos = self._behind_padding(entry.end_pos)
        behind = self.entry_at(pos) if self._data.has(pos) else ""
        if isinstance(behind, str):
            return False
        follows = behind.index == entry.index + 1 and behind.term >= entry.term
        return not (follows and Chain(entry.chain_crc).follows(behind))

    def search(self, pos: int, due: int) -> Entry | None:
        """Look at every byte from ``pos`` to the end of the files for an entry that belongs to this
        log."""
        while self._data.has(pos):
            stop = pos + self.remaining(pos)
            pattern = _header_pattern(stop - self._data.file_size, stop)
            while pos < stop:
                found = self._data.next_data(pos)
                block = self._data.pread(found, CHUNK) if found is not None else b""
                if found is None or not block:
                    break
                for match in pattern.finditer(block):
                    entry = self._believable(found + match.start(), due)
                    if entry is not None:
                        return entry
                # The next block begins a header's length earlier, so that a header across two is
                # found.
                at_end = found + len(block) >= stop or len(block) < CHUNK
                pos = stop if at_end else found + len(block) - HEADER_SIZE
            pos = stop
        return None


def blank(size: int) -> bytes:
    """The first bytes of padding that fills ``size`` bytes."""
    return b"\xff\xff\xff\xff" + size.to_bytes(4, "big")


def _header_pattern(start: int, stop: int) -> re.Pattern[bytes]:
    """Matches, overlapping, wherever a header with a pos in [start, stop) can begin."""
    low, high = start.to_bytes(8, "big"), (stop - 1).to_bytes(8, "big")
    same = 0
    while same < 8 and low[same] == high[same]:
        same += 1
    # The magic in bytes 0 to 3, the pos from byte 24 on. All positions of one file share their
    # first bytes; `Walker.entry_at` checks the rest.
    return re.compile(
        rb"(?=\x00\x00\x00[\x01-\x03].{20}" + re.escape(low[:same]) + rb")", re.DOTALL
    )
