"""SIGKILL of anything at all under a job that reads, keeps state, and writes to two topics: 0 lost,
0 doubled.

Half of the kills come when a micro-batch has read something and is not committed, so that it has to
be read again. Between the kills, people handle checkpoints of other queries of the same group
(checkpoint_faults.py): nothing is lost or doubled there without an error. ``make job-kills
KILLS=200`` is the campaign, half of its faults are kills; ``make test`` has one kill of each kind,
and one of the other faults, each of which test_checkpoint_faults.py has.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from dledger import Client, EmbeddedGroup
from dledger.errors import DLedgerError
from tests.cluster.checkpoint_faults import CASES, Case
from tests.cluster.job_query import digest
from tests.cluster.queries import Desk
from tests.cluster.records import records_of
from verification.result import result, save

PROGRAM = Path(__file__).with_name("job_query.py")
KINDS = ("driver", "Python worker", "executor", "leader", "whole group")
MOMENTS = ("between read and commit", "at any moment")
PARTITIONS = 3
MOST_BEHIND = 1000
"""Records that the feeder is ahead of the job at most."""
PATIENCE_S = 900
"""For one micro-batch, a start of the job included, on a machine that has much else to do."""

Events = Mapping[int, Sequence[tuple[bytes, bytes]]]
"""Partition -> (key, value) of each offset."""


class Note(NamedTuple):
    """What a task was given."""

    batch: int
    run: str
    """Of the query; a restart makes another one."""
    records: list[tuple[int, int, str]]
    """Partition, offset and digest."""


class Reads(NamedTuple):
    """What all notes say."""

    wrong: list[str]
    replayed: int
    """Micro-batches that more than one run of the query has read."""
    repeated: int
    """Micro-batches of which one run has read something twice."""


class Job:
    """The program, in sessions of its own, each life another one; whatever ends it, it is started
    again."""

    def __init__(self, servers: str, directory: Path) -> None:
        self._command = [sys.executable, str(PROGRAM), servers, str(directory)]
        self._log = directory / "spark.log"
        self._checkpoint, self._notes = directory / "checkpoint", directory / "reads"
        self.lives: list[int] = []
        self.ended = 0
        """How often it ended by itself, after something else was killed."""
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.lives.append(self._process.pid)
        self._since = time.time()

    def ensure(self) -> None:
        if self._process.poll() is not None:
            self.ended += 1
            self.start()

    def done(self) -> int:
        """Micro-batches that Spark has committed."""
        folder = self._checkpoint / "commits"
        return len(numbers(folder)) if folder.exists() else 0

    def has_read(self) -> bool:
        """Whether this life has read something for the micro-batch under way, which the next one
        would read again."""
        notes = self._notes / str(self.done())
        return notes.exists() and any(
            found.st_size and found.st_mtime >= self._since
            for found in map(Path.stat, notes.iterdir())
        )

    def batch_s(self) -> float:
        """How long a micro-batch takes from its plan to its commit, by the quickest of the last
        ones."""
        plans, commits = self._checkpoint / "offsets", self._checkpoint / "commits"
        last = [str(number) for number in numbers(commits)[-5:]]
        return min(
            (commits / name).stat().st_mtime - (plans / name).stat().st_mtime for name in last
        )

    def victims(self, kind: str) -> list[int]:
        """Processes of this life: the driver's two, the executors, or the Python workers of
        either."""
        there = processes({self.lives[-1]})
        if kind == "driver":
            return [
                pid
                for pid, text in there.items()
                if pid == self.lives[-1] or "deploy.SparkSubmit" in text
            ]
        mark = "CoarseGrainedExecutorBackend" if kind == "executor" else "-m pyspark."
        return [pid for pid, text in there.items() if mark in text]

    def kill(self, pids: Iterable[int]) -> None:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if self.lives[-1] in pids:
            self._process.wait()
            self.start()

    def end(self) -> None:
        """Everything of all lives."""
        self.kill(list(processes(set(self.lives)).keys() - {self.lives[-1]}))
        self._process.kill()
        self._process.wait()

    def words(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def processes(sessions: set[int]) -> dict[int, str]:
    """The command of each living process of these sessions; Spark's Python daemons have process
    groups of their own."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()
                text = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
            except OSError:
                continue  # it has ended meanwhile
            if int(state[3]) in sessions and text:
                found[int(entry.name)] = text
    return found


