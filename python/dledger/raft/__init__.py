"""DLedger's protocol made safe, as a pure state machine: election, replication, commit, reads,
handing over."""

from dledger.raft.raft_node import RaftNode
from dledger.raft.state.log import LogSummary
from dledger.raft.state.ready import (
    IDLE,
    Fact,
    Finished,
    Load,
    ReadDone,
    Ready,
    RoleChange,
    SafetyViolation,
    TransferDone,
)

__all__ = [
    "IDLE",
    "Fact",
    "Finished",
    "Load",
    "LogSummary",
    "RaftNode",
    "ReadDone",
    "Ready",
    "RoleChange",
    "SafetyViolation",
    "TransferDone",
]
