"""One consume queue: a log of 20-byte units in ``consumequeue/<topic>/<queue>``; the number of a
message's unit is its queue offset.

Units are gathered and go to the file by ``write``. A queue whose first message has an offset above
0 begins with fillers, as a broker puts them. A broker that finds a gap further on puts the message
at the next free place, where it cannot be found by its offset any more; here fillers go between,
which a broker's consumers skip.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dledger.errors import FormatError, OffsetOutOfRange
from dledger.rocketmq.format.consume_queue_unit import (
    FILLER,
    UNIT,
    UNIT_SIZE,
    ConsumeQueueUnit,
    decode_units,
)
from dledger.rocketmq.store.files import FileHandles
from dledger.rocketmq.store.mapped_file_queue import MappedFileQueue

logger = logging.getLogger(__name__)

UNITS_IN_FILE: Final = 300_000
"""Units of one file (mappedFileSizeConsumeQueue / 20)."""
CHUNK: Final = 1 << 12
"""Units that are looked at together."""
NOWHERE: Final = 1 << 63
"""Behind every place in a commit log."""
MAX_QUEUE_OFFSET: Final = (1 << 58) - 1
FILLER_BYTES: Final = UNIT.pack(FILLER.physical_offset, FILLER.size, FILLER.tags_code)


class ConsumeQueue:
    """One queue of a topic."""

    def __init__(
        self,
        directory: Path,
        units_in_file: int = UNITS_IN_FILE,
        *,
        handles: FileHandles | None = None,
    ) -> None:
        """Open the queue's files; `recover` finds their content.

        Raises:
            CorruptStore: a file has another size than ``units_in_file`` units, or is missing
                between others.
        """
        self._files = MappedFileQueue(directory, units_in_file * UNIT_SIZE, handles=handles)
        self._units_in_file = units_in_file
        self._pending: list[bytes] = []
        self._pending_end = 0
        """Queue offset behind the last pending unit."""
        self.max_physical = 0
        """Behind the last message that the queue has: nothing below is put again."""
        self.min_offset = self._files.min_offset // UNIT_SIZE
        """Offset of the first message; see `correct_min_offset`."""

    @property
    def directory(self) -> Path:
        return self._files.directory

    @property
    def begin(self) -> int:
        """Offset of the first unit in the files: a filler, or of a message that the commit log may
        have no more."""
        return self._files.min_offset // UNIT_SIZE

    @property
    def max_offset(self) -> int:
        """Offset that the next message gets."""
        return self._pending_end if self._pending else self._files.max_offset // UNIT_SIZE

    @property
    def is_empty(self) -> bool:
        return self._files.is_empty and not self._pending

    def put(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        """Add the unit of a message at its queue offset; False for one that is there already.

        A message that says it stands where another one does is not put, and told of in the log:
        brokers before 5.2 make such stores when they lose the end of a queue in a crash.

        Raises:
            FormatError: the offset cannot be, or is more than a file's units behind the queue's
                end.
        """
        if physical_offset + size <= self.max_physical:
            return False
        end = self._pending_end if self._pending else self._files.max_offset // UNIT_SIZE
        if queue_offset != end or self.max_physical == 0:
            if not 0 <= queue_offset <= MAX_QUEUE_OFFSET:
                what = f"the message at {physical_offset:,} has offset {queue_offset}"
                raise FormatError(f"{self.directory}: {what}")
            if self.is_empty:
                self._begin(queue_offset)
            elif queue_offset < end:
                text = "%s: the message at %d has queue offset %d, which another one has"
                logger.warning(text, self.directory, physical_offset, queue_offset)
                return False
            else:
                self._fill(end, queue_offset, physical_offset)
        self._pending.append(UNIT.pack(physical_offset, size, tags_code))
        self._pending_end = queue_offset + 1
        self.max_physical = physical_offset + size
        return True

    def put_units(self, queue_offset: int, begin: int, end: int, units: bytes) -> bool:
        """Add the encoded units of messages with consecutive offsets, where the queue ends there
        and has none of them; otherwise False: `put` them one by one.

        Args:
            begin, end: where in the commit log the first one begins and the last one ends.
        """
        if self.is_empty or queue_offset != self.max_offset or begin < self.max_physical:
            return False
        self._pending.append(units)
        self._pending_end = queue_offset + len(units) // UNIT_SIZE
        self.max_physical = end
        return True

    def _begin(self, queue_offset: int) -> None:
        first = queue_offset - queue_offset % self._units_in_file
        self._files.start_at(first * UNIT_SIZE)
        self._pending = [FILLER_BYTES] * (queue_offset - first)
        self.min_offset = queue_offset

    def _fill(self, end: int, queue_offset: int, physical_offset: int) -> None:
        missing = queue_offset - end
        if missing > self._units_in_file:
            raise FormatError(
                f"{self.directory} ends at queue offset {end}, and the message at "
                f"{physical_offset:,} has {queue_offset}"
            )
        if missing:
            text = "%s: no message has queue offsets %d to %d"
            logger.warning(text, self.directory, end, queue_offset)
            self._pending += [FILLER_BYTES] * missing

    def write(self) -> None:
        """Hand the put units to the file system.

        Raises:
            DiskFull, StorageError: nothing of it counts as written; calling again writes it all.
        """
        if self._pending:
            self._files.append(b"".join(self._pending))
            self._pending = []

    def flush(self) -> None:
        """Return when everything that was put is on the disk.

        Raises:
            DiskFull, StorageError: it is not, or perhaps not.
        """
        self.write()
        self._files.flush()

    def units(self, queue_offset: int, count: int) -> list[ConsumeQueueUnit]:
        """Up to ``count`` units from this offset on, as many as there are; fillers are there too
        (``is_filler``).

        Raises:
            OffsetOutOfRange: not even the first one is there.
        """
        self.write()
        end = self.max_offset
        if not self.begin <= queue_offset < end:
            raise OffsetOutOfRange(
                f"{self.directory}: offset {queue_offset}; there are {self.min_offset} to {end}",
                self.min_offset,
                end,
            )
        length = min(count, end - queue_offset) * UNIT_SIZE
        return decode_units(self._files.read(queue_offset * UNIT_SIZE, length))

    def recover(self) -> None:
        """Find the queue's end, from the third last file on: the first unit without a size, or that
        lies before the one in front of it. The units behind become zeros; a queue without a message
        has no files."""
        self._pending, self.max_physical = [], 0
        starts = self._files.starts
        if not starts:
            return
        end = starts[-3] if len(starts) >= 3 else starts[0]
        physical = 0
        for offset, data in self._files.parts(end, self._files.max_offset, CHUNK * UNIT_SIZE):
            count, physical = self._sound(data, physical)
            end = offset + count * UNIT_SIZE
            if count * UNIT_SIZE < len(data):
                break
        self._files.truncate_dirty(end)
        self._learn_max_physical()

    def _sound(self, data: bytes, end: int) -> tuple[int, int]:
        """How many units there are before the first that is none, and where the last one's message
        ends."""
        for n, (physical, size, _) in enumerate(UNIT.iter_unpack(data)):
            if size <= 0 or (physical < end and (physical or size != FILLER.size)):
                return n, end
            if size != FILLER.size:
                end = physical + size
        return len(data) // UNIT_SIZE, end

    def drop_torn(self, is_sound: Callable[[int, ConsumeQueueUnit], bool]) -> int | None:
        """Forget units at the end that are not as they were put: a power failure can leave half of
        one, which may look like the unit of a message elsewhere.

        Args:
            is_sound: told queue offset and unit, says whether such a message lies there.

        Returns:
            The lowest place that such a unit named; None when all is well.
        """
        dropped = None
        found = self._last_before(NOWHERE)
        while found is not None and not is_sound(*found):
            dropped, self.max_physical = found[1].physical_offset, NOWHERE
            self.truncate_dirty(dropped)
            found = self._last_before(NOWHERE)
        return dropped

    def _learn_max_physical(self) -> None:
        found = self._last_before(NOWHERE)
        if found is None:
            self.destroy()
        else:
            self.max_physical = found[1].physical_offset + found[1].size

    def _last_before(self, physical_offset: int) -> tuple[int, ConsumeQueueUnit] | None:
        """The last message that lies before a place in the commit log, and its queue offset."""
        end = self._files.max_offset // UNIT_SIZE
        while end > self.begin:
            first = max(self.begin, end - CHUNK)
            units = self.units(first, end - first)
            for n in range(len(units) - 1, -1, -1):
                if not units[n].is_filler and units[n].physical_offset < physical_offset:
                    return first + n, units[n]
            end = first
        return None

    def count_from(self, physical_offset: int) -> int:
        """How many messages lie at or behind this place in the commit log."""
        if self.max_physical <= physical_offset:
            return 0
        last = self._last_before(physical_offset)
        return self.max_offset - (self.min_offset if last is None else last[0] + 1)

    def truncate_dirty(self, physical_offset: int) -> None:
        """Forget messages that lie at or behind this place in the commit log.

        Raises:
            StorageError: the disk failed.
        """
        self.write()
        if self.max_physical <= physical_offset:
            return
        last = self._last_before(physical_offset)
        if last is None:
            self.destroy()
            return
        self._files.truncate_dirty((last[0] + 1) * UNIT_SIZE)
        self.max_physical = last[1].physical_offset + last[1].size

    def correct_min_offset(self, physical_offset: int) -> None:
        """Let the queue begin at its first message that lies at or behind this place, where the
        commit log begins."""
        self.write()
        end = self.max_offset
        low, high = self.begin, end
        while low < high:  # fillers count as small: before the first message there are only these
            middle = (low + high) // 2
            unit = self._message_from(middle, high)
            if unit is not None and unit[1].physical_offset < physical_offset:
                low = unit[0] + 1
            else:
                high = middle
        found = self._message_from(low, end)
        self.min_offset = end if found is None else found[0]

    def _message_from(self, queue_offset: int, end: int) -> tuple[int, ConsumeQueueUnit] | None:
        """The first unit from here on that is no filler."""
        step = 16
        while queue_offset < end:
            for n, unit in enumerate(self.units(queue_offset, min(step, end - queue_offset))):
                if not unit.is_filler:
                    return queue_offset + n, unit
            queue_offset, step = queue_offset + step, CHUNK
        return None

    def delete_before(self, physical_offset: int) -> int:
        """Remove files without a message at or behind this place in the commit log, but never the
        last; how many."""
        self.correct_min_offset(physical_offset)
        return self._files.delete_before(self.min_offset * UNIT_SIZE)

    def destroy(self) -> None:
        """Remove the files."""
        self._pending = []
        self._files.destroy()
        self.max_physical = self.min_offset = 0