class Feeder(threading.Thread):
    """Appends numbers, and keeps those that were acknowledged with their places."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._servers, self._done = servers, threading.Event()
        self.acknowledged: dict[tuple[int, int], bytes] = {}

    def run(self) -> None:
        turn = 0
        with Client(self._servers) as client:
            while not self._done.wait(0.03):
                try:
                    if turn % 10 or self._behind(client) < MOST_BEHIND:
                        self._append(client, turn)
                        turn += 1
                except DLedgerError:
                    turn += 1  # it may be there; what is read is what is there

    def _behind(self, client: Client) -> int:
        lag = client.lag("job")  # empty until the job has started
        return sum(one.rows for one in lag) if lag else len(self.acknowledged)

    def _append(self, client: Client, turn: int) -> None:
        some = range(turn * 20, turn * 20 + 20)
        values = [str(number).encode() for number in some]
        keys = [f"key {number % 41}".encode() for number in some]
        done = client.append("events", values, keys=keys, partition=turn % PARTITIONS)
        self.acknowledged |= {
            (done.partition, done.start + at): value for at, value in enumerate(values)
        }

    def finish(self) -> None:
        self._done.set()
        self.join()


class Hands:
    """What people do to other queries of the group, beside the job."""

    def __init__(
        self, directory: Path, group: EmbeddedGroup, client: Client, dice: random.Random
    ) -> None:
        self._directory = directory / "cases"
        self._group, self._client, self._dice = group, client, dice
        self._directory.mkdir()
        self._desks = {
            kind: Desk(kind, group.bootstrap_servers, self._directory)
            for kind in ("classic", "connect")
        }
        self.done: Counter[str] = Counter()
        self.problems: list[str] = []
        self.errors = 0

    def do(self, fault: str) -> None:
        """One case of this fault, in some of them the leader is killed under a query now and
        then."""
        desk = self._desks["connect" if "Connect" in fault else "classic"]
        disturb = self._kill_leader if self._dice.random() < 0.5 else lambda: None
        name = f"case-{sum(self.done.values())}"
        case = Case(name, self._directory, self._client, self._dice, desk, disturb)
        CASES[fault](case)
        self.problems += [f"{fault}: {text}" for text in case.problems]
        self.errors += case.errors
        self.done[fault] += 1

    def _kill_leader(self) -> None:
        if self._dice.random() < 0.3:
            threading.Event().wait(2 * self._dice.random())
            node = self._group.leader
            self._group.kill(node)
            self._group.restart(node)

    def end(self) -> None:
        for desk in self._desks.values():
            desk.end()


class Scene:
    """A group, a feeder, the job, and kills."""

    def __init__(self, directory: Path, until: Callable[..., None], dice: random.Random) -> None:
        self.directory, self.until, self.dice = directory, until, dice
        (directory / "reads").mkdir()
        self.group = EmbeddedGroup(directory / "log", replicas=3)
        self.client = Client(self.group.bootstrap_servers)
        self.client.create_topic("events", PARTITIONS)
        for name in ("counts", "sums"):
            self.client.create_topic(name)
        self.feeder = Feeder(self.group.bootstrap_servers)
        self.feeder.start()
        self.job = Job(self.group.bootstrap_servers, directory)
        self.killed: Counter[str] = Counter()
        self.hands = Hands(directory, self.group, self.client, dice)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Until it holds; the job is started again whenever it has ended."""

        def holds() -> bool:
            self.job.ensure()
            return condition()

        try:
            self.until(holds, what, PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; the job's last words:\n{self.job.words()}") from error

    def more(self, what: str) -> None:
        """Wait until the job has committed another micro-batch."""
        goal = self.job.done() + 1
        self.wait(lambda: self.job.done() >= goal, f"micro-batch {goal} {what}")

    def kill(self, kind: str, moment: str) -> None:
        """When the micro-batch under way has read something, or at any moment of it."""
        self.more(f"before the kill of a {kind}")
        if moment == MOMENTS[0]:
            self.wait(self.job.has_read, "a micro-batch to read")
        else:
            threading.Event().wait(self.dice.random() * self.job.batch_s())
        if kind in {"leader", "whole group"}:
            nodes = [self.group.leader] if kind == "leader" else list(self.group.nodes)
            for node in nodes:
                self.group.kill(node)
            for node in nodes:
                self.group.restart(node)
        else:
            pids: list[int] = []

            def there() -> bool:
                pids[:] = sorted(self.job.victims(kind))
                return bool(pids)

            self.wait(there, f"a {kind} to kill")
            self.job.kill(pids if kind == "driver" else [self.dice.choice(pids)])
        self.killed[kind] += 1

    def finish(self) -> None:
        """Until the job has processed everything."""
        self.feeder.finish()

        def idle() -> bool:
            lag = self.client.lag("job")
            return len(lag) == PARTITIONS and not any(one.rows for one in lag)

        self.wait(idle, "the job to process everything")

    def close(self) -> None:
        self.feeder.finish()
        self.job.end()
        self.hands.end()
        self.client.close()
        self.group.stop()

    def events(self) -> dict[int, list[tuple[bytes, bytes]]]:
        return {at: records_of(self.client, "events", at) for at in range(PARTITIONS)}

    def notes(self) -> Iterator[Note]:
        """Of each task; a line that a kill has cut is left out."""
        for file in (self.directory / "reads").glob("*/*"):
            lines = file.read_text().rpartition("\n")[0].splitlines()
            fields = (line.split(" ") for line in lines)
            records = [(int(p), int(offset), text) for p, offset, text in fields]
            yield Note(int(file.parent.name), file.name.partition("-")[0], records)

    def planned(self) -> list[dict[int, int]]:
        """Where each micro-batch ends, by partition, out of Spark's own log of offsets."""
        folder = self.directory / "checkpoint" / "offsets"
        there = numbers(folder)
        assert there == list(range(len(there)))
        ends = [json.loads((folder / str(number)).read_text().splitlines()[-1]) for number in there]
        return [
            {int(p): offset for p, offset in end["logs"]["events"]["p"].items()} for end in ends
        ]


def numbers(folder: Path) -> list[int]:
    """The micro-batches that have a file here, in order."""
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdecimal())


