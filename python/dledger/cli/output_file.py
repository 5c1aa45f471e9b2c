"""A file of a command's output: it has its name only when everything is in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from dledger.errors import PathError


@contextmanager
def output_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write into, which gets its name at the end of the block, and is gone after an
    exception.

    Raises:
        PathError: there is a file of the name, or none can be made.
    """
    place = path.with_name(path.name + ".partial")
    if path.exists():
        raise PathError(f"{path} is there already; name another file, or remove it")
    try:
        out = place.open("wb")
    except OSError as error:
        raise PathError(f"{place} cannot be made: {error.strerror}") from None
    try:
        with out:
            yield out
        place.replace(path)
    except BaseException:
        place.unlink(missing_ok=True)
        raise
