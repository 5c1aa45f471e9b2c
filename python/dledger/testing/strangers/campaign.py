"""Each attack in turn on one group, with a healthy client beside it, and what must hold afterwards."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dledger.client import Client
from dledger.embedded import EmbeddedGroup
from dledger.errors import ConfigError, DLedgerError, Unavailable
from dledger.testing.result import result
from dledger.testing.strangers.certificates import Authority
from dledger.testing.strangers.healthy import Healthy, p99
from dledger.testing.strangers.nodes import GROUP, Nodes
from dledger.testing.strangers.users import check_stranger, intrude
from dledger.types import NodeId

MEMORY_MIB: Final = 300.0
SLOWER: Final = 3.0
QUICK_MS: Final = 20.0
"""A healthy client's p99 before an attack counts as at least this: on a machine that does nothing else it is 2 or 3 ms,
and its triple would be one slice of the scheduler. The result says where that was so."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    quiet_s: float = 10.0
    messages: int = 100_000
    connections: int = 4200
    idle_s: float = 15.0
    hellos: int = 50_000
    """At most; as many as there is time for."""
    unfinished: int = 50
    """Large requests to each node."""
    slow_s: float = 20.0
    commands: int = 30_000


SMALL: Final = Sizes(2.0, 3_000, 100, 2.0, 500, 10, 3.0, 1_500)
"""For the ordinary test suite, which measures no times."""


COME_IN: Final = ("idle", "unproven")
"""Attacks on the places of others: while they last, a new client and a member must get in."""
ALL: Final = ("slow", "idle", "unproven", "flood", "liar", "certificates", "path")


