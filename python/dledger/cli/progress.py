"""How far a long command is, on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

PATIENCE_S: Final = 1.0
"""Shorter work shows nothing."""


class CommandProgress:
    """Counts records; where stderr is a terminal that nothing else is written to, shows them."""

    def __init__(self, doing: str, *, shown: bool) -> None:
        self.records = 0
        self.bytes = 0
        self._doing = doing
        self._shown = shown
        self._began = time.monotonic()
        self._bar: tuple[Bar, TaskID] | None = None

    def add(self, records: int, size: int) -> None:
        """So many more, of so many bytes."""
        self.records += records
        self.bytes += size
        seconds = time.monotonic() - self._began
        if not self._shown or seconds < PATIENCE_S:
            return
        if self._bar is None:
            self._bar = _start()
        bar, task = self._bar
        rate = f"{self.records / seconds:,.0f} records/s, {self.bytes / seconds / 1e6:,.1f} MB/s"
        bar.update(task, description=f"{self._doing} {self.records:,} records: {rate}")

    def end(self) -> None:
        """The line goes away again."""
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None


def _start() -> tuple[Bar, TaskID]:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    bar = Bar(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("")
    bar.start()
    return bar, task


class ByteProgress:
    """Counts bytes of about so many; where stderr is a terminal, shows them, the rate, and the
    time that is left."""

    def __init__(self, doing: str, *, shown: bool) -> None:
        self._doing = doing
        self._shown = shown
        self._done = 0
        self._began = time.monotonic()
        self._bar: tuple[Bar, TaskID] | None = None

    def add(self, size: int, total: int) -> None:
        """So many more bytes, of about ``total`` in all."""
        self._done += size
        if not self._shown or time.monotonic() - self._began < PATIENCE_S:
            return
        if self._bar is None:
            self._bar = _start_bytes(self._doing)
        bar, task = self._bar
        bar.update(task, completed=self._done, total=max(total, self._done))

    def end(self) -> None:
        """The line goes away again."""
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None


def _start_bytes(doing: str) -> tuple[Bar, TaskID]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(doing, total=None)
    bar.start()
    return bar, task


@contextmanager
def byte_progress(doing: str) -> Iterator[ByteProgress]:
    """Progress of one command that moves bytes."""
    made = ByteProgress(doing, shown=sys.stderr.isatty())
    try:
        yield made
    finally:
        made.end()


@contextmanager
def progress(doing: str, *, beside: bool) -> Iterator[CommandProgress]:
    """Progress of one command.

    Args:
        beside: stdout has the records: shown only where that is no terminal.
    """
    shown = sys.stderr.isatty() and not (beside and sys.stdout.isatty())
    made = CommandProgress(doing, shown=shown)
    try:
        yield made
    finally:
        made.end()
