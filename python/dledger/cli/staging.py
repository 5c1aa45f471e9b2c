"""A directory of a command's output: it has its name only when everything is in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dledger.errors import PathError

MARK: Final = "export-is-not-finished"
"""A file in a directory that is not complete; the next attempt removes the directory."""


@contextmanager
def staged(directory: Path) -> Iterator[Path]:
    """A directory to write into that gets its name when all is done. The rest of a killed export is
    removed.

    Raises:
        PathError: the directory, or the one to write into, is there and not empty; or cannot be
            made.
    """
    target = directory.absolute()
    place = target.with_name(target.name + ".partial")
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise PathError(
            f"{directory} is there already; name a directory that is not there, or an empty one"
        )
    try:
        if (place / MARK).exists():
            shutil.rmtree(place)
        place.mkdir(parents=True)
        (place / MARK).touch()
    except OSError as error:
        raise PathError(
            f"{place} cannot be made: {error.strerror}; it is where the export is written first"
        ) from error
    try:
        yield place
        (place / MARK).unlink()
        try:
            place.rename(target)
        except OSError as error:
            raise PathError(f"{place} cannot become {directory}: {error.strerror}") from error
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
