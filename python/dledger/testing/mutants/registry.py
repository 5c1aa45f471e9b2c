"""All planted bugs. Each breaks one rule in one place; see `Mutant` for the columns."""

from __future__ import annotations

from typing import Final

from dledger.testing.mutants.blind_bugs import BLIND
from dledger.testing.mutants.broker_bugs import BROKER
from dledger.testing.mutants.caller_bugs import BATCHES, CALLERS, EMBEDDED
from dledger.testing.mutants.commit_bugs import COMMITS
from dledger.testing.mutants.connection_bugs import CONNECTIONS
from dledger.testing.mutants.core_bugs import CORE
from dledger.testing.mutants.damage_bugs import DAMAGE
from dledger.testing.mutants.edge_bugs import EDGES
from dledger.testing.mutants.file_bugs import FILES
from dledger.testing.mutants.fork_bugs import FORKS
from dledger.testing.mutants.identity_bugs import IDENTITY
from dledger.testing.mutants.install_bugs import INSTALLS
from dledger.testing.mutants.interrupt_bugs import INTERRUPTS
from dledger.testing.mutants.limit_bugs import LIMITS
from dledger.testing.mutants.member_bugs import MEMBERS
from dledger.testing.mutants.node_bugs import CATALOG, CLIENT, SERVER, STORE
from dledger.testing.mutants.plant import Mutant
from dledger.testing.mutants.program_bugs import PROGRAMS
from dledger.testing.mutants.query_bugs import QUERIES
from dledger.testing.mutants.race_bugs import RACES
from dledger.testing.mutants.raft_bugs import RAFT
from dledger.testing.mutants.replay_bugs import REPLAYS
from dledger.testing.mutants.rocketmq_bugs import QUEUES, REPLICATION
from dledger.testing.mutants.room_bugs import ROOM
from dledger.testing.mutants.service_bugs import SERVICE
from dledger.testing.mutants.spark_bugs import DATASOURCE
from dledger.testing.mutants.store_bugs import MESSAGE_STORE
from dledger.testing.mutants.stream_bugs import STREAMING
from dledger.testing.mutants.thread_bugs import THREADS
from dledger.testing.mutants.unseen_bugs import (
    UNSEEN_CALLERS,
    UNSEEN_CATALOG,
    UNSEEN_FILES,
    UNSEEN_SPARK,
)
from dledger.testing.mutants.verify_bugs import VERIFY
from dledger.testing.mutants.world_bugs import WORLD

MUTANTS: Final = (
    *RAFT,
    *CORE,
    *STORE,
    *FILES,
    *INSTALLS,
    *RACES,
    *THREADS,
    *PROGRAMS,
    *CATALOG,
    *SERVER,
    *SERVICE,
    *CLIENT,
    *EDGES,
    *WORLD,
    *LIMITS,
    *CONNECTIONS,
    *IDENTITY,
    *BROKER,
    *MEMBERS,
    *ROOM,
    *QUEUES,
    *REPLICATION,
    *DAMAGE,
    *MESSAGE_STORE,
    *VERIFY,
    *CALLERS,
    *BATCHES,
    *EMBEDDED,
    *DATASOURCE,
    *STREAMING,
    *COMMITS,
    *UNSEEN_FILES,
    *UNSEEN_CALLERS,
    *UNSEEN_CATALOG,
    *UNSEEN_SPARK,
    *BLIND,
    *INTERRUPTS,
    *FORKS,
    *REPLAYS,
    *QUERIES,
)
DOES_NOT_APPLY: Final = {
    "B32": "there is one version of the protocol and of the files so far, so no two can be mixed",
}
"""Class of bugs -> why there is none of it."""
CANARY: Final = "ack-before-sync"
"""Always run by the test suite."""


def named(name: str) -> Mutant:
    """Raises KeyError when there is none of that name."""
    return {mutant.name: mutant for mutant in MUTANTS}[name]
