"""One seed from its first event to the judgement over what its clients saw."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from dledger.catalog.state_machine import Catalog
from dledger.checksum import crc32
from dledger.node.rocketmq.dledger_commit_log import DLedgerCommitLog
from dledger.records.body.one_record import forget_lengths
from dledger.testing.checkers.history import Operation
from verification.greenlets import other_threading
from verification.invariants.broken import Broken
from verification.invariants.ends import check_clients
from verification.sim.cluster import Group, World
from verification.sim.disaster import Disaster
from verification.sim.faults import Nemesis
from verification.sim.filling import counted_rests, longest_fill_ns
from verification.sim.life import ClientLife
from verification.sim.locks import SimThreading
from verification.sim.loop import SimLoop
from verification.sim.moving import check_places
from verification.sim.outcome import SeedOutcome, Violation
from verification.sim.rng import Rng
from verification.sim.scheduler import MS, SECOND
from verification.sim.settings import DISASTER, SeedPlan, draw_plan, in_time
from verification.sim.stepping import check_settings
from verification.sim.story import KEPT, Scribe
from verification.sim.workload import Workload, final_reader

SAFETY_MS: Final = (20_000, 57_000)
"""How long faults go on where clients are not busy: 2,000 seeds are 20 hours, with what comes
after."""
STEP_NS: Final = 50 * MS
"""How often a phase looks whether its end has come."""
SETTLE_NS: Final = 3 * SECOND
"""Before ten elections begin to count: links that were cut open again, processes start."""
CLIENTS_NS: Final = 90 * SECOND
"""For clients to end what they had begun before everything was healed."""

STAGES_NS: Final = 20 * SECOND
"""For the longest time-out of a stage to pass on a clock that is slow, and for an entry to say
so."""
REPAIR_NS: Final = 40 * SECOND
"""For damaged entries to be asked of every other node again."""

log: Final = logging.getLogger("dledger")


def run_seed(
    seed: int,
    *,
    safety_ms: int | None = None,
    without: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
    commit_log: str = "",
    consumers: bool | None = None,
    retention: bool = True,
    watching: bool = True,
    story_lines: int = KEPT,
    verbose: bool = False,
    told: Callable[[list[Operation]], None] | None = None,
) -> SeedOutcome:
    """Run one seed.

    Args:
        safety_ms: length of the phase with faults; drawn from the seed by default.
        without: kinds of faults that the seed must not have; see
            `verification.sim.settings.FAULTS`.
        commit_log: the group's commit log, "topics" or "rocketmq"; drawn from the seed by default.
        consumers: whether its clients have consumers; drawn from the seed by default.
        retention: whether old records go, as the seed's settings say; else all are kept.
        also: kinds that it has all the same; see `verification.sim.settings.UNPROMISED`.
        watching: check the invariants after every event.
        story_lines: how many of the last lines of each process are kept.
        verbose: the story has all log lines of the product, and not only its warnings.
        told: is given the clients' history at the end.
    """
    plan = _plan(seed, safety_ms, without, also, (commit_log, consumers))
    if not retention:
        plan.node |= {"retention_bytes": 0, "retention_ms": 0}
    config = plan.as_dict()
    forget_lengths()
    world = World(seed, plan, story_lines, watching)
    run = _Run(world)
    violation: Violation | None = None
    locks = other_threading(SimThreading()) if plan.turns_left else nullcontext()
    with (
        locks,
        _writers(plan.most_writers),
        counted_rests(world.counts),
        _scribe(world, logging.DEBUG if verbose else logging.INFO),
    ):
        try:
            run.play()
        except Broken as broken:
            violation = Violation(broken.invariant, broken.text, world.scheduler.now_ns // MS)
        finally:
            world.dispose()
    if told is not None:
        told(run.workload.recorder.history())
    story = world.story.text() if violation or verbose else ""
    return _outcome(seed, run, config, violation, story)


def _plan(
    seed: int,
    safety_ms: int | None,
    without: tuple[str, ...],
    also: tuple[str, ...],
    kind: tuple[str, bool | None],
) -> SeedPlan:
    rng = Rng(seed).fork("plan")
    drawn = rng.between(*SAFETY_MS)
    plan = draw_plan(rng, drawn if safety_ms is None else safety_ms, without, also, *kind)
    if safety_ms is None:
        plan.safety_ms = in_time(plan)
    return plan


@contextmanager
def _writers(most: int) -> Iterator[None]:
    """All nodes remember so many writers of transactions by name."""
    before, Catalog.most_writers = Catalog.most_writers, most
    try:
        yield
    finally:
        Catalog.most_writers = before


@contextmanager
def _scribe(world: World, level: int) -> Iterator[None]:
    """Log lines of the product go into the story, and nowhere else."""
    scribe = Scribe(world.story, world.scheduler, level)
    before = (log.level, log.propagate, log.handlers[:])
    log.handlers[:] = [scribe]
    log.propagate = False
    log.setLevel(level)
    try:
        yield
    finally:
        log.level, log.propagate, log.handlers[:] = before
        log.setLevel(before[0])


class _Run:
    """The phases."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.workload = Workload(world)
        self.group = Group(world)
        self.nemesis = Nemesis(world, self.group, self.workload)
        self._plan: SeedPlan = world.plan
        world.network.seen = self._seen

    @property
    def elections(self) -> int:
        return max((server.raft.term for server in self.group.servers()), default=0)

    def _seen(self, source: SimLoop, target: SimLoop, data: bytes) -> None:
        self.world.story.mark(crc32(data), len(data), source.name, target.name)

    def play(self) -> None:
        world = self.world
        self.nemesis.start()
        self.group.boot()
        world.scheduler.after(100 * MS, self.workload.boot)
        self._until(self._plan.safety_ms * MS, lambda: False)
        self.nemesis.stop()
        self._until(world.scheduler.now_ns + SETTLE_NS, lambda: False)
        self.nemesis.still()
        if world.watch is not None:
            world.watch.healed()
        committed = self._committed()
        life, loop = final_reader(self.workload)
        self._call(loop, life.probe)
        patience = 20 * self.world.plan.group["election_ms"] * MS
        if not self._until(
            world.scheduler.now_ns + patience, lambda: self._committed() > committed
        ):
            raise Broken(
                "I25", f"nothing was committed within {patience // MS} ms of the end of all faults"
            )
        self.workload.working = False
        if not self._until(world.scheduler.now_ns + CLIENTS_NS, self._clients_are_done):
            raise Broken(
                "liveness",
                f"{CLIENTS_NS // SECOND} s after all faults wait in vain: {self._waiting()}",
            )
        patience += REPAIR_NS + SETTLE_NS
        self._converge(patience)
        self._end_stages()
        if world.rng.fork("last leader").chance(500_000):
            self._lose_leader()
        self._read_all(life, loop)
        self._converge(patience)  # what was found damaged only now is being made again
        self._judge()
        plan = self._plan
        keeps_topics = not plan.is_rocketmq and not plan.consumers
        if plan.has(DISASTER) and keeps_topics and world.watch is not None:
            Disaster(world, self.group, self.workload, self._until).play()

    def _until(self, end_ns: int, done: Callable[[], bool]) -> bool:
        """Let time pass up to then, or until it is done; says whether it is."""
        scheduler = self.world.scheduler
        while scheduler.now_ns < end_ns:
            scheduler.run(min(end_ns, scheduler.now_ns + STEP_NS))
            if self.world.broken is not None:
                raise self.world.broken
            if done():
                return True
        return False

    def _call(self, loop: SimLoop, call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        loop.call_soon(lambda: loop.create_task(call()))

    def _committed(self) -> int:
        return max((server.raft.committed_index for server in self.group.servers()), default=-1)

    def _clients_are_done(self) -> bool:
        return all(client.idle or not client.is_up for client in self.workload.clients)

    def _waiting(self) -> str:
        return "; ".join(
            f"{client.name} at {place}"
            for client in self.workload.clients
            if client.loop is not None and not client.idle
            for place in client.loop.waiting()
        )

    def _ends(self) -> dict[str, tuple[int, int, int]]:
        return {
            str(server.node.node_id): (
                server.raft.committed_index,
                server.raft.end_index,
                server.catalog.applied_index,
            )
            for server in self.group.servers()
        }

    def _converge(self, patience_ns: int) -> None:
        patience_ns += longest_fill_ns(self.group.servers())
        if not self._until(self.world.scheduler.now_ns + patience_ns, self._converged):
            what = "the nodes do not converge"
            if not self.nemesis.changing.is_over:
                what = "the operator does not get the list that is wanted"
            elif not self.nemesis.moving.is_over:
                what = "the group does not learn where a member has moved"
            raise Broken("I24", f"{what}: {self._ends()}")

    def _converged(self) -> bool:
        """A leader too: the one that was may have found its catalog damaged, and make it again."""
        ends, is_led = self._ends(), any(node.is_leader for node in self.group.nodes)
        changing = self.nemesis.changing
        is_settled = changing.is_over and self.nemesis.moving.is_over
        is_whole = is_led and is_settled and len(ends) == len(changing.wanted)
        return is_whole and len({place for end in ends.values() for place in end}) == 1

    def _end_stages(self) -> None:
        """I28: a stage that was abandoned keeps no entry of the log longer than its time-out."""
        watch = self.world.watch
        stages = watch.commands.stages if watch is not None else {}
        if not self._until(self.world.scheduler.now_ns + STAGES_NS, lambda: not stages):
            raise Broken("I28", f"stages do not end within {STAGES_NS // SECOND} s: {stages}")

    def _lose_leader(self) -> None:
        """Kill the leader when no client writes any more: the next leader has to find the commit
        index by itself, or no entry can be read."""
        leader = self.group.leader
        if leader is not None:
            self.world.counts.bite("kill of the last leader")
            leader.kill(power=False)

    def _read_all(self, life: ClientLife, loop: SimLoop) -> None:
        """Everything once more, from begin to end, by a client that sees all of it."""
        done: list[bool] = []

        async def reading() -> None:
            for topic in self.workload.topics:
                for partition in range(topic.partitions):
                    await life.read_from_begin(topic, partition)
            done.append(True)

        self._call(loop, reading)
        if not self._until(self.world.scheduler.now_ns + CLIENTS_NS, lambda: bool(done)):
            raise Broken("liveness", "the log cannot be read to its end although nothing is broken")

    def _judge_queues(self) -> None:
        """Queues and index of all nodes, when all messages are in them."""
        queued = self.world.queued
        if queued is None:
            return
        parts = [
            (server, application)
            for server in self.group.servers()
            if isinstance(application := server.parts.application, DLedgerCommitLog)
        ]
        done = lambda: all(a.reput.dispatched_index >= s.raft.committed_index for s, a in parts)  # noqa: E731
        if not self._until(self.world.scheduler.now_ns + SETTLE_NS, done):
            raise Broken("Q4", "the queues do not come up to the log")
        for server, application in parts:
            queued.whole(
                str(server.node.node_id), application.reput.files, server.store.begin_index
            )

    def _judge(self) -> None:
        self._judge_queues()
        check_settings(self.group.servers())
        check_places(self.group.servers(), self.world.places)
        history = self.workload.recorder.history()
        if self.world.watch is not None:
            self.world.watch.finish(history)
        else:
            check_clients(history)


def _outcome(
    seed: int, run: _Run, config: dict[str, Any], violation: Violation | None, story: str
) -> SeedOutcome:
    """The counts of a run that has ended."""
    world, workload = run.world, run.workload
    return SeedOutcome(
        seed=seed,
        simulated_ms=world.scheduler.now_ns // MS,
        events=world.scheduler.events,
        trace_hash=world.story.digest,
        bites=dict(sorted(world.counts.bites.items())),
        injected=dict(sorted(world.counts.injected.items())),
        operations=len(workload.recorder.history()),
        acknowledged=workload.acknowledged,
        records=workload.records,
        elections=run.elections,
        config=config,
        violation=violation,
        story=story,
    )
