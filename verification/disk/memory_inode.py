"""The bytes of one file of a `verification.disk.memory_disk`: as written, as they are on the
disk, and on their way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dledger.types import Buffer
from verification.disk.coverage import Coverage

SECTOR: Final = 512

Choose = Callable[[int], int]
"""A number in [0, n): which of n outcomes a power cut has."""


@dataclass(slots=True, eq=False)
class Flight:
    """The bytes that a sync under way writes: as they were when it began."""

    sync: int
    sectors: set[int]
    pieces: list[tuple[int, bytes]]
    size: int
    resized: bool
    reserved: int


@dataclass(slots=True)
class Inode:
    """A file's bytes: as written, and as they are on the disk for sure."""

    written: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)
    """Numbers of the sectors that the next sync writes."""
    resized: bool = False
    mtime_ms: int = 0
    coverage: Coverage = field(default_factory=Coverage)
    flights: list[Flight] = field(default_factory=list)
    reserved: int = -1
    """Bytes that have blocks on the disk; -1: all that are there."""
    kept: int = 0
    """So many of them have them after a power cut, too."""
    seen: bytes | None = None
    """For a file that is mapped to be written: its bytes at the last `look`, with which each sync
    and each loss of power begins."""

    def __post_init__(self) -> None:
        if self.reserved < 0:
            self.reserved = self.kept = len(self.written)

    def put(self, data: Buffer, offset: int) -> None:
        """Write bytes; those beyond the end make the file longer."""
        end = offset + len(data)
        if end > len(self.written):
            self.written.extend(bytes(end - len(self.written)))
            self.resized = True
        self.written[offset:end] = data
        if data:
            self.reserved = max(self.reserved, end)
            self.dirty.update(range(offset // SECTOR, (end - 1) // SECTOR + 1))

    def map(self, write: bool) -> memoryview:
        """The bytes themselves. Their number cannot change while a view of them exists."""
        if write and self.seen is None:
            self.seen = bytes(self.written)
        return memoryview(self.written)

    def look(self) -> None:
        """Bytes that were written to memory since the last look are dirty."""
        if self.seen is not None and self.seen != self.written:
            for low in range(0, len(self.written), SECTOR):
                if self.seen[low : low + SECTOR] != self.written[low : low + SECTOR]:
                    self.dirty.add(low // SECTOR)
            self.seen = bytes(self.written)

    def begin_sync(self) -> Flight:
        """A sync begins: it does not cover bytes that are written from now on."""
        self.look()
        dirty, self.dirty = sorted(self.dirty), set()
        size = len(self.written)
        if dirty and dirty[-1] - dirty[0] < len(dirty):  # one run, as nearly always
            runs = [(dirty[0] * SECTOR, min((dirty[-1] + 1) * SECTOR, size))]
        else:
            runs = [(sector * SECTOR, min((sector + 1) * SECTOR, size)) for sector in dirty]
        pieces = [(low, bytes(self.written[low:high])) for low, high in runs]
        flight = Flight(
            self.coverage.begin(), set(dirty), pieces, size, self.resized, self.reserved
        )
        self.resized = False
        self.flights.append(flight)
        return flight

    def end_sync(self, flight: Flight) -> None:
        """It has ended; so have the writes of those that began before it."""
        for each in self.flights[: self.flights.index(flight) + 1]:
            self._land(each)
        self.flights.remove(flight)
        self.coverage.ended(flight.sync)

    def _land(self, flight: Flight) -> None:
        if flight.resized:
            self.durable = self.durable[: flight.size].ljust(flight.size, b"\0")
        for low, data in flight.pieces:
            self.durable[low : low + len(data)] = data
        self.kept = max(self.kept, flight.reserved)
        flight.sectors, flight.pieces, flight.resized = set(), [], False

    def fail_sync(self, flight: Flight) -> None:
        """It has ended with an error: no page was written, and the kernel marks the pages clean all
        the same."""
        self.flights.remove(flight)
        self.resized |= flight.resized
        self.coverage.failed(flight.sync)

    def drop_sync(self, flight: Flight) -> None:
        """Its process has died: the bytes that it was to write stay dirty."""
        if flight not in self.flights:
            return  # its system has died too, and took it along
        self.flights.remove(flight)
        self.resized |= flight.resized
        self.dirty |= flight.sectors

    def grow(self, size: int) -> None:
        """Zeros up to there."""
        old = len(self.written)
        self.resized = True
        self.written.extend(bytes(size - old))
        self.dirty |= set(range(old // SECTOR, (size - 1) // SECTOR + 1))

    def cut(self, size: int) -> None:
        """The file ends there now; a sync under way does not write the bytes behind that."""
        self.resized = True
        self.dirty = {sector for sector in self.dirty if sector * SECTOR < size}
        del self.written[size:]
        del self.durable[size:]
        for flight in self.flights:
            flight.sectors = {sector for sector in flight.sectors if sector * SECTOR < size}
            flight.pieces = [(low, data[: size - low]) for low, data in flight.pieces if low < size]
            flight.size = min(flight.size, size)
            flight.reserved = min(flight.reserved, size)
        self.reserved, self.kept = min(self.reserved, size), min(self.kept, size)
        self.coverage.cut(size)

    def lose_power(self) -> None:
        """The system is gone: no sync is under way, and the coverage begins anew."""
        self.look()
        self.seen = None
        for flight in self.flights[:]:
            self.drop_sync(flight)
        self.coverage = Coverage()

    def settle(self, result: bytearray) -> None:
        """After a loss of power these are its bytes."""
        self.written, self.durable = result, bytearray(result)
        self.reserved = self.kept = min(self.kept, len(result))
        self.dirty.clear()
        self.resized = False


def cut_power(inode: Inode, choose: Choose | None) -> None:
    """Any of the sectors that were not synced may be there, and the length; ``choose`` None: none
    is."""
    inode.lose_power()
    size = len(inode.durable)
    if inode.resized and choose is not None and choose(2):
        size = len(inode.written)
    result = inode.durable[:size].ljust(size, b"\0")
    for sector in sorted(inode.dirty):
        low, high = sector * SECTOR, min((sector + 1) * SECTOR, size, len(inode.written))
        if low < high and choose is not None and choose(2):
            result[low:high] = inode.written[low:high]
    inode.settle(result)
