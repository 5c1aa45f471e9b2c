"""Each attack in turn on one group, with a healthy client beside it, and the checks afterwards."""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from dledger.client import Client
from dledger.embedded import EmbeddedGroup
from dledger.errors import DLedgerError, Unavailable
from dledger.types import NodeId
from verification.result import result
from verification.strangers.certificates import Authority
from verification.strangers.healthy import Healthy, p99
from verification.strangers.nodes import GROUP, Nodes
from verification.strangers.sinks import sinks
from verification.strangers.users import Intrude, same_user

MEMORY_MIB: Final = 300.0
SLOWER: Final = 3.0
CROWD_MIB: Final = 64.0
"""How much a node may grow by a crowd."""
CROWD_SLOWER: Final = 2.0
LEAST_SAMPLES: Final = 300
"""Requests of a healthy client, quiet and attacked each; the p99 of fewer says little."""
SETTLE_S: Final = 0.3
"""Requests that wait so long behind the end of an attack still count as attacked."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    rounds: int = 3
    """Of a quiet time and then an attack, in turn, so that a machine that becomes slower does so
    for both."""
    seconds: float = 4.0
    """Of a quiet time, and at least of an attack."""
    messages: int = 34_000
    """Of one attack, as all of these."""
    connections: int = 4200
    crowd: int = 4700
    """Connections to the leader; `crowd_unfinished` more have a large request each."""
    crowd_unfinished: int = 300
    hellos: int = 50_000
    """At most; as many as there is time for."""
    unfinished: int = 50
    """Large requests to each node."""
    commands: int = 10_000


SMALL: Final = Sizes(1, 2.0, 3_000, 100, 120, 30, hellos=500, unfinished=10, commands=1_500)
"""For the ordinary test suite, which measures no times."""


BARE_TOO: Final = ("crowd", "flood")
"""Attacks that take much of a machine whatever is attacked: they are also made on servers that
throw away what they read."""
AT_BARE: Final = " at bare servers"
COME_IN: Final = ("idle", "unproven")
"""Attacks on the places of others: while they last, a new client and a member must get in."""
LARGE: Final = "large"
"""A topic of which there is much to read."""
LARGE_RECORDS: Final = 64
"""Of a MiB each."""
ALL: Final = (
    "slow",
    "deaf",
    "polls",
    "idle",
    "crowd",
    "unproven",
    "flood",
    "liar",
    "certificates",
    "path",
)


@dataclass(slots=True)
class Part:
    """One attack."""

    name: str
    achieved: dict[str, Any]
    quiet: list[float] = field(default_factory=list)
    """Waits of a healthy client in ms, of all rounds, while there is no stranger."""
    attacked: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    slower: float = SLOWER
    bare_ms: float = 0.0
    """The p99 beside the same attack on bare servers, where that is made too: strangers on other
    machines would take none of the nodes' processors."""

    @property
    def is_judged(self) -> bool:
        """All but those on bare servers: they show what of the waits is the machine's."""
        return not self.name.endswith(AT_BARE)

    def judge(self) -> None:
        """A healthy client may wait `slower` times as long (p99)."""
        quiet_ms, attacked_ms = max(p99(self.quiet), self.bare_ms), p99(self.attacked)
        if min(len(self.quiet), len(self.attacked)) < LEAST_SAMPLES:
            self.problems.append(
                f"only {len(self.quiet)} requests quiet and {len(self.attacked)} attacked"
            )
        if attacked_ms > self.slower * quiet_ms:
            self.problems.append(
                f"a healthy client waited {attacked_ms:.1f} ms (p99), {quiet_ms:.1f} quiet"
            )


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that the other user may look into, until the end."""
    with tempfile.TemporaryDirectory(prefix="dledger-strangers-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@dataclass(slots=True)
class Campaign:
    """All of them, or those in ``only``, on the files in ``folder``.

    ``timed``: whether a healthy client's p99 is judged. ``intrude``: how the strangers run, as user
    ``stranger``.
    """

    folder: Path
    sizes: Sizes
    say: Say
    only: Sequence[str] = ALL
    timed: bool = True
    intrude: Intrude = same_user
    stranger: int = field(default_factory=os.getuid)
    parts: list[Part] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def run(self) -> dict[str, Any]:
        """Run everything; the result as JSON values."""
        with Nodes(self.folder) as nodes:
            with closing(Healthy(nodes.bootstrap_servers)) as healthy:
                self._attacks(nodes, healthy)
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
        plan: dict[str, int] = {
            "slow": sizes.unfinished, "deaf": sizes.unfinished, "polls": sizes.unfinished,
            "idle": sizes.connections, "crowd": sizes.crowd, "unproven": sizes.hellos,
            "flood": sizes.commands, "liar": sizes.messages,
        }  # fmt: skip
        topic_id = 0
        for name, count in plan.items():
            if name in self.only:
                at = one if name in ("idle", "crowd") else each
                more = ["--count", str(count)]
                if name in ("deaf", "polls"):
                    topic_id = topic_id or self._large_topic(nodes)
                    more += ["--topic-id", str(topic_id)]
                if name == "crowd":
                    more += ["--unfinished", str(sizes.crowd_unfinished)]
                if self.timed and name in BARE_TOO:
                    with sinks(at) as bare:
                        label = name + AT_BARE
                        part = self._attack(nodes, healthy, name, bare, *more, label=label)
                        self._end(part, nodes)
                part = self._attack(nodes, healthy, name, at, *more)
                if name in COME_IN:
                    self._beside(
                        part, lambda: self._come_in(nodes, leader), name, at, "--count", str(count)
                    )
                self._end(part, nodes)

    def _large_topic(self, nodes: Nodes) -> int:
        """Its id."""
        with Client(nodes.bootstrap_servers) as client:
            client.create_topic(LARGE, if_absent=True)
            for number in range(LARGE_RECORDS):
                client.append(LARGE, random.Random(number).randbytes(1 << 20))
            return client.topic(LARGE).topic_id

    def _attack(
        self,
        nodes: Nodes,
        healthy: Healthy,
        name: str,
        at: Mapping[NodeId, str],
        *more: str,
        label: str = "",
    ) -> Part:
        """Quiet and attacked in turn, and the state of the group afterwards."""
        terms, errors = nodes.terms(), len(healthy.errors)
        achieved, part = Counter[str](), Part(label or name, {})
        if part.name == "crowd":
            part.slower = CROWD_SLOWER
        part.bare_ms = max(
            (p99(one.attacked) for one in self.parts if one.name == part.name + AT_BARE),
            default=0.0,
        )
        before = nodes.begin_peak()
        healthy.take()
        for number in range(self.sizes.rounds):
            time.sleep(self.sizes.seconds)
            part.quiet += healthy.take()
            achieved.update(self._intrude(name, at, "--seed", str(number + 1), *more))
            time.sleep(SETTLE_S)
            part.attacked += healthy.take()
        part.achieved = dict(achieved)
        if part.name == "crowd":
            grown = part.achieved["MiB more"] = nodes.growth_mib(before)
            if grown > CROWD_MIB:
                part.problems.append(f"a node grew by {grown:.0f} MiB, over {CROWD_MIB:.0f}")
        if taken := achieved["taken for a node"]:
            part.problems.append(f"{taken} connections were taken for a node's without a proof")
        if name == "liar" and not achieved["refused"]:
            part.problems.append("no hello was refused")
        try:
            now = nodes.terms()
        except DLedgerError as error:
            part.problems.append(f"no status afterwards: {error}")
        else:
            if moved := {
                node: (terms[node], term) for node, term in now.items() if terms[node] != term
            }:
                part.problems.append(f"terms moved: {moved}")
        part.problems += healthy.errors[errors:][:3]
        if self.timed and part.is_judged:
            part.judge()
        self.parts.append(part)
        return part

    def _intrude(self, name: str, at: Mapping[NodeId, str], *more: str) -> dict[str, Any]:
        common = ("--nodes", json.dumps(at), "--group", GROUP, "--seconds", str(self.sizes.seconds))
        found = self.intrude(name, *common, *more)
        del found["uid"]
        return found

    def _beside(
        self,
        part: Part,
        work: Callable[[], list[str]],
        name: str,
        at: Mapping[NodeId, str],
        *more: str,
    ) -> None:
        """The same attack once more, with ``work`` in the middle of it."""
        with ThreadPoolExecutor(1) as pool:
            attacking = pool.submit(
                self._intrude, name, at, *more, "--seconds", str(3 * self.sizes.seconds)
            )
            part.problems += work()
            attacking.result()

    def _end(self, part: Part, nodes: Nodes) -> None:
        self.say(
            f"{part.name}: {part.achieved}, p99 {p99(part.attacked):.1f} ms of "
            f"{len(part.attacked)}, {p99(part.quiet):.1f} quiet of {len(part.quiet)}, "
            f"{nodes.peak_mib():.0f} MiB, {part.problems or 'held'}"
        )

    def _come_in(self, nodes: Nodes, leader: NodeId) -> list[str]:
        """While all places are wanted: a new client, and a member that was away, get in."""
        problems: list[str] = []
        time.sleep(self.sizes.seconds)
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
        """Clients' certificates, and other nodes', at a group under TLS; and, to see that this
        shows anything, the right ones."""
        with open_folder() as folder:
            authority = Authority(folder)
            false = [
                authority.issue("plain"),
                authority.issue("alice", "dledger://client/alice"),
                authority.issue("n9", "dledger://node/n9"),
            ]
            stores = self.folder / "certificates"
            stores.mkdir()
            with Nodes(stores, authority=authority) as nodes:
                with closing(Healthy(nodes.bootstrap_servers, **nodes.settings)) as healthy:
                    more = ("--tls", json.dumps(false), "--count", str(self.sizes.messages // 10))
                    part = self._attack(
                        nodes, healthy, "liar", nodes.addresses, *more, label="certificates"
                    )
                    self._end(part, nodes)
                uris = [f"dledger://node/{name}" for name in nodes.addresses]
                more = ("--tls", json.dumps([authority.issue("own", *uris)]), "--seconds", "0")
                found = self._intrude("liar", nodes.addresses, *more)
                if found["taken for a node"] != found["hellos"]:
                    part.problems.append(
                        f"the nodes' own certificates are not taken, so this shows nothing: {found}"
                    )
                if nodes.running < len(nodes.addresses):
                    part.problems.append("a node has stopped")

    def _path(self) -> None:
        """Another user at a path group, in a folder that all users may look into."""
        with (
            open_folder() as home,
            EmbeddedGroup(log := home / "log", replicas=1) as group,
            Client(group.bootstrap_servers) as client,
        ):
            client.create_topic("mine")
            client.append("mine", [b"a record"])
            client.commit_offsets("readers", {"mine": {0: 0}})
            at = {"n0": group.bootstrap_servers}
            kept = [log, *log.rglob("*")]
            named = chain.from_iterable(("--path", str(path)) for path in kept)
            files = {"files read": int(self.intrude("files", *named)["read"])}
            tried = ("--nodes", json.dumps(at), "--topic", "mine")
            achieved = self.intrude("path", *tried) | files
            part = Part("path", achieved)
            topics = {topic.name: client.end_offsets(topic.name) for topic in client.topics()}
            readers = client.group("readers").offsets
            if topics != {"mine": {0: 1}} or readers != {"mine": {0: 0}}:
                part.problems.append("the group is not as it was")
        wrong = [what for what, often in achieved.items() if often and what != "uid"]
        part.problems += [f"another user: {what}" for what in wrong]
        self.parts.append(part)
        self.say(f"path: {achieved}, {part.problems or 'held'}")

    def _result(self, peak: float, lines: int) -> dict[str, Any]:
        problems = [
            *self.problems,
            *(f"{part.name}: {text}" for part in self.parts for text in part.problems),
        ]
        times = ["p99 of a healthy client, ms", "quiet, ms", "requests, attacked and quiet"]
        rows = [["attack", "achieved", *times]]
        for part in self.parts:
            told = ", ".join(
                f"{int(value):,} {name}" for name, value in part.achieved.items() if name != "uid"
            )
            counts = f"{len(part.attacked):,}, {len(part.quiet):,}"
            times = [f"{p99(part.attacked):.1f}", f"{p99(part.quiet):.1f}", counts]
            rows.append([part.name, told, *(times if part.attacked else [""] * len(times))])
        return result(
            "strangers",
            command="make strangers",
            ok=not problems,
            figures={
                "attacks": sum(part.is_judged for part in self.parts),
                "uid of the nodes": os.getuid(),
                "uid of the strangers": self.stranger,
                "MiB at most in a node": peak,
                "times the p99 at most": self._worst(),
                "log lines": lines,
            },
            faults={},
            problems=problems,
            table=rows,
        )

    def _worst(self) -> float:
        """The largest p99 beside an attack, in those of the quiet times around it."""
        judged = [part for part in self.parts if part.quiet and part.is_judged]
        return round(max((p99(one.attacked) / p99(one.quiet) for one in judged), default=0.0), 2)
