"""Crashes between any two operations of the scripts: every state they may leave, or as many as are
asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from typing import Any, Final

from verification.disk.memory_disk import MemoryDisk, ProcessKilled
from verification.disk_states.checking import check_start
from verification.disk_states.life import StoreLife
from verification.disk_states.model import DIRECTORY, Model, State
from verification.disk_states.promise import BrokenPromise, NotStarted, Promise
from verification.disk_states.recording import Op, OperationType, RecordingDisk
from verification.disk_states.scenarios import Scenario, afterwards, started_again
from verification.sim.rng import Rng

FIRST_LIMIT: Final = 2
"""States looked at for one point in time in the first round; each further round takes twice as
many, and of the script itself, which is one among many starts after a crash, WHOLE times as
many."""
WHOLE: Final = 4
LAST_LIMIT: Final = 4096
STARTS: Final = 10
"""Points of each script at which its process is killed, and at which the power fails, to crash the
next start too."""
MAX_FINDINGS: Final = 20


@dataclass(slots=True)
class Recording:
    """A script, carried out: its operations, and the promise in front of each."""

    scenario: Scenario
    name: str
    ops: list[Op]
    promises: list[tuple[int, Promise]]
    counts: list[int]
    """See `RecordingDisk`."""
    begin: int = 0
    """The first operation in front of which a crash is looked at."""
    state: State | None = None
    """The state of the disk before the first operation."""
    boots: int = 1
    in_full: bool = False
    """Every state is looked at that a crash may leave, at once."""
    points: int = 0
    """Points in time at which crashes were looked at."""
    legal: int = 0
    """States that the rules allow after a power cut, summed over these points."""
    built: int = 0
    """States built for these points, some of them alike."""
    left_out: int = 0
    """Legal ones that were not."""

    def promise(self, point: int) -> Promise:
        """The promise that holds after so many operations."""
        return self.promises[bisect_right(self.promises, point, key=lambda mark: mark[0]) - 1][1]


@dataclass(slots=True)
class Tally:
    """The states that were looked at, and the findings."""

    recordings: list[Recording] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    """The distinct states, each with its promise: these were started from."""
    lost: int = 0
    not_started: int = 0
    findings: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        used = [recording for recording in self.recordings if recording.points]
        return {
            "operations": sum(len(recording.ops) - recording.begin for recording in used),
            "points": sum(recording.points for recording in used),
            "legal_states": sum(recording.legal for recording in used),
            "built_states": sum(recording.built for recording in used),
            "distinct_states": len(self.seen),
            "lost": self.lost,
            "not_started": self.not_started,
            "findings": self.findings,
        }


def record(
    scenario: Scenario, kill_at: int | None = None, then: Callable[[StoreLife], None] = afterwards
) -> Recording:
    """Carry a script out; with ``kill_at`` its process dies in front of that operation and another
    one goes on."""
    disk = RecordingDisk()
    promises: list[tuple[int, Promise]] = []
    life = scenario.life(disk, lambda promise: promises.append((len(disk.ops), promise)))
    begin, name = 0, scenario.name
    disk.kill_at = kill_at
    try:
        scenario.run(life)
    except ProcessKilled:
        disk.reboot(power=False)
        begin = len(disk.ops)
        name += f", killed behind operation {begin} and started again"
        then(life)
    return Recording(scenario, name, disk.ops, promises, disk.counts, begin)


def record_start(recording: Recording, point: int, state: State) -> Recording:
    """The operations of a start from a crash state, and of a little work behind it."""
    disk = RecordingDisk()
    state.fill(disk, boots=2)
    disk.number_files()
    promises: list[tuple[int, Promise]] = []
    life = recording.scenario.life(disk, lambda promise: promises.append((len(disk.ops), promise)))
    life.promise = recording.promise(point)
    afterwards(life)
    name = f"{recording.name}, crashed at {point}, started"
    return Recording(recording.scenario, name, disk.ops, promises, disk.counts, 0, state, boots=2)


class Sweep:
    """Looks at one script's crash states: of the script, of the starts after a crash, and more of
    each in turn."""

    def __init__(
        self, scenario: Scenario, wanted: int, findings: int = MAX_FINDINGS, every: int = 1
    ) -> None:
        """
        Args:
            wanted: distinct states after which to stop.
            findings: so many findings are enough to stop, too.
            every: look only at each so many-th point in time.
        """
        self.scenario = scenario
        self.wanted = wanted
        self.findings = findings
        self.every = every
        self.tally = Tally()

    def run(self) -> Tally:
        """All rounds."""
        limit = FIRST_LIMIT
        while limit <= LAST_LIMIT and not self._rounds(
            self.tally.recordings or self._noted(self._all()), limit
        ):
            limit *= 2
        return self.tally

    def run_in_full(self) -> Tally:
        """Only what is looked at in full."""
        self._rounds(self._noted(self._in_full()), FIRST_LIMIT)
        return self.tally

    def _rounds(self, recordings: Iterable[Recording], limit: int) -> bool:
        """A round of each; whether that is enough."""
        try:
            for recording in recordings:
                self._round(recording, self._limit(recording, limit))
                if len(self.tally.seen) >= self.wanted or self._hopeless():
                    return True
        except Exception as error:  # a script that does not get to its end is a finding
            self._found(self.scenario.name, error)
            return True
        return False

    def _limit(self, recording: Recording, limit: int) -> int:
        """How many states of one point in time to look at in this round; 0: it was looked at in
        full."""
        first = limit == FIRST_LIMIT
        if recording.in_full:
            return LAST_LIMIT if first else 0
        return WHOLE * limit if recording is self.tally.recordings[0] and not first else limit

    def _noted(self, recordings: Iterable[Recording]) -> Iterator[Recording]:
        for recording in recordings:
            self.tally.recordings.append(recording)
            yield recording

    def _all(self) -> Iterator[Recording]:
        is_due = self.scenario.record and self.every == 1
        yield from self._in_full() if is_due else (record(self.scenario),)
        yield from self._starts()

    def _hopeless(self) -> bool:
        return len(self.tally.findings) >= self.findings

    def _in_full(self) -> Iterator[Recording]:
        """The script, and the starts behind a kill between a write to its record and the sync of
        it."""
        whole = record(self.scenario)
        kills = [whole.counts[point - 1] for point in _writes_of(whole.ops, self.scenario.record)]
        starts = (record(self.scenario, kill_at, started_again) for kill_at in kills)
        for recording in chain([whole], starts):
            recording.in_full = True
            yield recording

    def _starts(self) -> Iterator[Recording]:
        whole = self.tally.recordings[0]
        count = len(whole.ops)
        for number in range(STARTS):
            point = (2 * number + 1) * count // (2 * STARTS)
            yield record(self.scenario, kill_at=point)
            model = Model(self.scenario.grain)
            for op in whole.ops[:point]:
                model.apply(op)
            yield record_start(whole, point, list(model.states(3, Rng(point)))[-1])

    def _round(self, recording: Recording, limit: int) -> None:
        model = Model(self.scenario.grain, recording.state)
        if limit == 0:
            return
        recording.points = recording.legal = recording.built = recording.left_out = 0
        for point in range(len(recording.ops) + 1):
            if point > 0:
                model.apply(recording.ops[point - 1])
            due = point >= recording.begin and (point - recording.begin) % self.every == 0
            if due and not self._hopeless():
                self._point(recording, model, point, limit)

    def _point(self, recording: Recording, model: Model, point: int, limit: int) -> None:
        promise = recording.promise(point)
        about = promise.digest()
        recording.points += 1
        legal = model.legal()
        recording.legal += legal
        recording.left_out += max(legal - limit, 0)
        for state in model.states(limit, Rng(point * 1_000_003 + limit)):
            recording.built += 1
            if self._new(b"power", state.digest(), about):
                self._check(recording, point, "power cut", state.disk(boots=9), promise)
        cached = _cached(model).digest()
        durable = next(iter(model.states(1, Rng(0)))).digest()
        following = recording.ops[point] if point < len(recording.ops) else None
        for cut in (0, *_cuts(following)):
            recording.built += 1
            if self._new(b"kill %d" % cut, cached, durable, about):
                disk = model.killed(recording.boots)
                if cut and following is not None:
                    disk.open(following.path).pwritev([following.data[:cut]], following.offset)
                how = f"process killed, {cut} bytes written of the next"
                self._check(recording, point, how, disk, promise)

    def _new(self, *what: bytes | int) -> bool:
        parts = (part if isinstance(part, bytes) else part.to_bytes(8, "big") for part in what)
        digest = int.from_bytes(blake2b(b"|".join(parts), digest_size=8).digest(), "big")
        if digest in self.tally.seen:
            return False
        self.tally.seen.add(digest)
        return True

    def _check(
        self, recording: Recording, point: int, how: str, disk: MemoryDisk, promise: Promise
    ) -> None:
        try:
            check_start(self.scenario.settings, disk, promise)
        except Exception as error:
            before = ", ".join(map(str, recording.ops[max(0, point - 2) : point])) or "the start"
            self._found(f"{recording.name}: {how} at {point}, behind {before}", error)

    def _found(self, where: str, error: Exception) -> None:
        if isinstance(error, BrokenPromise) and not isinstance(error, NotStarted):
            self.tally.lost += 1
        else:
            self.tally.not_started += 1
        if len(self.tally.findings) < self.findings:
            self.tally.findings.append(f"{where}: {type(error).__name__}: {error}")


def _writes_of(ops: list[Op], name: str) -> Iterator[int]:
    """Behind which operations the file of that name is another one, or holds something else."""
    for point, op in enumerate(ops, start=1):
        changed = {OperationType.RENAME: op.target, OperationType.WRITE: op.path}.get(op.kind)
        if changed is not None and changed.name == name:
            yield point


def _cached(model: Model) -> State:
    """The state that a running system shows."""
    return State(
        {
            path: bytes(model.files[file].cache)
            for path, file in model.names.items()
            if file != DIRECTORY
        },
        frozenset(path for path, file in model.names.items() if file == DIRECTORY),
    )


def _cuts(op: Op | None) -> tuple[int, ...]:
    """Where a write is cut short when its process is killed in the middle of it."""
    if op is None or op.kind is not OperationType.WRITE or len(op.data) < 2:
        return ()
    size = len(op.data)
    return tuple(sorted({1, min(47, size - 1), size // 2, size - 1}))
