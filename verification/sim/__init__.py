"""Whole groups with their clients in one thread, in virtual time, under every kind of fault: see
`run_seed`.

The nodes and clients are the ones of production (`dledger.node.node.NodeServer`,
`dledger.client.AsyncClient`); only the machine around them is simulated: clocks, dice, threads,
network and disks. The same seed and commit give the same run, event for event.
"""

from verification.sim.outcome import SeedOutcome, Violation
from verification.sim.run import run_seed

__all__ = ["SeedOutcome", "Violation", "run_seed"]
