"""The longest time without an acknowledgement while checkpoints are saved, files are begun and
files go, at 10,000 partitions; beside that of bare sockets and files.

Group and bare way take turns, so that the moments in which the machine itself stands still fall on
either. A piece that the bare way writes and syncs has as many bytes as the group has in flight.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from benchmarks import bare
from benchmarks.appends import leader_address
from benchmarks.groups import group
from benchmarks.load import FIRST_ID, Caller
from benchmarks.report import Report
from dledger import Client
from dledger.protocol.messages.client import AppendRequest
from dledger.protocol.wire import encode
from dledger.records.body.records import encode_batch

GAPS: Final = "longest time without an acknowledgement in a slice, 10,000 partitions, 3 replicas"
OURS, BARE = "a group", "bare sockets and files"
CHECKPOINTS, BEGUN, GONE = "checkpoints", "files begun", "files gone"
PARTITIONS: Final = 10_000
SIZE, IN_FLIGHT = 1024, 64
SLICE_S: Final = 10.0
MIB: Final = 1 << 20
SETTINGS: Final[dict[str, Any]] = {
    "segment_bytes": 16 * MIB,
    "index_file_bytes": MIB,
    "retention_bytes": 64 * MIB,
    "checkpoint_entries": 20_000,
}
"""Such that all three happen within seconds."""
MOST_S: Final = 60.0
LOOK_S: Final = 0.1
PIECES: Final = 2000


class Spread(Caller):
    """Its requests append a record to each partition in turn."""

    def __init__(self, address: str, topic_id: int, partitions: int) -> None:
        bodies = [_record(topic_id, partition) for partition in range(partitions)]
        super().__init__(address, bodies[0], IN_FLIGHT)
        request = AppendRequest(timeout_ms=10_000)
        self._frames = [
            b"".join(encode(request, FIRST_ID + at, body)) for at, body in enumerate(bodies)
        ]
        self._sent_at = [0.0] * partitions
        self._free = deque(range(partitions))

    def go(self, count: int) -> None:
        """Send so many."""
        self.send([self._free.popleft() for _ in range(count)])

    def wait(self) -> int:
        """How many were answered."""
        places = self.receive()
        self._free += places
        return len(places)


@dataclass
class Seen:
    """Files of the leader that were there at one look or another."""

    directory: Path
    now: dict[str, set[str]] = field(default_factory=dict)
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys((CHECKPOINTS, BEGUN, GONE), 0)
    )

    def look(self) -> None:
        for name in ("snapshot", "data"):
            found = {path.name for path in (self.directory / name).iterdir()}
            before = self.now.get(name, found)
            begun, gone = len(found - before), len(before - found)
            if name == "data":
                self.counts[BEGUN] += begun
                self.counts[GONE] += gone
            else:
                self.counts[CHECKPOINTS] += begun
            self.now[name] = found


def _record(topic_id: int, partition: int) -> list[Any]:
    batch = pa.record_batch({"value": pa.array([b"x" * SIZE], pa.binary())})
    now_us = int(time.time() * 1e6)
    return list(encode_batch(batch, topic_id=topic_id, partition=partition, now_us=now_us))


def longest_gap(caller: Spread, seen: Seen, seconds: float, most_s: float = 0) -> float:
    """Milliseconds. It takes so many seconds, and longer, up to ``most_s``, until a checkpoint, a
    new file and retention were seen; then all requests are answered."""
    answered = [time.perf_counter()]
    begin = look_at = answered[0]
    caller.go(IN_FLIGHT)
    while caller.under_way:
        count = caller.wait()
        now = time.perf_counter()
        if count:
            answered.append(now)
            took = now - begin
            if took < seconds or (took < most_s and not all(seen.counts.values())):
                caller.go(count)
        if now > look_at:
            seen.look()
            look_at = now + LOOK_S
    return max(later - before for before, later in pairwise(answered)) * 1000


def bare_gap(directory: Path, seconds: float) -> float:
    """The same of the bare way, in milliseconds, in runs of so many pieces that the files stay
    small."""
    longest, until = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        longest = max(longest, *bare.latencies(directory, SIZE * IN_FLIGHT, PIECES))
    return longest * 1000


def gaps(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """Slices of group and bare way in turn, from the time on when the log has the size that
    retention keeps: the first checkpoint makes a file for each partition."""
    seconds = 0.5 if quick else SLICE_S
    partitions = 100 if quick else PARTITIONS
    with group(directory, 3, **SETTINGS) as running, Client(running.bootstrap_servers) as client:
        topic_id = client.create_topic("wide", partitions).topic_id
        leader = running.leader
        caller = Spread(leader_address(running), topic_id, partitions)
        with caller.socket:
            longest_gap(caller, Seen(Path(running.path) / leader), seconds, 0 if quick else MOST_S)
            for _ in range(1 if quick else repetitions):
                report.add(GAPS, BARE, "ms", bare_gap(directory, seconds))
                seen = Seen(Path(running.path) / leader)
                took = longest_gap(caller, seen, seconds, 0 if quick else MOST_S)
                report.add(GAPS, OURS, "ms", took)
                for name, number in seen.counts.items():
                    report.add(GAPS, f"{name} in a slice", "", number)
