"""What people do to checkpoints and queries, as cases: each has topics of its own, and knows what
must come of them.

A case is right when every row is there once, or when a query has ended with an error and no row is
lost or doubled in the topic it writes to. Behind an error each case goes the way on that the error
names, until all rows are there.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from dledger import Client
from dledger.datasource.read.metadata import parse_writer
from tests.cluster.records import records_of

REFUSED = "onReplayMismatch"
"""Stands in the error of a batch that is made again with other rows."""
WARNING = "has no query and no 'txnId'"
TRIES = 6
"""Of a query that ends by something else, as when the leader is killed under it."""


class Runs(Protocol):
    """See queries.Desk."""

    def run(self, asked: dict[str, Any], meanwhile: Callable[[], None] = ...) -> str: ...

    def said(self) -> str: ...


class Case:
    """A source, a target, a checkpoint, and what was found wrong."""

    def __init__(
        self,
        name: str,
        directory: Path,
        client: Client,
        dice: random.Random,
        desk: Runs,
        disturb: Callable[[], None],
    ) -> None:
        self.name, self.dice, self.problems = name, dice, list[str]()
        self.checkpoint = directory / name
        self.errors = 0
        """Queries that were refused, as they had to be."""
        self._client, self._desk, self._disturb = client, desk, disturb
        self._sent: dict[str, list[bytes]] = {}
        self._values = 0

    def topic(self, suffix: str = "", partitions: int = 1) -> str:
        """A new topic of this case that its queries read."""
        name = f"{self.name}{suffix}"
        self._client.create_topic(name, partitions)
        self._sent[name] = []
        return name

    def append(self, *topics: str) -> list[bytes]:
        """Some rows for every partition of these topics."""
        added: list[bytes] = []
        for topic in topics:
            for partition in range(self._client.topic(topic).partitions):
                count = self.dice.randint(1, 40)
                values = [f"{self.name} {self._values + at}".encode() for at in range(count)]
                self._values += count
                self._client.append(topic, values, partition=partition)
                self._sent[topic] += values
                added += values
        return added

    def beside(self, what: str) -> Path:
        """A place beside the checkpoint."""
        return self.checkpoint.with_name(f"{self.name}-{what}")

    @property
    def sent(self) -> list[bytes]:
        return [value for values in self._sent.values() for value in values]

    def written(self, target: str) -> list[bytes]:
        there = self._client.end_offsets(target)
        return [value for at in there for _, value in records_of(self._client, target, at)]

    def ask(self, target: str, checkpoint: Path | None = None, **asked: Any) -> str:
        """Run a query once; its error."""
        source = asked.pop("source", None) or {"subscribe": next(iter(self._sent))}
        asked |= {
            "source": source,
            "topic": target,
            "checkpoint": str(checkpoint or self.checkpoint),
        }
        return self._desk.run(asked, self._disturb)

    def copy(
        self, target: str, checkpoint: Path | None = None, *, refused: bool = False, **asked: Any
    ) -> None:
        """Run a query until it has read all, or until it is refused, which it must be or must not
        be."""
        error = ""
        for _ in range(TRIES):
            error = self.ask(target, checkpoint, **asked)
            if not error or REFUSED in error:
                break
        if refused and not error:
            self.problems.append(
                f"{self.name}: other rows under a committed number went by without an error"
            )
        elif not refused and error:
            self.problems.append(
                f"{self.name}: a query that has no reason to fail ended with {brief(error)}"
            )
        self.errors += refused

    def exact(self, target: str, wanted: Iterable[bytes], *, at_most: int = 1) -> None:
        """Each of these rows is in the topic, so often at most, and nothing else."""
        found, want = Counter(self.written(target)), Counter(wanted)
        lost, invented = want.keys() - found.keys(), found.keys() - want.keys()
        doubled = {value for value, times in found.items() if times > at_most}
        for what, values in (("lost", lost), ("doubled", doubled), ("invented", invented)):
            if values:
                self.problems.append(
                    f"{self.name}: {len(values)} rows are {what}, as {min(values)!r}, in {target}"
                )

    def writers(self, target: str) -> list[dict[str, Any]]:
        """What ``metadata=commits`` says of the writers of a topic."""
        commits = (one for one in self._client.commits(0) if target in one.offsets)
        return [parse_writer(one.writer_id, one.sequence) for one in commits]

    def warned(self) -> bool:
        """Whether a warning has named the topics of this case."""
        return any(WARNING in line and self.name in line for line in self._desk.said().splitlines())


def brief(error: str) -> str:
    """An error without the frames of the JVM."""
    return "\n".join(line for line in error.splitlines() if not line.startswith("\tat "))[:2000]


def restored(case: Case) -> None:
    """The checkpoint is put back from an older copy."""
    source, target = case.topic(), f"{case.name}-copy"
    copy, newest = case.beside("older"), case.beside("newest")
    case.append(source)
    case.copy(target)
    shutil.copytree(case.checkpoint, copy)
    behind = case.dice.randint(1, 3)
    for _ in range(behind):
        case.append(source)
        case.copy(target)
    before = case.sent
    case.checkpoint.rename(newest)
    shutil.copytree(copy, case.checkpoint)
    more = case.append(source) if case.dice.random() < 0.7 else []
    # else it is the batch that was committed, with the same rows
    refused = behind > 1 or bool(more)
    case.copy(target, refused=refused)
    case.exact(target, before)
    if refused:
        shutil.rmtree(case.checkpoint)
        newest.rename(case.checkpoint)
        case.copy(target)
    case.append(source)
    case.copy(target)
    case.exact(target, case.sent)


def forked(case: Case) -> None:
    """The checkpoint is copied, and the copy goes on to another topic."""
    source, target, other = case.topic(), f"{case.name}-copy", f"{case.name}-other"
    fork = case.beside("fork")
    case.append(source)
    case.copy(target)
    shutil.copytree(case.checkpoint, fork)
    behind: list[bytes] = []
    for _ in range(case.dice.randint(1, 3)):
        behind += case.append(source)
        for topic, checkpoint in case.dice.sample(
            [(target, case.checkpoint), (other, fork)], case.dice.randint(1, 2)
        ):
            case.copy(topic, checkpoint)
    case.copy(target)
    case.copy(other, fork)
    case.exact(target, case.sent)
    case.exact(other, behind)


def copied(case: Case) -> None:
    """The checkpoint is copied, and both queries write to the same topic."""
    source, target = case.topic(), f"{case.name}-copy"
    fork = case.beside("fork")
    case.append(source)
    case.copy(target)
    shutil.copytree(case.checkpoint, fork)
    case.append(source)
    case.copy(target)
    before, more = case.sent, case.append(source) if case.dice.random() < 0.7 else []
    case.copy(target, fork, refused=bool(more))
    case.exact(target, before)
    case.append(source)
    case.copy(target)
    case.exact(target, case.sent)


def narrowed(case: Case) -> None:
    """Topics or partitions are taken off the query's options, and named again later."""
    first, second, target = case.topic("-a", 2), case.topic("-b", 2), f"{case.name}-copy"
    whole: dict[str, str]
    if case.dice.random() < 0.5:
        whole, less = {"subscribe": f"{first},{second}"}, {"subscribe": first}
    else:
        whole = {"assign": json.dumps({first: [0, 1], second: [0, 1]})}
        less = {
            "assign": json.dumps(
                case.dice.choice([{first: [0], second: [0, 1]}, {first: [1]}, {second: [0, 1]}])
            )
        }
    case.append(first, second)
    case.copy(target, source=whole)
    for _ in range(case.dice.randint(1, 2)):
        for _ in range(case.dice.randint(1, 2)):
            case.append(first, second)
            case.copy(target, source=less)
        case.append(*case.dice.sample([first, second], case.dice.randint(0, 2)))
        case.copy(target, source=whole)
        case.exact(target, case.sent)


