"""Damage to the files of nodes."""

from __future__ import annotations

from pathlib import Path


def flip(path: Path, at: int) -> None:
    """Change a byte of a file in place."""
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ 0x20]))


def damage(directory: Path, *needles: bytes, at: int = 9) -> None:
    """Change a byte in the log of a node, so far behind the begin of each of these bytes."""
    for needle in needles:
        path, found = place_of(directory, needle)
        flip(path, found + at)


def place_of(directory: Path, needle: bytes) -> tuple[Path, int]:
    """The file of a node's log that has these bytes, and where."""
    for path in sorted((directory / "data").iterdir()):
        at = path.read_bytes().find(needle)
        if at >= 0:
            return path, at
    raise AssertionError(f"{needle[:20]!r} is not in {directory}")