@dataclass(slots=True)
class Part:
    """One attack."""

    name: str
    achieved: dict[str, Any]
    p99_ms: float
    before_ms: float = 0.0
    """The same just before, beside a program of the stranger's that wants a processor and leaves the nodes alone."""
    problems: list[str] = field(default_factory=list)

    @property
    def bound_ms(self) -> float:
        return SLOWER * max(self.before_ms, QUICK_MS)


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
        if "certificates" in self.only:
            self._certificates()
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
            "unproven": ("--count", str(sizes.hellos), "--seconds", str(sizes.idle_s)),
            "flood": ("--count", str(sizes.commands)),
            "liar": ("--count", str(sizes.messages)),
        }
        for name, more in plan.items():
            if name in COME_IN and name in self.only:
                at = one if name == "idle" else each
                self._attack(nodes, healthy, name, at, *more, beside=lambda: self._come_in(nodes, leader))
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
        label: str = "",
    ) -> Part:
        """Run one attack, with ``beside`` in the middle of it, and see what became of the group."""
        terms, errors = nodes.terms(), len(healthy.errors)
        before = self._before(healthy)
        arguments = (name, "--nodes", json.dumps(at), "--group", GROUP, *more)
        problems: list[str] = []
        work = beside or (lambda: [])
        achieved = _beside(lambda: intrude(*arguments, as_another=self.as_another), work, problems)
        part = Part(label or name, achieved, p99(healthy.take()), before, problems)
        if taken := achieved.get("taken for a node"):
            problems.append(f"{taken} connections were taken for a node's without a proof")
        if name == "liar" and not achieved.get("refused"):
            problems.append("no hello was refused")
        self.parts.append(part)
        try:
            moved = {node: (term, now) for node, now in nodes.terms().items() if (term := terms[node]) != now}
        except DLedgerError as error:
            moved = {}
            problems.append(f"no status afterwards: {error}")
        if moved and beside is None:  # a member that comes and goes may move them
            problems.append(f"terms moved: {moved}")
        problems += healthy.errors[errors:][:3]
        if self.timed and part.p99_ms > part.bound_ms:
            problems.append(f"a healthy client waited {part.p99_ms:.0f} ms (p99), over {part.bound_ms:.0f}")
        self.say(
            f"{part.name}: {achieved}, p99 {part.p99_ms:.1f} ms, {before:.1f} before, {nodes.peak_mib():.0f} MiB, "
            f"{problems or 'held'}"
        )
        return part

    def _before(self, healthy: Healthy) -> float:
        """What a healthy client waits beside a program that takes as much of this machine as an attack's does."""
        if not self.timed:
            return 0.0
        healthy.take()
        intrude("busy", "--seconds", str(self.sizes.quiet_s / 2), as_another=self.as_another)
        return p99(healthy.take())

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

    def _certificates(self) -> None:
        """Clients' certificates, and other nodes', at a group under TLS; and, to see that this shows anything, the
        right ones."""
        folder = Path(tempfile.mkdtemp(prefix="dledger-certificates-"))
        folder.chmod(0o755)  # the other user has certificates too
        try:
            authority = Authority(folder)
            false = [authority.issue("plain"), authority.issue("alice", "dledger://client/alice"),
                     authority.issue("n9", "dledger://node/n9")]  # fmt: skip
            with Nodes(self._made("certificates"), authority=authority) as nodes:
                healthy = Healthy(nodes.bootstrap_servers, **nodes.settings)
                try:
                    more = ("--tls", json.dumps(false), "--count", str(self.sizes.messages // 10))
                    part = self._attack(nodes, healthy, "liar", dict(nodes.addresses), *more, label="certificates")
                finally:
                    healthy.close()
                own = [authority.issue("own", *(f"dledger://node/{name}" for name in nodes.addresses))]
                arguments = ("--nodes", json.dumps(nodes.addresses), "--group", GROUP, "--tls", json.dumps(own))
                found = intrude("liar", *arguments, "--count", "1", as_another=self.as_another)
                if found["taken for a node"] != found["hellos"]:
                    part.problems.append(f"the nodes' own certificates are not taken, so this shows nothing: {found}")
                if nodes.running < len(nodes.addresses):
                    part.problems.append("a node has stopped")
        finally:
            shutil.rmtree(folder)

    def _made(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        return folder

    def _path(self) -> None:
        """Another user at a path group, in a folder that everybody may look into."""
        home = Path(tempfile.mkdtemp(prefix="dledger-path-"))
        try:
            home.chmod(0o755)
            self._path_in(home / "log")
        finally:
            shutil.rmtree(home)

    def _path_in(self, log: Path) -> None:
        with EmbeddedGroup(log, replicas=1) as group, Client(group.bootstrap_servers) as client:
            client.create_topic("mine")
            client.append("mine", [b"a record"])
            at = {NodeId(f"n{n}"): address for n, address in enumerate(group.bootstrap_servers.split(","))}
            kept = [log, *(log / name for name in ("secret", "group.json", ".lock", "n0"))]
            read = [str(path) for path in kept if self._files(path)]
            achieved = intrude("path", "--nodes", json.dumps(at), as_another=self.as_another) | {"read": len(read)}
            part = Part("path", achieved, 0.0)
            if [topic.name for topic in client.topics()] != ["mine"] or client.end_offsets("mine") != {0: 1}:
                part.problems.append("the group is not as it was")
        reached = ("read", "welcome", "topics", "appended", "deleted")
        part.problems += [f"another user: {what}" for what in reached if achieved[what]]
        self.parts.append(part)
        self.say(f"path: {achieved}, {part.problems or 'held'}")

    def _files(self, path: Path) -> bool:
        if not path.exists():
            raise ConfigError(f"{path} is not there to be read")
        return bool(intrude("files", "--path", str(path), as_another=self.as_another)["read"])

    def _result(self, peak: float, lines: int) -> dict[str, Any]:
        problems = [*self.problems, *(f"{part.name}: {text}" for part in self.parts for text in part.problems)]
        rows = [["attack", "achieved", "p99 of a healthy client, ms", "before, ms", "bound, ms"]]
        for part in self.parts:
            told = ", ".join(f"{int(value):,} {name}" for name, value in part.achieved.items() if name != "uid")
            floor = f" (for at least {QUICK_MS:.0f} before)" if part.before_ms < QUICK_MS else ""
            times = [f"{part.p99_ms:.1f}", f"{part.before_ms:.1f}", f"{part.bound_ms:.0f}{floor}"]
            rows.append([part.name, told, *(times if part.p99_ms else ["", "", ""])])
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
