"""Kills of members, leaders and all nodes under load, and the judgement over what members wrote."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from dledger.client import Client
from dledger.embedded import EmbeddedGroup
from dledger.errors import DLedgerError
from verification.invariants.broken import Broken
from verification.invariants.consumed import Consumed
from verification.members.member import GROUP, TOPIC
from verification.result import result

MEMBERS: Final = 5
PARTITIONS: Final = 8
BATCH: Final = 20
PATIENCE_S: Final = 90.0
"""For the members to read what is left, once nothing is killed any more."""
PROBLEMS: Final = 20


class Writer(threading.Thread):
    """Appends to all partitions, and keeps how far each is acknowledged."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._servers, self._done = servers, threading.Event()
        self.ends: Counter[int] = Counter()
        self.records = 0

    def run(self) -> None:
        with Client(self._servers) as client:
            while not self._done.wait(0.005):
                partition = self.records // BATCH % PARTITIONS
                try:
                    done = client.append(TOPIC, [b"x" * 100] * BATCH, partition=partition)
                except DLedgerError:
                    continue
                self.ends[partition] = max(self.ends[partition], done.end)
                self.records += BATCH

    def finish(self) -> None:
        self._done.set()
        self.join()


class Members:
    """Five processes, each in a place of its own; one that is killed comes again as another one."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._servers, self._folder = servers, folder
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._made = 0
        for place in range(MEMBERS):
            self._start(place)

    def _start(self, place: int) -> None:
        self._made += 1
        name = str(self._folder / f"member-{self._made}")
        command = [sys.executable, "-m", "verification.members.member", self._servers, name]
        with Path(f"{name}.err").open("wb") as errors:
            self._running[place] = subprocess.Popen([*command, str(place)], stderr=errors)

    def kill(self, dice: Random) -> None:
        """SIGKILL one, and start another."""
        place = dice.randrange(MEMBERS)
        self._end(self._running.pop(place))
        self._start(place)

    def kill_all(self) -> None:
        """The end of all."""
        while self._running:
            self._end(self._running.popitem()[1])

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()

    @property
    def problems(self) -> list[str]:
        """Members that ended by themselves."""
        ended = [one.poll() for one in self._running.values()]
        return [f"a member ended with {code}" for code in ended if code is not None]


def run(folder: Path, wanted: int, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """So many kills. ``seed``: of what is killed, and when."""
    dice, faults, problems = Random(seed), Counter[str](), list[str]()
    begun = time.monotonic()
    with (
        EmbeddedGroup(folder / "group", replicas=3) as group,
        Client(group.bootstrap_servers) as client,
    ):
        client.create_topic(TOPIC, PARTITIONS)
        writer = Writer(group.bootstrap_servers)
        members = Members(group.bootstrap_servers, folder)
        try:
            writer.start()
            _torture(group, members, faults, problems, wanted=wanted, dice=dice, say=say)
            writer.finish()
            if not _is_read(client, writer):
                problems.append(f"after {PATIENCE_S:g} s there are records that nobody has read")
        finally:
            members.kill_all()
    handed, again = judge(folder, writer.ends, problems)
    return result(
        "members",
        command=f"make members KILLS={wanted} SEED={seed}",
        ok=not problems,
        figures={
            "kills": faults.total(),
            "seconds": round(time.monotonic() - begun),
            "acknowledged records": sum(writer.ends.values()),
            "records handed out": handed,
            "of them again, not committed before": again,
            "problems": len(problems),
        },
        faults=dict(sorted(faults.items())),
        problems=problems[:PROBLEMS],
    )


def _torture(
    group: EmbeddedGroup,
    members: Members,
    faults: Counter[str],
    problems: list[str],
    *,
    wanted: int,
    dice: Random,
    say: Callable[[str], None],
) -> None:
    """So many kills, or fewer when there is a problem."""
    while faults.total() < wanted and not problems:
        time.sleep(dice.uniform(0.5, 3))
        faults[_fault(group, members, dice)] += 1
        problems += members.problems
        if not faults.total() % 20:
            say(f"{faults.total()} kills")


def _fault(group: EmbeddedGroup, members: Members, dice: Random) -> str:
    chance = dice.random()
    if chance < 0.6:
        members.kill(dice)
        return "member killed"
    nodes = [group.leader] if chance < 0.9 else list(group.nodes)
    for node in nodes:
        group.kill(node)
    for node in nodes:
        group.restart(node)
    return "leader killed" if len(nodes) == 1 else "all nodes killed"


def _is_read(client: Client, writer: Writer) -> bool:
    """Whether the group comes to the end of each partition."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        known = client.group(GROUP).offsets.get(TOPIC, {})
        if all(known.get(at, 0) >= writer.ends[at] for at in range(PARTITIONS)):
            return True
        time.sleep(0.2)
    return False


def judge(folder: Path, ends: Counter[int], problems: list[str]) -> tuple[int, int]:
    """Hold what all members wrote against the promises, in the order of time. Records that were
    handed out, and those of them that had been before."""
    consumed, reached = Consumed(), Counter[int]()
    handed = again = 0
    for what, *more in _steps(folder):
        try:
            if what == "handed":
                key, member, since, first, count = more
                consumed.handed(GROUP, key, (member, since), first, count)
                at = key & 0xFFFFFFFF
                handed += count
                again += max(0, min(reached[at], first + count) - first)
                reached[at] = max(reached[at], first + count)
            elif what == "asked":
                consumed.asked(GROUP, more[0], _offsets(more[1]))
            elif what == "acked":
                consumed.acked(GROUP, _offsets(more[0]))
        except Broken as broken:
            problems.append(str(broken))
    unread = {at: (reached[at], end) for at, end in ends.items() if reached[at] < end}
    if unread:
        problems.append(
            f"acknowledged records were handed to nobody, (up to, end) by partition: {unread}"
        )
    return handed, again


def _offsets(positions: dict[str, int]) -> dict[int, int]:
    return {int(key): offset for key, offset in positions.items()}


def _steps(folder: Path) -> Iterator[list[Any]]:
    """All lines of all members, the earliest first."""
    lines = [
        json.loads(line)
        for path in folder.glob("member-*")
        if path.suffix != ".err"
        for line in path.read_text().splitlines()
    ]
    for _, *step in sorted(lines, key=lambda line: line[0]):
        yield step