def should_be(
    events: Events, planned: Sequence[Mapping[int, int]]
) -> dict[str, list[tuple[int, bytes, int]]]:
    """(batch, key, figure) of both topics, by what each micro-batch was to read."""
    counts: Counter[bytes] = Counter()
    sums: Counter[bytes] = Counter()
    found: dict[str, list[tuple[int, bytes, int]]] = {"counts": [], "sums": []}
    at: Mapping[int, int] = {}
    for batch, ends in enumerate(planned):
        changed = [pair for p, end in ends.items() for pair in events[p][at.get(p, 0) : end]]
        for key, value in changed:
            counts[key] += 1
            sums[key] += int(value)
        for key in sorted({key for key, _ in changed}):
            found["counts"].append((batch, key, counts[key]))
            found["sums"].append((batch, key, sums[key]))
        at = ends
    return found


def wrong_output(
    expected: Sequence[tuple[int, bytes, int]], written: Sequence[tuple[bytes, bytes]]
) -> list[str]:
    """What is lost, doubled, invented, or out of the order of the micro-batches."""
    rows = [
        (int(batch), key, int(figure))
        for key, (batch, figure) in ((k, v.split(b",")) for k, v in written)
    ]
    lost, extra = Counter(expected) - Counter(rows), Counter(rows) - Counter(expected)
    found = [f"lost: {row}" for row in sorted(lost)] + [
        f"doubled or invented: {row}" for row in sorted(extra)
    ]
    if [row[0] for row in rows] != sorted(row[0] for row in rows):
        found.append("micro-batches are out of order")
    return found


