"""The clients: they find the leader, retry calls that are safe to retry, and tell the truth about
the others.

Each name is loaded when it is first used: a client that neither writes nor reads loads no Arrow.
"""

from typing import TYPE_CHECKING

from dledger.lazy import lazy_names

if TYPE_CHECKING:
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
    from dledger.client.protocol.results import (
        Appended,
        Committed,
        Delivery,
        GroupOffsets,
        Range,
        Span,
    )

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Appended": "dledger.client.protocol.results",
        "AsyncClient": "dledger.client.aio.client",
        "AsyncProducer": "dledger.client.aio.producer",
        "AsyncRecordFuture": "dledger.client.aio.producer",
        "AsyncStage": "dledger.client.aio.staging",
        "AsyncTransaction": "dledger.client.aio.staging",
        "Client": "dledger.client.blocking.client",
        "CommitState": "dledger.client.protocol.operations.group_state",
        "Committed": "dledger.client.protocol.results",
        "Delivery": "dledger.client.protocol.results",
        "EntryState": "dledger.client.protocol.operations.group_state",
        "GroupOffsets": "dledger.client.protocol.results",
        "Lag": "dledger.client.protocol.operations.group_state",
        "PartitionState": "dledger.client.protocol.operations.group_state",
        "Producer": "dledger.client.blocking.producer",
        "Range": "dledger.client.protocol.results",
        "RecordFuture": "dledger.client.blocking.waiting",
        "Span": "dledger.client.protocol.results",
        "Stage": "dledger.client.blocking.staging",
        "Transaction": "dledger.client.blocking.staging",
    },
)

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
