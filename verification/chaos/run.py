"""One group from its start to the verdict."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Final

from dledger.client import AsyncClient
from dledger.errors import DLedgerError
from dledger.testing.checkers.history import Operation, Recorder, save
from dledger.testing.checkers.verdict import Verdict, check_history
from verification.chaos.acks import Acks, Gap
from verification.chaos.appends import Appends
from verification.chaos.clients import Appender, Pipeliner, Place, Worker, run_all
from verification.chaos.consumers import Consumer, Watcher
from verification.chaos.ending import STEP_S, compare_stores, read_back
from verification.chaos.faults.fault import Fault
from verification.chaos.floor import Floor
from verification.chaos.held import HeldWriter
from verification.chaos.nodes import Nodes
from verification.chaos.planned import Planned, planned
from verification.chaos.process import HOST, PROXY_HOST
from verification.chaos.proxy import Proxy
from verification.chaos.scene import NoProgress, Scene
from verification.chaos.smalldisk import MIB, SmallDisk
from verification.chaos.writers import Writer

TOPICS: Final = {"alpha": 2, "beta": 1}
DRAIN_S: Final = 40.0
"""Longer than any client waits for an answer."""
SMALL_DISK: Final = 160 * MIB, 32 * MIB
"""Bytes of the small disk, and more for each minute."""
QUIET_S: Final = 0.3, 1.5
"""Between faults."""
Say = Callable[[str], None]


@dataclass(slots=True)
class Part:
    """The result of one group's run.

    Attributes:
        runs, bites: by kind of fault.
        operations: by kind and outcome, as ``append ok``.
        errors: those that clients were told, by name.
        planned: changes of members while nothing else failed.
        said_again: so often a command of an operator had to be said once more.
        problems: broken promises, in words; the run is green without any.
    """

    nodes: int
    seconds: float = 0.0
    runs: Counter[str] = field(default_factory=Counter)
    bites: Counter[str] = field(default_factory=Counter)
    small_disk: str = ""
    acknowledged: int = 0
    verdict: Verdict = field(default_factory=Verdict)
    operations: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    planned: list[Planned] = field(default_factory=list)
    said_again: int = 0
    compared_bytes: int = 0
    starts: int = 0
    problems: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """As JSON values."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "verdict"}
        return plain | {
            "seconds": round(self.seconds, 1),
            "history": self.verdict.as_dict(),
            "gaps": [gap.as_dict() for gap in self.gaps],
            "planned": [change.as_dict() for change in self.planned],
        }


Tamper = Callable[[list[Operation]], Iterable[Operation]]
"""For tests of the verdict: changes a history before it is judged."""


