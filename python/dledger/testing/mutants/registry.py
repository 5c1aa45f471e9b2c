"""All planted bugs. Each breaks one rule in one place; see `Mutant` for the columns."""

from __future__ import annotations

from typing import Final

from dledger.testing.mutants.node_bugs import CATALOG, CLIENT, SERVER, STORE
from dledger.testing.mutants.plant import Mutant
from dledger.testing.mutants.raft_bugs import RAFT

MUTANTS: Final = (*RAFT, *STORE, *CATALOG, *SERVER, *CLIENT)
CANARY: Final = "ack-before-sync"
"""Always run by the test suite."""


def named(name: str) -> Mutant:
    """Raises KeyError when there is none of that name."""
    return {mutant.name: mutant for mutant in MUTANTS}[name]
