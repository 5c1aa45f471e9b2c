"""A directory of a command's output: it has its name only when everything is in it.

While it is written it is a directory beside that, with a mark in it. When all is written and
durable the mark goes out of the directory, in one step: so what was killed then is known, too, and
no directory with its name has anything in it that is not its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from dledger.errors import PathError
from dledger.storage.disk.disk import RealDisk
from dledger.storage.disk.small_files import sync_names_above

MARK: Final = "export-is-not-finished"
"""A file in a directory that is not complete; the next attempt removes the directory."""
WRITTEN: Final = ".written"
"""The mark of a directory that only lacks its name is beside it, with this behind its name."""


@contextmanager
def staged(directory: Path) -> Iterator[Path]:
    """A directory to write into that gets its name when all is done, durably. The rest of a killed
    export is removed.

    Raises:
        PathError: the directory, or the one to write into, is there and not empty; or cannot be
            made.
    """
    target = directory.absolute()
    place = target.with_name(target.name + ".partial")
    mark = place.with_name(place.name + WRITTEN)
    try:
        _remove_rest(place, mark)
    except OSError as error:
        raise PathError(
            f"{place} is of an export that was killed, and cannot be removed: {error.strerror}"
        ) from error
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise PathError(
            f"{directory} is there already; name a directory that is not there, or an empty one"
        )
    try:
        place.mkdir(parents=True)
        (place / MARK).touch()
        _sync(place)  # none of its files outlives a power cut without the mark
    except OSError as error:
        raise PathError(
            f"{place} cannot be made: {error.strerror}; it is where the export is written first"
        ) from error
    try:
        yield place
        try:
            for one in (*place.rglob("*"), place):
                if one.is_file() or one.is_dir():
                    _sync(one)
            (place / MARK).rename(mark)
            _sync(place)
            place.rename(target)
            sync_names_above(RealDisk(), target)
            mark.unlink()
        except OSError as error:
            raise PathError(f"{place} cannot become {directory}: {error.strerror}") from error
    except BaseException:
        with suppress(OSError):
            _remove_rest(place, mark)
        raise


def _remove_rest(place: Path, mark: Path) -> None:
    """Remove what a killed export has left; the mark goes last, so that it is known until then."""
    if mark.is_file() and not mark.stat().st_size:
        if not place.is_dir():  # it has its name
            mark.unlink()
            return
        mark.rename(place / MARK)
    if (place / MARK).is_file():
        for one in place.iterdir():
            if one.name != MARK:
                shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()
        (place / MARK).unlink()
    if place.is_dir() and not any(place.iterdir()):
        place.rmdir()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