async def run_part(
    path: Path,
    count: int,
    seconds: float,
    plan: Iterator[tuple[Fault, ...]],
    seed: int,
    say: Say,
    tamper: Tamper | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Part:
    """Run a group of ``count`` nodes in the empty directory ``path``, load it, hurt it for so long,
    and judge.

    The history is left in ``path`` when the run is red. ``settings``: of each node's `NodeConfig`.
    """
    part = Part(count)
    began = time.monotonic()
    nodes = Nodes(path, count, settings)
    low, more = SMALL_DISK
    small = SmallDisk(nodes["n0"].disk, low + int(more * seconds / 60))
    part.small_disk = (
        "a tmpfs of its own"
        if small.mounted
        else "a disk that says so: mounting is not allowed here"
    )
    proxy = Proxy({node.name: (HOST, node.port) for node in nodes}, PROXY_HOST)

    def now_s() -> float:
        return time.monotonic() - began

    (path / "floor").mkdir()
    floor = Floor(path / "floor", seconds, now_s)
    scene = Scene(nodes, proxy, Acks(now_s), Appends(now_s), floor, small, say)
    try:
        await proxy.open()
        nodes.start_missing()
        history = await _play(scene, part, seconds, plan, seed)
        part.problems += scene.problems
        part.starts = sum(node.starts for node in nodes.ever)
        part.said_again = scene.said_again
        await asyncio.to_thread(_judge, part, list(tamper(history)) if tamper else history, say)
        if part.problems:
            save(path / "history.jsonl", history)
        else:
            nodes.remove()
    finally:
        nodes.kill()
        await floor.close()
        await proxy.close()
        _keep_files(nodes, small, keep=bool(part.problems))
    return part


def _keep_files(nodes: Nodes, small: SmallDisk, *, keep: bool) -> None:
    """The files on the small disk are copied first: they would be gone with it."""
    node = nodes["n0"]
    if small.mounted and keep and node.directory.exists():
        shutil.copytree(node.directory, node.home / "store")
    small.close()


async def _play(
    scene: Scene, part: Part, seconds: float, plan: Iterator[tuple[Fault, ...]], seed: int
) -> list[Operation]:
    """Load and faults; then the ending."""
    recorder = Recorder(time.monotonic_ns)
    nodes = scene.nodes
    servers = nodes.bootstrap_servers
    place = Place(servers, TOPICS, nodes.names, recorder, scene.acks, scene.appends)
    scene.hush = lambda quiet: setattr(place, "quiet", quiet)
    async with AsyncClient(servers, request_timeout_ms=60_000) as client:
        for topic, partitions in TOPICS.items():
            await client.create_topic(topic, partitions)
    scene.acks.restart()
    start = scene.acks.now_s()
    faults = _faults(scene, part, start + seconds, plan, seed)
    try:
        await run_all(make_workers(place, seed), faults, scene.acks.finish, DRAIN_S)
    except NoProgress as error:
        scene.problem(f"no progress: {error}")
    part.seconds = scene.acks.last_s - start
    part.acknowledged, part.gaps = scene.acks.count, scene.acks.longest()
    part.errors = dict(sorted(place.errors.items()))
    scene.problems += place.wrong
    async with AsyncClient(nodes.bootstrap_servers, request_timeout_ms=60_000) as client:
        await _end(scene, part, client, recorder)
    return recorder.history()


def make_workers(place: Place, seed: int) -> list[Worker]:
    """Nine clients, each with connections of its own."""
    patient = {"request_timeout_ms": 30_000, "max_in_flight": 64}
    return [
        Pipeliner(place, "producer-a", 25, seed, **patient),
        Pipeliner(place, "producer-b", 25, seed, **patient),
        Appender(place, "appender-a", 12, seed, request_timeout_ms=30_000),
        Appender(place, "appender-b", 12, seed, request_timeout_ms=2500),
        Writer(place, "writer-a", 3, seed, request_timeout_ms=8000),
        HeldWriter(place, "writer-b", 3, seed, request_timeout_ms=8000),
        Consumer(place, "consumer-a", 12, seed, request_timeout_ms=8000),
        Consumer(place, "consumer-b", 12, seed, request_timeout_ms=3000),
        Watcher(place, "watcher", 10, seed, request_timeout_ms=12_000),
    ]


async def _faults(
    scene: Scene, part: Part, end_s: float, plan: Iterator[tuple[Fault, ...]], seed: int
) -> None:
    """One after the other until the time or the plan is over; the group must go on after each.

    Raises:
        NoProgress: it does not.
    """
    await scene.progress()
    number = 0
    while scene.acks.now_s() < end_s:
        if (faults := next(plan, None)) is None:
            return
        scene.dice = random.Random(f"fault {seed} {part.nodes} {number}")
        number += 1
        if len(faults) == 1 and faults[0].is_change:
            (change,) = faults
            found = await planned(scene, change.name, partial(_one, scene, part, change))
            part.planned.append(found)
        else:
            await asyncio.gather(*(_one(scene, part, fault) for fault in faults))
        scene.look_for_dead()
        await scene.bury()
        await scene.progress()
        await asyncio.sleep(scene.dice.uniform(*QUIET_S))


async def _one(scene: Scene, part: Part, fault: Fault) -> None:
    started = scene.acks.now_s()
    with scene.acks.during(fault.name):
        bites = await fault.run(scene)
    part.runs[fault.name] += 1
    part.bites[fault.name] += bites
    took = scene.acks.now_s() - started
    scene.say(f"{started:7.1f} s  {fault.name:17} {took:5.1f} s  {bites} {fault.bite}")


async def _end(scene: Scene, part: Part, client: AsyncClient, recorder: Recorder) -> None:
    """All nodes to the same state, every record from each, and a graceful end; then their files."""
    nodes = scene.nodes
    scene.proxy.heal()
    scene.problems += [
        f"{node.name} got garbage: {line}" for node in nodes.ever for line in node.garbage()
    ]
    if not await nodes.in_step(STEP_S):
        scene.problem(
            f"the nodes do not come into step within {STEP_S:g} s: {await nodes.statuses()}"
        )
        return
    committed = min(int(status["committed_index"]) for status in (await nodes.statuses()).values())
    try:
        scene.problems += await read_back(nodes, client, recorder, TOPICS)
    except DLedgerError as error:
        scene.problem(f"not everything could be read back: {error!r}")
    for name, code in (await nodes.stop()).items():
        if code != 0:
            scene.problem(
                f"{name} did not end properly on SIGTERM: code {code}\n{nodes[name].last_words()}"
            )
    directories = [node.directory for node in nodes]
    part.compared_bytes, found = await asyncio.to_thread(
        partial(compare_stores, directories, committed)
    )
    scene.problems += found


def _judge(part: Part, history: Sequence[Operation], say: Say) -> None:
    say(f"checking {len(history)} operations")
    part.operations = dict(
        sorted(Counter(f"{op.kind.value} {op.outcome.value}" for op in history).items())
    )
    part.verdict = check_history(history)
    part.problems += map(str, part.verdict.findings)
    part.problems += [
        f"nobody could decide whether {where} is linearizable" for where in part.verdict.too_hard
    ]
