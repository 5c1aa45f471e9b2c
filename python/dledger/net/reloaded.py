"""Files that are read again when they change while a program runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

from dledger.errors import ConfigError

log: Final = logging.getLogger("dledger.net")

T = TypeVar("T")
Stamp = tuple[int, int, int, int] | None


class Reloaded(Generic[T]):
    """What is made of some files, as they were when last it could be made.

    Files that belong together are written one after the other, so between two of them nothing can
    be made, or they do not fit: what was made before stays in use then, with one warning.

    Args:
        paths: of the files.
        load: makes it; raises `ConfigError` where they are not as they should be.

    Raises:
        ConfigError: they are not so at the start.
    """

    def __init__(self, paths: Sequence[str], load: Callable[[], T]) -> None:
        self._paths = [path for path in paths if path]
        self._load = load
        self._stamps = self._seen = self._look()
        self.value = load()
        self._told = ""

    def changed(self, *, at_once: bool = False) -> list[str]:
        """The files that were changed, once it was made of them anew; none: it is as it was.

        Without ``at_once`` they must have been the same at the last two calls, so that nothing is
        made while they are being written.
        """
        stamps = self._look()  # before they are read: a later change is seen the next time
        is_settled, self._seen = stamps == self._seen or at_once, stamps
        if stamps == self._stamps or not is_settled:
            return []
        try:
            value = self._load()
        except ConfigError as error:
            if self._told != (text := str(error)):
                self._told = text
                log.warning("changed files are not taken, the former ones stay in use: %s", text)
            return []
        news = [
            path
            for path, old, new in zip(self._paths, self._stamps, stamps, strict=True)
            if old != new
        ]
        self._stamps, self.value, self._told = stamps, value, ""
        return news

    def _look(self) -> list[Stamp]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: str) -> Stamp:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size
