"""DLedger's protocol made safe, as a pure state machine: election, replication, commit, reads, handing over."""

from dledger.raft.log import LogSummary
from dledger.raft.node import RaftNode
from dledger.raft.ready import (
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
