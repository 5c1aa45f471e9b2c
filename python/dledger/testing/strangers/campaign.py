"""Each attack in turn on one group, with a healthy client beside it, and what must hold afterwards."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dledger.client import Client
from dledger.embedded import EmbeddedGroup
from dledger.errors import DLedgerError, Unavailable
from dledger.testing.result import result
from dledger.testing.strangers.healthy import Healthy, p99
from dledger.testing.strangers.nodes import GROUP, Nodes
from dledger.testing.strangers.users import check_stranger, intrude
from dledger.types import NodeId

MEMORY_MIB: Final = 300.0
SLOWER: Final = 3.0
QUICK_MS: Final = 20.0
"""A healthy client's p99 counts as at least this: on a machine that does nothing else it is 2 or 3 ms, and its triple
would be one slice of the scheduler."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    quiet_s: float = 10.0
    messages: int = 100_000
    connections: int = 4200
    idle_s: float = 15.0
    unfinished: int = 50
    """Large requests to each node."""
    slow_s: float = 20.0
    commands: int = 30_000


SMALL: Final = Sizes(2.0, 3_000, 100, 2.0, 10, 3.0, 1_500)
"""For the ordinary test suite, which measures no times."""


ALL: Final = ("slow", "idle", "flood", "liar", "path")


