"""Every way in which the links of a group can be cut: all 64 directed graphs on three nodes, all
1,024 undirected ones on five. Whole nodes in virtual time, and a client that reaches all of them
and appends all the time.

The promise: where some node has two-way links with a majority (itself counted), there is a leader
that commits within ten election times, and it stays. A leader that has such links is not disturbed
at all. Terms hardly grow in any graph. When all links are back, all nodes apply all committed
entries again. ``python -m verification.sim.matrix``.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise, permutations
from pathlib import Path
from typing import Any, Final

import click

from dledger.client.aio.client import AsyncClient
from dledger.errors import DLedgerError
from verification.invariants.broken import Broken
from verification.result import result, save
from verification.sim.cluster import Node
from verification.sim.scene import Scene

ELECTION_MS: Final = 500
SETTLE_MS: Final = 10 * ELECTION_MS
LIMITS: Final = {"election_ms": ELECTION_MS, "heartbeat_ms": 100}
HASTY: Final[dict[str, Any]] = {"request_timeout_ms": 500, "connect_timeout_ms": 100}
"""A client that asks another node soon."""
APPEND_EVERY_S: Final = 0.2
MOST_TERMS: Final = 3
"""That a cut may cost."""
GRAPHS: Final = {3: 64, 5: 1024}
"""Group's size -> graphs: directed ones of three nodes, undirected ones of five."""
Link = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Graph:
    """One of `GRAPHS`; ``silent``: a cut connection stays open and says nothing, else it ends."""

    nodes: int
    number: int
    silent: bool

    @property
    def names(self) -> list[str]:
        return [f"n{n}" for n in range(self.nodes)]

    @property
    def links(self) -> set[Link]:
        """The directed pairs of nodes that can send."""
        pairs = permutations(self.names, 2) if self.nodes == 3 else combinations(self.names, 2)
        there = {pair for bit, pair in enumerate(pairs) if self.number >> bit & 1}
        return there if self.nodes == 3 else there | {pair[::-1] for pair in there}

    def reaches_majority(self, node: str) -> bool:
        """Whether it can talk both ways with a majority, itself counted."""
        links = self.links
        peers = [one for one in self.names if {(node, one), (one, node)} <= links]
        return 1 + len(peers) > self.nodes // 2

    def __str__(self) -> str:
        kind = "silent" if self.silent else "connections end"
        return f"graph {self.number} on {self.nodes} nodes ({kind}): {sorted(self.links)}"


@dataclass(frozen=True, slots=True)
class Seen:
    """The outcome of a graph. ``problem``: empty where all promises held."""

    graph: Graph
    available: bool = False
    pause_ms: int = 0
    """The longest time without an acknowledgement while the links were cut, where there had to be a
    leader."""
    acknowledged: int = 0
    problem: str = ""


class Run:
    """One graph: the group, and a client that appends."""

    def __init__(self, graph: Graph, stay_ms: int) -> None:
        """``stay_ms``: how long a leader is looked at once it must be there."""
        self._graph = graph
        self._stay_ms = stay_ms
        self._scene = Scene(graph.nodes, seed=graph.number + 1, group=LIMITS)
        self._acknowledged: list[tuple[int, int]] = []
        """When, and the offset."""

    def play(self) -> Seen:
        """Cut, look, heal, look.

        Raises:
            Broken: a promise does not hold.
        """
        graph, scene = self._graph, self._scene
        with scene:
            before = self._in_good_order()
            term, cut_ms = self._term(), scene.now_ms
            self._cut()
            available = any(map(graph.reaches_majority, graph.names))
            scene.wait(SETTLE_MS)
            settled, leader, settled_ms = self._term(), scene.group.leader, scene.now_ms
            self._must(
                not available or self._since(cut_ms),
                f"no leader that commits within {SETTLE_MS} ms",
            )
            scene.wait(self._stay_ms)
            healed_ms = scene.now_ms
            if available:
                self._must(
                    self._since(settled_ms), "a leader, but nothing is acknowledged any more"
                )
                self._must(
                    (scene.group.leader, self._term()) == (leader, settled),
                    "the leader changed later on",
                )
            if graph.reaches_majority(before.name):
                self._must(self._term() == term, "a leader with a majority was disturbed")
            self._must(
                self._term() - term <= MOST_TERMS, f"the term grew from {term} to {self._term()}"
            )
            scene.network.heal_all()
            scene.until(
                lambda: self._since(healed_ms), SETTLE_MS, f"an acknowledgement, after {graph},"
            )
            self._until_in_step()
            offsets = [offset for _, offset in self._acknowledged]
            self._must(offsets == sorted(set(offsets)), "offsets out of order, or given twice")
            moments = [
                cut_ms,
                *(at for at, _ in self._acknowledged if cut_ms < at <= healed_ms),
                healed_ms,
            ]
            pause_ms = max(after - at for at, after in pairwise(moments)) if available else 0
            return Seen(graph, available, pause_ms, len(offsets))

    def _must(self, holds: bool, text: str) -> None:
        if not holds:
            raise Broken("availability", f"{text}: {self._graph}")

    def _in_good_order(self) -> Node:
        """The leader of a group whose members all have everything, and to which the client
        appends."""
        scene = self._scene
        leader = scene.leader()
        client, loop = scene.client(**HASTY)
        scene.run(loop, lambda: client.create_topic("t"))
        loop.call_soon(lambda: loop.create_task(self._keep_appending(client)))
        scene.until(lambda: self._since(0), SETTLE_MS, "the first acknowledgement")
        self._until_in_step()
        return leader

    async def _keep_appending(self, client: AsyncClient) -> None:
        while True:
            with suppress(DLedgerError):
                appended = await client.append("t", b"x")
                self._acknowledged.append((self._scene.now_ms, appended.start))
            await asyncio.sleep(APPEND_EVERY_S)

    def _cut(self) -> None:
        network, links = self._scene.network, self._graph.links
        for source, target in permutations([node.name for node in self._scene.group.nodes], 2):
            if (source, target) in links:
                continue
            network.cut(source, target)
            for stream in network.streams_of(target) if not self._graph.silent else ():
                if stream.other == source:
                    network.reset(stream)

    def _since(self, moment_ms: int) -> bool:
        """Whether anything was acknowledged later than then."""
        return bool(self._acknowledged) and self._acknowledged[-1][0] > moment_ms

    def _term(self) -> int:
        return max(server.raft.term for server in self._scene.group.servers())

    def _until_in_step(self) -> None:
        """Wait until all nodes have applied all entries that are committed now."""
        servers = self._scene.group.servers()
        committed = max(server.raft.committed_index for server in servers)
        in_step = lambda: min(server.catalog.applied_index for server in servers) >= committed  # noqa: E731
        self._scene.until(in_step, SETTLE_MS, f"everybody in step: {self._graph}:")


