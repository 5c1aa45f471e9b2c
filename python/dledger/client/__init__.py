"""The clients: they find the leader, retry what is safe to retry, and say the truth about what is not."""

from dledger.client.aclient import AsyncClient
from dledger.client.aproducer import AsyncProducer, AsyncStage, AsyncTransaction
from dledger.client.client import Client
from dledger.client.producer import Producer
from dledger.client.results import Appended, Committed, GroupOffsets, Range, Span
from dledger.client.staging import Stage, Transaction
from dledger.client.state import CommitState, EntryState, Lag, PartitionState

__all__ = [
    "Appended",
    "AsyncClient",
    "AsyncProducer",
    "AsyncStage",
    "AsyncTransaction",
    "Client",
    "CommitState",
    "Committed",
    "EntryState",
    "GroupOffsets",
    "Lag",
    "PartitionState",
    "Producer",
    "Range",
    "Span",
    "Stage",
    "Transaction",
]
