"""A file of numbers that a node and the campaign both have in memory: the campaign sets switches,
the node counts.

It needs no call, no thread and no answer, and its counts outlive a SIGKILL.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Final

SWITCHES: Final = (
    "sync_delay_us",
    "write_delay_us",
    "sync_error",
    "write_error",
    "full",
    "wall_shift_ms",
)
"""Each is 0 while the node is left alone."""
COUNTS: Final = (
    "syncs",
    "syncs_delayed",
    "sync_errors",
    "write_errors",
    "full_refusals",
    "wall_shifted",
)
_SLOTS: Final = {name: 8 * at for at, name in enumerate(SWITCHES + COUNTS)}
_SIZE: Final = 4096
_NUMBER: Final = struct.Struct("<q")


class Panel:
    """The numbers of one node by name: `SWITCHES` and `COUNTS`.

    Args:
        path: the file; made with all numbers 0 when it is not there.
    """

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            file.truncate(_SIZE)
            self._memory = mmap.mmap(file.fileno(), _SIZE)

    def __getitem__(self, name: str) -> int:
        value: int = _NUMBER.unpack_from(self._memory, _SLOTS[name])[0]
        return value

    def __setitem__(self, name: str, value: int) -> None:
        _NUMBER.pack_into(self._memory, _SLOTS[name], value)

    def count(self, name: str) -> None:
        """One more. Each count has one writer at a time, or may miss one."""
        self[name] += 1

    def clear(self) -> None:
        """All switches off; the counts stay."""
        for name in SWITCHES:
            self[name] = 0