@dataclass(slots=True)
class Part:
    """One attack."""

    name: str
    achieved: dict[str, Any]
    p99_ms: float
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Campaign:
    """All of them, or those in ``only``, on the files in ``folder``.

    ``timed``: whether a healthy client's p99 is judged. ``as_another``: whether the strangers are another user.
    """

    folder: Path
    sizes: Sizes
    say: Say
    only: Sequence[str] = ALL
    timed: bool = True
    as_another: bool = True
    quiet_ms: float = 0.0
    parts: list[Part] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def run(self) -> dict[str, Any]:
        """Run everything; the result as JSON values."""
        if self.as_another:
            check_stranger(self.folder / "mine")
        with Nodes(self.folder) as nodes:
            healthy = Healthy(nodes.bootstrap_servers)
            try:
                time.sleep(self.sizes.quiet_s)
                self.quiet_ms = p99(healthy.take())
                self.say(f"a healthy client waits {self.quiet_ms:.1f} ms (p99) while nobody disturbs it")
                self._attacks(nodes, healthy)
            finally:
                healthy.close()
            peak, lines = nodes.peak_mib(), nodes.log_lines()
            if nodes.running < len(nodes.addresses):
                self.problems.append(f"{len(nodes.addresses) - nodes.running} nodes have stopped")
        if peak > MEMORY_MIB:
            self.problems.append(f"a node took {peak:.0f} MiB, over {MEMORY_MIB:.0f}")
        if "path" in self.only:
            self._path()
        return self._result(peak, lines)

    def _attacks(self, nodes: Nodes, healthy: Healthy) -> None:
        sizes = self.sizes
        leader = NodeId(next(iter(nodes.status().values()))["leader_id"])
        each, one = dict(nodes.addresses), {leader: nodes.addresses[leader]}
        plan: dict[str, tuple[str, ...]] = {
            "slow": ("--count", str(sizes.unfinished), "--seconds", str(sizes.slow_s)),
            "idle": ("--count", str(sizes.connections), "--seconds", str(sizes.idle_s)),
            "flood": ("--count", str(sizes.commands)),
            "liar": ("--count", str(sizes.messages)),
        }
        for name, more in plan.items():
            if name == "idle" and name in self.only:
                self._attack(nodes, healthy, name, one, *more, beside=lambda: self._come_in(nodes, leader))
            elif name in self.only:
                self._attack(nodes, healthy, name, each, *more)

    def _attack(
        self,
        nodes: Nodes,
        healthy: Healthy,
        name: str,
        at: Mapping[NodeId, str],
        *more: str,
        beside: Callable[[], list[str]] | None = None,
    ) -> Part:
        """Run one attack, with ``beside`` in the middle of it, and see what became of the group."""
        terms, errors = nodes.terms(), len(healthy.errors)
        healthy.take()
        arguments = (name, "--nodes", json.dumps(at), "--group", GROUP, *more)
        problems: list[str] = []
        work = beside or (lambda: [])
        achieved = _beside(lambda: intrude(*arguments, as_another=self.as_another), work, problems)
        part = Part(name, achieved, p99(healthy.take()), problems)
        if taken := achieved.get("taken for a node"):
            problems.append(f"{taken} connections were taken for a node's without a proof")
        self.parts.append(part)
        try:
            moved = {node: (term, now) for node, now in nodes.terms().items() if (term := terms[node]) != now}
        except DLedgerError as error:
            moved = {}
            problems.append(f"no status afterwards: {error}")
        if moved and beside is None:  # a member that comes and goes may move them
            problems.append(f"terms moved: {moved}")
        problems += healthy.errors[errors:][:3]
        if self.timed and part.p99_ms > SLOWER * max(self.quiet_ms, QUICK_MS):
            problems.append(f"a healthy client waited {part.p99_ms:.0f} ms (p99) against {self.quiet_ms:.1f}")
        self.say(f"{name}: {achieved}, p99 {part.p99_ms:.1f} ms, {nodes.peak_mib():.0f} MiB, {problems or 'held'}")
        return part

    def _come_in(self, nodes: Nodes, leader: NodeId) -> list[str]:
        """While all places are wanted: a new client, and a member that was away, get in."""
        problems: list[str] = []
        time.sleep(self.sizes.idle_s / 2)
        try:
            with Client(nodes.addresses[leader], request_timeout_ms=10_000) as client:
                client.topics()
        except DLedgerError as error:
            problems.append(f"a new client did not get in: {error}")
        away = next(name for name in nodes.addresses if name != leader)
        nodes.stop(away)
        nodes.start(away)
        try:
            nodes.until_led()
        except Unavailable as error:
            problems.append(f"{away} did not get in again: {error}")
        return problems

    def _path(self) -> None:
        """Another user at a path group."""
        home = Path(tempfile.mkdtemp(prefix="dledger-path-", dir=self.folder))
        home.chmod(0o700)
        with EmbeddedGroup(home / "log", replicas=1) as group, Client(group.bootstrap_servers) as client:
            client.create_topic("mine")
            client.append("mine", [b"a record"])
            at = {NodeId(f"n{n}"): address for n, address in enumerate(group.bootstrap_servers.split(","))}
            achieved = {
                **intrude("files", "--path", str(home / "log")), **intrude("path", "--nodes", json.dumps(at)),
            }  # fmt: skip
            part = Part("path", achieved, 0.0)
            if [topic.name for topic in client.topics()] != ["mine"] or client.end_offsets("mine") != {0: 1}:
                part.problems.append("the group is not as it was")
        reached = ("read", "welcome", "topics", "appended", "deleted")
        part.problems += [f"another user: {what}" for what in reached if achieved[what]]
        self.parts.append(part)
        self.say(f"path: {achieved}, {part.problems or 'held'}")

    def _result(self, peak: float, lines: int) -> dict[str, Any]:
        problems = [*self.problems, *(f"{part.name}: {text}" for part in self.parts for text in part.problems)]
        rows = [["attack", "achieved", "p99 of a healthy client, ms"]]
        for part in self.parts:
            told = ", ".join(f"{int(value):,} {name}" for name, value in part.achieved.items() if name != "uid")
            rows.append([part.name, told, f"{part.p99_ms:.1f}"])
        return result(
            "strangers", command="make strangers", ok=not problems,
            figures={
                "attacks": len(self.parts), "MiB at most in a node": peak,
                "ms p99 undisturbed": round(self.quiet_ms, 1), "log lines": lines,
            },
            faults={}, problems=problems, table=rows,
        )  # fmt: skip


def _beside(attack: Callable[[], dict[str, Any]], work: Callable[[], list[str]], problems: list[str]) -> dict[str, Any]:
    """Run ``work`` while ``attack`` is under way."""
    with ThreadPoolExecutor(1) as pool:
        attacking = pool.submit(attack)
        problems += work()
        return attacking.result()


__all__ = ["ALL", "SMALL", "Campaign", "Sizes"]
