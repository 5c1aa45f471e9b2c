"""The calls of a client that a round does not need for its records, for both clients: the blocking
one answers, the asyncio one gives a coroutine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from dledger.client.protocol.operations.access import AclDecision
from dledger.client.protocol.operations.schemas import Evolved, TypedTopic
from dledger.client.protocol.results import GroupOffsets, Lineage, Span
from dledger.protocol.messages.client import OffsetsResponse, TopicInfo
from dledger.protocol.messages.shared_offsets import SharedOffsetsResponse

Call = Callable[[Any, TopicInfo], Any]

OTHERS: Final[dict[str, tuple[Call, type]]] = {
    "create_topic": (
        lambda client, info: client.create_topic(f"{info.name}-more", if_absent=True),
        TopicInfo,
    ),
    "add_partitions": (
        lambda client, info: client.add_partitions(f"{info.name}-more", 2),
        TopicInfo,
    ),
    "delete_topic": (lambda client, info: client.delete_topic(f"{info.name}-more"), type(None)),
    "topics": (lambda client, info: client.topics(), list),
    "topic": (lambda client, info: client.topic(info.name), TopicInfo),
    "known_topic": (lambda client, info: client.known_topic(info.name, 0), TopicInfo),
    "described": (lambda client, info: client.described([info.name]), dict),
    "schemas": (lambda client, info: client.schemas(info), list),
    "schema": (lambda client, info: client.schema(info, 1), tuple),
    "evolve_schema": (lambda client, info: client.evolve_schema(info, 0, ()), Evolved),
    "agree_schema": (lambda client, info: client.agree_schema(info, ()), TypedTopic),
    "begin_offsets": (lambda client, info: client.begin_offsets(info.name), dict),
    "end_offsets": (lambda client, info: client.end_offsets(info.name), dict),
    "offsets_for_times": (lambda client, info: client.offsets_for_times(info.name, 1), dict),
    "offsets_at": (lambda client, info: client.offsets_at({info.name: {0: 1}}), OffsetsResponse),
    "shared_offsets": (
        lambda client, info: client.shared_offsets("", [info.name]),
        SharedOffsetsResponse,
    ),
    "offsets": (lambda client, info: client.offsets([info.name]), OffsetsResponse),
    "split": (lambda client, info: client.split(info.name, 0, 0, 1, 1 << 20), list),
    "split_many": (
        lambda client, info: client.split_many([Span(info.name, 0, 0, 1, 1 << 20)]),
        list,
    ),
    "stored_bytes": (lambda client, info: client.stored_bytes([info.name], [0], [0], [1]), list),
    "partitions": (lambda client, info: client.partitions(), list),
    "commits": (lambda client, info: client.commits(), list),
    "entries": (lambda client, info: client.entries(0, 8), list),
    "commit_offsets": (
        lambda client, info: client.commit_offsets("g", {info.name: {0: 0}}),
        type(None),
    ),
    "hold_retention": (lambda client, info: client.hold_retention("g", False), type(None)),
    "lag": (lambda client, info: client.lag("g"), list),
    "members": (lambda client, info: client.members("g"), list),
    "group": (lambda client, info: client.group("g"), GroupOffsets),
    "groups": (lambda client, info: client.groups(), list),
    "delete_group": (lambda client, info: client.delete_group("g"), type(None)),
    "table": (lambda client, info: client.table(info.name), pa.Table),
    "lineage": (lambda client, info: client.lineage(), Lineage),
    "quotas": (lambda client, info: client.quotas(), dict),
    "set_quotas": (lambda client, info: client.set_quotas("User:no-one", {"requests": 5}), dict),
    "remove_quotas": (lambda client, info: client.remove_quotas("User:no-one"), dict),
    "settings": (lambda client, info: client.settings(), list),
    "set_settings": (lambda client, info: client.set_settings({"max_topics": 9000}), int),
    "reset_settings": (lambda client, info: client.reset_settings(["max_topics"]), int),
    "settings_history": (lambda client, info: client.settings_history(), list),
    "users": (lambda client, info: client.users(), list),
    "status": (lambda client, info: client.status(), dict),
    "acls": (lambda client, info: client.acls(), list),
    "acl_decision": (
        lambda client, info: client.acl_decision("User:alice", "read", "topic", info.name),
        AclDecision,
    ),
    "upgrade_group": (lambda client, info: client.upgrade_group(), int),
    "node_status": (lambda client, info: client.node_status(), tuple),
}
"""Name -> the call, and the type of its answer: an answer of another call has another type."""
LEFT_OUT: Final = {
    "scan": "it reads as `table` does",
    "transfer": "there is one node",
    "admit": "it changes who the group's members are",
    "add_member": "it changes who the group's members are",
    "readdress_member": "it changes who the group's members are",
    "label_member": "it changes who the group's members are",
    "promote_member": "it changes who the group's members are",
    "demote_member": "it changes who the group's members are",
    "remove_member": "it changes who the group's members are",
    "consumer": "what it gives has calls of its own: tests/client/test_consumer_interrupts.py",
    "add_acls": "it changes who may use the group, for all calls to come",
    "remove_acls": "as `add_acls`",
    "enforce_secret": "it changes who may use the group, for all calls to come",
    "add_user": "it changes who may use the group",
    "rotate_user": "it changes who may use the group",
    "remove_user": "it changes who may use the group",
    "issue_token": "it changes who may use the group",
    "revoke_token": "it changes who may use the group",
    "throttled_ms": "it asks nobody",
}
"""Public calls that are not made, and why."""
