"""The clients: they find the leader, retry calls that are safe to retry, and tell the truth about
the others.

Each name is loaded when it is first used: a client that neither writes nor reads loads no Arrow.
"""

from typing import TYPE_CHECKING

from dledger.lazy import lazy_names

if TYPE_CHECKING:
    from dledger.client.aio.client import AsyncClient
    from dledger.client.aio.consumer import AsyncConsumer
    from dledger.client.aio.consuming.transaction import AsyncConsumerTransaction
    from dledger.client.aio.producer import AsyncProducer, AsyncRecordFuture
    from dledger.client.aio.staging import AsyncStage, AsyncTransaction
    from dledger.client.blocking.client import Client
    from dledger.client.blocking.consumer import Consumer, ConsumerTransaction
    from dledger.client.blocking.producer import Producer
    from dledger.client.blocking.staging import Stage, Transaction
    from dledger.client.blocking.waiting import RecordFuture
    from dledger.client.protocol.consuming.records import ConsumerRecord
    from dledger.client.protocol.consuming.settings import TopicPartition
    from dledger.client.protocol.operations.access import AclDecision
    from dledger.client.protocol.operations.dynamic_settings import DynamicSetting, SettingsChange
    from dledger.client.protocol.operations.group_state import (
        CommitState,
        EntryState,
        Lag,
        MemberState,
        PartitionState,
    )
    from dledger.client.protocol.operations.users import TokenState, UserState
    from dledger.client.protocol.results import (
        Appended,
        Committed,
        Delivery,
        GroupOffsets,
        Range,
        Span,
    )
    from dledger.protocol.messages.acl_rules import AclRule

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AclDecision": "dledger.client.protocol.operations.access",
        "AclRule": "dledger.protocol.messages.acl_rules",
        "Appended": "dledger.client.protocol.results",
        "AsyncClient": "dledger.client.aio.client",
        "AsyncConsumer": "dledger.client.aio.consumer",
        "AsyncConsumerTransaction": "dledger.client.aio.consuming.transaction",
        "AsyncProducer": "dledger.client.aio.producer",
        "AsyncRecordFuture": "dledger.client.aio.producer",
        "AsyncStage": "dledger.client.aio.staging",
        "AsyncTransaction": "dledger.client.aio.staging",
        "Client": "dledger.client.blocking.client",
        "CommitState": "dledger.client.protocol.operations.group_state",
        "Committed": "dledger.client.protocol.results",
        "Consumer": "dledger.client.blocking.consumer",
        "ConsumerRecord": "dledger.client.protocol.consuming.records",
        "ConsumerTransaction": "dledger.client.blocking.consumer",
        "Delivery": "dledger.client.protocol.results",
        "DynamicSetting": "dledger.client.protocol.operations.dynamic_settings",
        "EntryState": "dledger.client.protocol.operations.group_state",
        "GroupOffsets": "dledger.client.protocol.results",
        "Lag": "dledger.client.protocol.operations.group_state",
        "MemberState": "dledger.client.protocol.operations.group_state",
        "PartitionState": "dledger.client.protocol.operations.group_state",
        "Producer": "dledger.client.blocking.producer",
        "Range": "dledger.client.protocol.results",
        "RecordFuture": "dledger.client.blocking.waiting",
        "SettingsChange": "dledger.client.protocol.operations.dynamic_settings",
        "Span": "dledger.client.protocol.results",
        "Stage": "dledger.client.blocking.staging",
        "TokenState": "dledger.client.protocol.operations.users",
        "TopicPartition": "dledger.client.protocol.consuming.settings",
        "Transaction": "dledger.client.blocking.staging",
        "UserState": "dledger.client.protocol.operations.users",
    },
)

__all__ = [
    "AclDecision",
    "AclRule",
    "Appended",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncConsumerTransaction",
    "AsyncProducer",
    "AsyncRecordFuture",
    "AsyncStage",
    "AsyncTransaction",
    "Client",
    "CommitState",
    "Committed",
    "Consumer",
    "ConsumerRecord",
    "ConsumerTransaction",
    "Delivery",
    "DynamicSetting",
    "EntryState",
    "GroupOffsets",
    "Lag",
    "MemberState",
    "PartitionState",
    "Producer",
    "Range",
    "RecordFuture",
    "SettingsChange",
    "Span",
    "Stage",
    "TokenState",
    "TopicPartition",
    "Transaction",
    "UserState",
]
