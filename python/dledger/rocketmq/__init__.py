"""RocketMQ: its bytes, its files read, written, checked and exported, and its replication.

The names below are for users; each is loaded when it is first used, because most of this package
needs no Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dledger.rocketmq.columns.commit_log import column_batches
    from dledger.rocketmq.format.message import Message
    from dledger.rocketmq.store.message_store import MessageStore
    from dledger.rocketmq.store.topic_configs import TopicConfig

_HOMES: Final = {
    "Message": "dledger.rocketmq.format.message",
    "MessageStore": "dledger.rocketmq.store.message_store",
    "TopicConfig": "dledger.rocketmq.store.topic_configs",
    "column_batches": "dledger.rocketmq.columns.commit_log",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dledger.rocketmq' has no attribute {name!r}")


__all__ = ["Message", "MessageStore", "TopicConfig", "column_batches"]