def look_at(graph: Graph, stay_ms: int) -> Seen:
    """Play one graph; a broken promise is returned, not raised."""
    try:
        return Run(graph, stay_ms).play()
    except Broken as broken:
        return Seen(graph, problem=str(broken))


def graphs(sizes: Sequence[int], every: int) -> list[Graph]:
    """Every so many of all graphs on groups of these sizes; those of three nodes cut in both
    ways."""
    return [
        Graph(nodes, number, silent)
        for nodes in sizes
        for silent in ((False, True) if nodes == 3 else (True,))
        for number in range(0, GRAPHS[nodes], every)
    ]


def results(wanted: Sequence[Graph], stay_ms: int, jobs: int) -> Iterator[Seen]:
    """In their order."""
    if jobs == 1:
        yield from (look_at(graph, stay_ms) for graph in wanted)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(partial(look_at, stay_ms=stay_ms), wanted, chunksize=8)


@click.command()
@click.option(
    "--nodes", multiple=True, type=click.Choice(["3", "5"]), help="Only groups of this size."
)
@click.option(
    "--every", default=1, show_default=True, help="Only one of so many graphs; take an odd number."
)
@click.option(
    "--stay",
    default=20,
    show_default=True,
    help="Simulated seconds for which a leader has to stay.",
)
@click.option("--jobs", default=2, show_default=True, help="Processes that work at the same time.")
@click.option(
    "--json",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the result there.",
)
def main(nodes: tuple[str, ...], every: int, stay: int, jobs: int, path: Path | None) -> None:
    """Cut the links of groups in every way there is, and look whether they are as available as they
    can be."""
    begun = time.monotonic()
    wanted = graphs([int(size) for size in nodes] or list(GRAPHS), every)
    found = list(results(wanted, 1000 * stay, jobs))
    problems = [seen.problem for seen in found if seen.problem]
    pauses = [seen.pause_ms for seen in found if seen.available]
    figures = {
        "graphs": len(found),
        "with a leader, as they must": len(pauses),
        "acknowledged appends": sum(seen.acknowledged for seen in found),
        "ms without an acknowledgement at the most": max(pauses, default=0),
        "ms at the median": round(statistics.median(pauses or [0])),
        "seconds": round(time.monotonic() - begun),
    }
    click.echo(", ".join(f"{value:,} {name}" for name, value in figures.items()))
    click.echo("\n".join(problems) or "all is as promised")
    if path is not None:
        command = f"python -m verification.sim.matrix --stay {stay}" + (
            f" --every {every}" if every > 1 else ""
        )
        save(
            result(
                "partition matrix",
                command=command,
                ok=not problems,
                figures=figures,
                faults={
                    "links cut": sum(
                        graph.nodes * (graph.nodes - 1) - len(graph.links) for graph in wanted
                    )
                },
                problems=problems[:20],
            ),
            path,
        )
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