def judge_reads(
    events: Events, planned: Sequence[Mapping[int, int]], notes: Iterable[Note]
) -> Reads:
    """Records that a micro-batch should not have been given, or with other bytes, or that no run of
    it has read."""
    wrong: list[str] = []
    seen: dict[int, dict[str, Counter[tuple[int, int]]]] = defaultdict(lambda: defaultdict(Counter))
    for batch, run, records in notes:
        starts = planned[batch - 1] if batch else {}
        seen[batch][run].update((partition, offset) for partition, offset, _ in records)
        for partition, offset, text in records:
            if not starts.get(partition, 0) <= offset < planned[batch].get(partition, 0):
                wrong.append(
                    f"batch {batch} read offset {offset} of partition {partition}, which is not "
                    f"its own"
                )
            elif digest(*events[partition][offset]) != text:
                wrong.append(
                    f"batch {batch} read other bytes at offset {offset} of partition {partition}"
                )
    for batch, ends in enumerate(planned):
        starts = planned[batch - 1] if batch else {}
        own = {(p, offset) for p, end in ends.items() for offset in range(starts.get(p, 0), end)}
        if missing := min(
            (own - counted.keys() for counted in seen[batch].values()), key=len, default=own
        ):
            wrong.append(f"batch {batch} was never read as a whole: {sorted(missing)[:5]}")
    replayed = sum(sum(map(bool, runs.values())) > 1 for runs in seen.values())
    repeated = sum(
        any(max(counted.values(), default=0) > 1 for counted in runs.values())
        for runs in seen.values()
    )
    return Reads(wrong, replayed, repeated)


def judge(
    events: Events,
    planned: Sequence[Mapping[int, int]],
    acknowledged: Mapping[tuple[int, int], bytes],
    written: Mapping[str, Sequence[tuple[bytes, bytes]]],
    reads: Reads,
) -> list[str]:
    """What is wrong; also when there was too little to see it by."""
    found = [
        f"an acknowledged event is lost: offset {offset} of partition {partition}"
        for (partition, offset), value in acknowledged.items()
        if [v for _, v in events[partition][offset : offset + 1]] != [value]
    ]
    for topic, expected in should_be(events, planned).items():
        found += [f"{topic}: {text}" for text in wrong_output(expected, written[topic])]
    found += reads.wrong
    if not reads.replayed:
        found.append("no micro-batch was replayed: no kill fell between a read and its commit")
    there, processed = sum(map(len, events.values())), sum(planned[-1].values())
    if processed != there:
        found.append(f"{processed} of {there} events were processed")
    return found


def turns_of(faults: int, dice: random.Random) -> list[tuple[str, str]]:
    """A kind of kill and its moment, and what people do without one, in turn: each of them as often
    as each other."""
    kills = itertools.cycle([(kind, moment) for moment in MOMENTS for kind in KINDS])
    cases = itertools.cycle([(fault, "") for fault in dice.sample(list(CASES), len(CASES))])
    turns = [next(cases if number % 2 else kills) for number in range(faults)]
    dice.shuffle(turns)
    return turns


def share(dice: random.Random) -> list[tuple[str, str]]:
    """What every run of the suite has of it."""
    fault = dice.choice([fault for fault in CASES if "Connect" not in fault])  # one session less
    turns = [*((kind, MOMENTS[0]) for kind in KINDS), (fault, "")]
    dice.shuffle(turns)
    return turns


@pytest.mark.cluster
@pytest.mark.spark
def test_a_job_with_state_is_exact_whatever_is_killed_under_it(
    tmp_path: Path, until: Callable[..., None], dice: random.Random
) -> None:
    """P12: each micro-batch is read with the same bytes at every replay, and written once to each
    topic."""
    asked = os.environ.get("DLEDGER_JOB_KILLS")
    turns = turns_of(int(asked), dice) if asked else share(dice)
    scene = Scene(tmp_path, until, dice)
    try:
        for kind, moment in turns:
            if moment:
                scene.kill(kind, moment)
            else:
                scene.hands.do(kind)
        scene.finish()
        events, planned = scene.events(), scene.planned()
        reads = judge_reads(events, planned, scene.notes())
        written = {topic: records_of(scene.client, topic) for topic in ("counts", "sums")}
        problems = (
            judge(events, planned, scene.feeder.acknowledged, written, reads) + scene.hands.problems
        )
        figures = {
            "kills": sum(scene.killed.values()),
            "faults that people make": sum(scene.hands.done.values()),
            "of their queries refused, as they had to be": scene.hands.errors,
            "events": sum(map(len, events.values())),
            "micro-batches": len(planned),
            "of them replayed after a restart": reads.replayed,
            "of them read twice by one run": reads.repeated,
            "starts of the job": len(scene.job.lives),
        }
        if path := os.environ.get("DLEDGER_JSON"):
            save(
                result(
                    "job kills",
                    command=f"make job-kills KILLS={len(turns)}",
                    ok=not problems,
                    figures=figures,
                    faults=scene.killed + scene.hands.done,
                    problems=problems[:20],
                ),
                Path(path),
            )
        assert problems == [], f"{len(problems)} problems in {figures}"
        print(figures)  # noqa: T201  shown by pytest -s
    finally:
        scene.close()