def half_copied(case: Case) -> None:
    """A copy of the checkpoint was cut short: files are missing, the last one ends early. Only the
    file ``metadata`` is there in any case: it is the query's id, and without it Spark begins
    another query."""
    source, target = case.topic(), f"{case.name}-copy"
    for _ in range(case.dice.randint(1, 3)):
        case.append(source)
        case.copy(target)
    whole = case.beside("whole")
    case.checkpoint.rename(whole)
    copy_half(whole, case.checkpoint, case.dice)
    before, more = case.sent, case.append(source) if case.dice.random() < 0.5 else []
    if not case.ask(target):
        case.exact(target, [*before, *more])
        return
    found = Counter(case.written(target))
    if Counter(before) - found or found - Counter([*before, *more]):
        case.exact(target, before)
    case.errors += 1
    shutil.rmtree(case.checkpoint)
    whole.rename(case.checkpoint)
    case.copy(target)
    case.append(source)
    case.copy(target)
    case.exact(target, case.sent)


def copy_half(whole: Path, to: Path, dice: random.Random) -> None:
    """Some files of a directory, one of them perhaps cut, and always its ``metadata``."""
    files = sorted(file.relative_to(whole) for file in whole.rglob("*") if file.is_file())
    dice.shuffle(files)
    kept = files[: dice.randint(0, len(files) - 1)]
    for file in [Path("metadata"), *kept]:
        (to / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(whole / file, to / file)
    if kept and dice.random() < 0.5:
        cut = to / kept[-1]
        cut.write_bytes(cut.read_bytes()[: dice.randrange(cut.stat().st_size + 1)])


def by_hand(case: Case, *, named: bool, thread: bool) -> None:
    """foreachBatch whose writes Spark does not show to be part of it, and which fails behind them,
    once or twice."""
    source, target = case.topic(), f"{case.name}-copy"
    fail, runs = case.beside("fail"), 0
    asked = {"fail": str(fail), "named": named, "thread": thread}
    for _ in range(case.dice.randint(1, 2)):
        case.append(source)
        fail.touch()
        for _ in range(TRIES):
            runs += 1
            error = case.ask(target, **asked)
            if not error:
                break
        else:
            case.problems.append(
                f"{case.name}: the query ended {TRIES} times, at last with {brief(error)}"
            )
        case.exact(target, case.sent, at_most=1 if named else runs)
    repeats = {one["repeat"] for one in case.writers(target)}
    if repeats != {"nothing" if named else "again"}:
        case.problems.append(
            f"{case.name}: metadata=commits says {repeats} of what a repeat would write"
        )
    if case.warned() == named:
        case.problems.append(f"{case.name}: a warning was {'given' if named else 'missing'}")


CASES: dict[str, Callable[[Case], None]] = {
    "restored checkpoint": restored,
    "forked query": forked,
    "copied query with the same topic": copied,
    "narrowed and widened query": narrowed,
    "half-copied checkpoint": half_copied,
    "thread with a txnId": lambda case: by_hand(case, named=True, thread=True),
    "thread without a txnId": lambda case: by_hand(case, named=False, thread=True),
    "Spark Connect with a txnId": lambda case: by_hand(case, named=True, thread=False),
    "Spark Connect without a txnId": lambda case: by_hand(case, named=False, thread=False),
}
"""Fault -> what is done. Those over Spark Connect want a session of that kind."""
