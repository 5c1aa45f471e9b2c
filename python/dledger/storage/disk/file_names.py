"""Names of files: by the position of their first byte, and while they are made."""

from __future__ import annotations

from typing import Final

NEW_SUFFIX: Final = ".new"
"""A file that is not ready; removed when the store is opened."""
DIGITS: Final = 20


def file_name(start: int) -> str:
    """The name of the file whose first byte has the given offset in the log."""
    return f"{start:0{DIGITS}d}"


def is_file_name(name: str) -> bool:
    """Whether `file_name` has made it."""
    return len(name) == DIGITS and name.isascii() and name.isdecimal()
