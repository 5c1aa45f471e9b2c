"""The product's node, with those that look at it between its parts."""

from __future__ import annotations

from collections.abc import Callable

from dledger.node.context import NodeContext
from dledger.node.node import NodeServer
from dledger.node.peers.handshake import Gate
from verification.invariants.watch import Watch
from verification.invariants.wiring import attach
from verification.sim.outcome import SeedCounts


class WatchedServer(NodeServer):
    """A node that is looked at from its first event on."""

    watch: Watch | None = None
    counts: SeedCounts | None = None
    on_built: Callable[[NodeServer], None] = lambda server: None

    def _restart(self, between: Callable[[], None]) -> None:
        if self.counts is not None:
            self.counts.bite("state or catalog replaced")
        super()._restart(between)

    def _make_parts(self, gate: Gate, context: NodeContext) -> None:
        if context.catalog_lost and self.counts is not None:
            self.counts.bite("catalog lost")
        super()._make_parts(gate, context)
        if self.watch is not None:
            # it has taken over another state, if this is not its first life
            self.watch.ended(self.node.node_id)
            attach(self.watch, self.node.node_id, self)
        self.on_built(self)
