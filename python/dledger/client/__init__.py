"""The clients: they find the leader, retry calls that are safe to retry, and tell the truth about
the others."""

from dledger.client.aio.client import AsyncClient
from dledger.client.aio.producer import AsyncProducer, AsyncRecordFuture
from dledger.client.aio.staging import AsyncStage, AsyncTransaction
from dledger.client.blocking.client import Client
from dledger.client.blocking.producer import Producer
from dledger.client.blocking.staging import Stage, Transaction
from dledger.client.blocking.waiting import RecordFuture
from dledger.client.protocol.operations.group_state import (
    CommitState,
    EntryState,
    Lag,
    PartitionState,
)
from dledger.client.protocol.results import Appended, Committed, Delivery, GroupOffsets, Range, Span

__all__ = [
    "Appended",
    "AsyncClient",
    "AsyncProducer",
    "AsyncRecordFuture",
    "AsyncStage",
    "AsyncTransaction",
    "Client",
    "CommitState",
    "Committed",
    "Delivery",
    "EntryState",
    "GroupOffsets",
    "Lag",
    "PartitionState",
    "Producer",
    "Range",
    "RecordFuture",
    "Span",
    "Stage",
    "Transaction",
]
