"""Disk space of a file that is taken in steps: a file has its full length from the start, but
blocks only as far as it is used soon.

The first step is small, each further one doubles what there is, up to a limit; so a group with one
record takes little of the disk, and a busy one allocates rarely. Bytes without blocks read as zero,
as do bytes with blocks that were not written.
"""

from __future__ import annotations

from typing import Final

from dledger.types import slots_dataclass

FIRST_STEP: Final = 256 << 10
"""Bytes that a new file gets at once, on a real disk."""
LARGEST_STEP: Final = 32 << 20


@slots_dataclass()
class Step:
    """Bytes of a file that get their blocks together: from ``begin`` up to ``end``. A write beyond
    ``middle`` needs the next step soon."""

    begin: int
    middle: int
    end: int


def step_of(inside: int, first: int, size: int) -> Step:
    """The step with the byte at ``inside`` of a file of ``size`` bytes whose first step has
    ``first`` bytes."""
    begin, end = 0, first
    while end <= inside:
        begin, end = end, end + min(end, LARGEST_STEP)
    end = min(end, size)
    return Step(begin, begin + (end - begin) // 2, end)
