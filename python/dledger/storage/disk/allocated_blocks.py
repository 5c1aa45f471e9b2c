"""Which files of the log have blocks on the disk, and how far; see
`dledger.storage.disk.allocation_steps`."""

from __future__ import annotations

from collections.abc import Iterable

from dledger.storage.disk.allocation_steps import Step, step_of
from dledger.storage.disk.disk import Disk, DiskFile


def make_room(disk: Disk, file: DiskFile, size: int, used: int) -> Step:
    """Give a new file its full length, and blocks for its first ``used`` bytes up to the end of
    that step."""
    step = step_of(max(used - 1, 0), disk.first_step, size)
    file.truncate(size)
    file.fallocate(step.end)
    return step


class Blocks(dict[int, Step]):
    """The last step that each file has blocks for, by the place of its first byte in the log. Of
    files that are not in here it is not known: the system may have been started again, and no step
    is synced."""

    def used(self, starts: Iterable[int], size: int, end: int) -> int:
        """Bytes that the files of ``size`` bytes of a log which ends at ``end`` take on the
        disk."""
        total = 0
        for start in starts:
            step = self.get(start)
            total += step.end if step is not None else max(0, min(end - start, size))
        return total