EVENTS: Events = {0: [(b"a", b"1"), (b"b", b"2"), (b"a", b"4")], 1: [(b"b", b"8")]}
PLANNED = [{0: 2, 1: 0}, {0: 3, 1: 1}]
COUNTS = [(b"a", b"0,1"), (b"b", b"0,1"), (b"b", b"1,2"), (b"a", b"1,2")]
SUMS = [(b"a", b"0,1"), (b"b", b"0,2"), (b"a", b"1,5"), (b"b", b"1,10")]


def note_of(batch: int, *places: tuple[int, int], run: str = "first") -> Note:
    return Note(
        batch,
        run,
        [(partition, offset, digest(*EVENTS[partition][offset])) for partition, offset in places],
    )


def test_check_of_output_detects_lost_doubled_wrong_and_unordered_rows() -> None:
    expected = should_be(EVENTS, PLANNED)
    assert wrong_output(expected["counts"], COUNTS) == wrong_output(expected["sums"], SUMS) == []
    assert wrong_output(expected["sums"], SUMS[:-1]) == ["lost: (1, b'b', 10)"]
    assert wrong_output(expected["sums"], [*SUMS, SUMS[-1]]) == [
        "doubled or invented: (1, b'b', 10)"
    ]
    assert len(wrong_output(expected["sums"], [*SUMS[:-1], (b"b", b"1,18")])) == 2
    assert wrong_output(expected["sums"], SUMS[::-1]) == ["micro-batches are out of order"]


def test_check_of_run_requires_all_events_processed_and_a_replay() -> None:
    events, known = (
        EVENTS,
        {(p, at): value for p, pairs in EVENTS.items() for at, (_, value) in enumerate(pairs)},
    )
    written = {"counts": COUNTS, "sums": SUMS}
    assert judge(events, PLANNED, known, written, Reads([], 1, 0)) == []
    assert (
        "no micro-batch was replayed" in judge(events, PLANNED, known, written, Reads([], 0, 9))[0]
    )
    assert judge(events, PLANNED, known, written, Reads(["x"], 1, 0)) == ["x"]
    assert (
        "acknowledged event is lost"
        in judge(events, PLANNED, known | {(1, 1): b"8"}, written, Reads([], 1, 0))[0]
    )
    later = {**events, 1: [*events[1], (b"c", b"1")]}
    assert judge(later, PLANNED, known, written, Reads([], 1, 0)) == [
        "4 of 5 events were processed"
    ]


def test_check_of_reads_detects_other_bytes_other_ranges_and_unread_rows() -> None:
    whole = [note_of(0, (0, 0), (0, 1)), note_of(1, (0, 2)), note_of(1, (1, 0))]
    for notes, expected in (
        (whole, ([], 0, 0)),
        ([*whole, note_of(1, (0, 2))], ([], 0, 1)),
        ([*whole, note_of(1, (0, 2), run="second")], ([], 1, 0)),
    ):
        assert judge_reads(EVENTS, PLANNED, notes) == expected
    for notes in (
        [*whole, note_of(1, (0, 1), run="second")],
        [*whole, Note(1, "second", [(0, 2, digest(b"a", b"5"))])],
        whole[:-1],
        [*whole[:-1], note_of(1, (1, 0), run="second")],
    ):
        assert len(judge_reads(EVENTS, PLANNED, notes).wrong) == 1
