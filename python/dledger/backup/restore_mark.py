"""The mark in the directories of a restore: it stays until all of them have their names, and no
node starts where it is.

Before the directory that is the last to get its name gets it, its mark says what the restore has
made. So where a directory that has its name has such a mark, all of them are whole, whatever marks
are left, and the same command, said again, only has to remove those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dledger.backup.target import HOST, named
from dledger.storage.disk.small_files import replace_whole, sync_names_above
from dledger.storage.opening import UNFINISHED

MARK: Final = UNFINISHED
"""A file in a directory that is not complete: the next attempt removes the directory."""


def put_mark(place: Path) -> None:
    """Durable on return, so that no file beside it outlives a power cut without it."""
    (place / MARK).touch()
    HOST.fsync_dir(place)


def tell(place: Path, targets: Sequence[Path], told: Mapping[str, Any]) -> None:
    """The mark in ``place`` says from now on that the directories ``targets`` are all there as soon
    as this one has its name; ``told`` are values of JSON about them. Durable on return."""
    said = {"directories": _names(targets), "told": told}
    replace_whole(HOST, place / MARK, json.dumps(said).encode())


def remove_marks(targets: Sequence[Path]) -> None:
    """All directories have their names, durably. The mark that says so goes last."""
    for target in targets:
        with named(str(target)):
            (target / MARK).unlink(missing_ok=True)
            HOST.fsync_dir(target)


def finish(targets: Sequence[Path]) -> dict[str, Any] | None:
    """Bring a restore into these directories to its end that was killed when all of them had their
    names; what it has told. None: there was none.

    Raises:
        PathError: a mark cannot be read or removed.
    """
    for target in targets:
        with named(str(target)):
            told = _told(target, targets)
        if told is not None:
            for one in targets:
                with named(str(one)):
                    sync_names_above(HOST, one)
            remove_marks([*(one for one in targets if one != target), target])
            return told
    return None


def _told(target: Path, targets: Sequence[Path]) -> dict[str, Any] | None:
    """What the mark in this directory tells of all of them, as far as they are there."""
    try:
        said = json.loads((target / MARK).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):  # most marks are empty
        return None
    is_there = all(one.is_dir() and any(one.iterdir()) for one in targets)
    if not is_there or said["directories"] != _names(targets):
        return None
    told: dict[str, Any] = said["told"]
    return told


def _names(targets: Sequence[Path]) -> list[str]:
    return sorted(str(one.absolute()) for one in targets)
