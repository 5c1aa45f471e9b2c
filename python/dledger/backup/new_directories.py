"""Directories that a restore writes into, and that get their names when all of them are written."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from dledger.backup.restore_mark import MARK, put_mark, remove_marks, tell
from dledger.backup.target import HOST, named
from dledger.embedded.home import GROUP_FILE
from dledger.errors import PathError
from dledger.storage.disk.small_files import sync_names_above

SUFFIX: Final = ".restoring"


@contextmanager
def staged(
    *targets: Path, told: Callable[[], Mapping[str, Any]] | None = None
) -> Iterator[tuple[Path, ...]]:
    """Directories to write into that get their names when all is done, each at once and durably.
    No node starts in one of them before all have theirs. The rest of a killed restore is removed.

    Args:
        told: what `finish` tells of them, where this is killed when all have their names; asked for
            when they are written.

    Raises:
        PathError: one is there and not empty, or cannot be made.
    """
    places = tuple(one.with_name(one.name + SUFFIX) for one in targets)
    rests = _rests(targets)
    moved: list[tuple[Path, Path]] = []
    try:
        for place in (*rests, *places):
            with named(str(place)):
                _remove_rest(place)
        for place in places:
            with named(str(place)):
                place.mkdir(mode=0o700, parents=True)
                put_mark(place)
        yield places
        for place in places:
            with named(str(place)):
                for directory in (place, *(one for one in place.rglob("*") if one.is_dir())):
                    HOST.fsync_dir(directory)
        for place, target in zip(places, targets, strict=True):
            with named(str(target)):
                if told is not None and target is targets[-1]:
                    tell(place, targets, told())
                place.rename(target)
                moved.append((place, target))
                sync_names_above(HOST, target)
        remove_marks(targets)
    except (Exception, KeyboardInterrupt):
        for place, target in reversed(moved):  # all of them, or none; first the one that tells so
            with suppress(OSError):
                target.rename(place)
        for rest in places:
            with suppress(OSError):
                _remove_rest(rest)
            shutil.rmtree(rest, ignore_errors=True)
        raise


def _rests(targets: Sequence[Path]) -> list[Path]:
    """Those that a restore had named when it was killed, and in which no node has started.

    Raises:
        PathError: another one is there and not empty.
    """
    # a whole path group is one directory: it is there with its name
    rests = [one for one in targets if (one / MARK).exists() and not (one / GROUP_FILE).exists()]
    for target in targets:
        with named(str(target)):
            is_there = (target.is_symlink() or target.exists()) and target not in rests
            if is_there and (target.is_symlink() or not target.is_dir() or any(target.iterdir())):
                more = f", and {rests[0]} is of a restore that was killed" if rests else ""
                raise PathError(
                    f"{target} has something in it, maybe a group's files{more}: name a directory "
                    "that is not there, or an empty one. Nothing was changed"
                )
    return rests


def _remove_rest(place: Path) -> None:
    """Remove what a killed restore has left; its mark goes last, on the disk too, so that it is
    known until then."""
    if (place / MARK).exists():
        for one in place.iterdir():
            if one.name != MARK:
                shutil.rmtree(one) if one.is_dir() else one.unlink()
        HOST.fsync_dir(place)
        (place / MARK).unlink()
    elif not place.is_dir() or any(place.iterdir()):
        return
    place.rmdir()
