"""All planted bugs. Each breaks one rule in one place; see `Mutant` for the columns."""

from __future__ import annotations

from typing import Final

from verification.mutants.blind_bugs import BLIND
from verification.mutants.broker_bugs import BROKER
from verification.mutants.caller_bugs import BATCHES, CALLERS, EMBEDDED
from verification.mutants.commit_bugs import COMMITS
from verification.mutants.connection_bugs import CONNECTIONS
from verification.mutants.core_bugs import CORE
from verification.mutants.damage_bugs import DAMAGE
from verification.mutants.edge_bugs import EDGES
from verification.mutants.file_bugs import FILES
from verification.mutants.fork_bugs import FORKS
from verification.mutants.identity_bugs import IDENTITY
from verification.mutants.install_bugs import INSTALLS
from verification.mutants.interrupt_bugs import INTERRUPTS
from verification.mutants.limit_bugs import LIMITS
from verification.mutants.member_bugs import MEMBERS
from verification.mutants.node_bugs import CATALOG, CLIENT, SERVER, STORE
from verification.mutants.plant import Mutant
from verification.mutants.program_bugs import PROGRAMS
from verification.mutants.query_bugs import QUERIES
from verification.mutants.race_bugs import RACES
from verification.mutants.raft_bugs import RAFT
from verification.mutants.replay_bugs import REPLAYS
from verification.mutants.rocketmq_bugs import QUEUES, REPLICATION
from verification.mutants.room_bugs import ROOM
from verification.mutants.service_bugs import SERVICE
from verification.mutants.spark_bugs import DATASOURCE
from verification.mutants.store_bugs import MESSAGE_STORE
from verification.mutants.stream_bugs import STREAMING
from verification.mutants.thread_bugs import THREADS
from verification.mutants.unseen_bugs import (
    UNSEEN_CALLERS,
    UNSEEN_CATALOG,
    UNSEEN_FILES,
    UNSEEN_SPARK,
)
from verification.mutants.verify_bugs import VERIFY
from verification.mutants.world_bugs import WORLD

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
