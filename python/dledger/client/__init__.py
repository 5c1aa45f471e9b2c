"""The clients: they find the leader, retry what is safe to retry, and say the truth about what is not."""

from dledger.client.aclient import AsyncClient
from dledger.client.aproducer import AsyncProducer, AsyncStage, AsyncTransaction
from dledger.client.client import Client
from dledger.client.producer import Producer
from dledger.client.results import Appended, Committed, GroupOffsets, Range, Span
from dledger.client.staging import Stage, Transaction

__all__ = [
    "Appended",
    "AsyncClient",
    "AsyncProducer",
    "AsyncStage",
    "AsyncTransaction",
    "Client",
    "Committed",
    "GroupOffsets",
    "Producer",
    "Range",
    "Span",
    "Stage",
    "Transaction",
]
