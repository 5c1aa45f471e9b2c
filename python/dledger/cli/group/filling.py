"""What a command shows while it waits until a member has the log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dledger.cli.common import tell_progress
from dledger.cli.progress import ByteProgress


@dataclass(frozen=True, slots=True)
class Filling:
    """On a terminal a line with bytes, rate and remaining time; elsewhere a line now and then."""

    shown: bool
    bar: ByteProgress

    def tell(self, line: str) -> None:
        """A line that stays."""
        self.bar.end()
        tell_progress(line)

    def moved(self, size: int, total: int) -> bool:
        """The member has so many more bytes of about ``total``; whether that is shown."""
        if self.shown:
            self.bar.add(size, total)
        return self.shown


@contextmanager
def filling() -> Iterator[Filling]:
    """Of one command."""
    shown = sys.stderr.isatty()
    made = Filling(shown, ByteProgress("copying the log", shown=shown))
    try:
        yield made
    finally:
        made.bar.end()
