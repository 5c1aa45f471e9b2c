"""How much memory a catalog takes, about: the bytes of its parts, counted without walking their
contents."""

from __future__ import annotations

from typing import Final

from dledger.catalog.clients.group_members import ConsumerMember
from dledger.catalog.state import CatalogState
from dledger.protocol.messages.catalog_commands import (
    AddAcls,
    AddPartitions,
    AlterQuotas,
    Command,
    CommitConsumed,
    CommitConsumedTransaction,
    CommitOffsets,
    CommitProgress,
    CommitTransaction,
    CommitWrite,
    CreateTopic,
    EvolveSchema,
    HoldRetention,
    InitProducer,
    JoinGroup,
    OpenStage,
)
from dledger.protocol.messages.user_commands import IssueToken, SetUser

TOPIC: Final = 1200
PARTITION: Final = 600
SESSION: Final = 600
WINDOW: Final = 300
"""Of a producer in one partition; its results come on top, 8 bytes each."""
GROUP: Final = 600
OFFSET: Final = 120
MEMBER: Final = 800
"""Of a consumer group; its names come on top."""
STAGE: Final = 600
WRITER: Final = 700
TRACE: Final = 400
"""Of a writer that gave way."""
SPAN: Final = 300
"""Of a partition in a writer's last commit."""
RETIRED: Final = 200
QUOTAS: Final = 800
"""Of a principal."""
CHANGE: Final = 1500
"""Of settings."""
USER: Final = 900
"""Or a token."""
RULE: Final = 800
"""Of access control."""


def weigh(catalog: CatalogState) -> int:
    """Bytes of the whole catalog, about."""
    topics, producers = catalog.topics_state, catalog.producers
    total = (
        TOPIC * len(topics.by_id)
        + PARTITION * len(catalog.partitions)
        + RETIRED * len(topics.retired)
    )
    total += sum(len(value) for info in topics.by_id.values() for value in info.settings.values())
    total += sum(len(text) for texts in catalog.schemas.by_topic.values() for text in texts)
    total += SESSION * len(producers.sessions) + 8 * producers.results
    total += WINDOW * sum(len(session.windows) for session in producers.sessions.values())
    for group in catalog.consumer_groups.by_name.values():
        total += GROUP + OFFSET * sum(map(len, group.offsets.values()))
        total += 2 * OFFSET * len(group.membership.target)
        total += sum(map(_member, group.membership.members.values()))
    for stage in catalog.transactions.stages.values():
        total += STAGE + len(stage.label) + len(stage.writer_id) + len(stage.rows)
    total += QUOTAS * len(catalog.quotas.by_entity)
    total += CHANGE * len(catalog.settings.history)
    total += RULE * len(catalog.acls.rules)
    writers = catalog.transactions.writers
    total += TRACE * len(writers.traces)
    total += USER * (len(catalog.users.by_name) + len(catalog.users.tokens))
    for writer in writers.by_name.values():
        total += WRITER + SPAN * sum(map(len, writer.offsets.values()))
    return total


def growth(catalog: CatalogState, command: Command) -> int:
    """How much the catalog grows at most when this command is applied to it as it is, in the same
    bytes."""
    topics, groups = catalog.topics_state.by_name, catalog.consumer_groups.by_name
    match command:
        case CreateTopic():
            if command.name in topics:
                return 0
            return TOPIC + PARTITION * command.partitions + sum(map(len, command.settings.values()))
        case AddPartitions():
            known = topics.get(command.name)
            return 0 if known is None else PARTITION * max(0, command.partitions - known.partitions)
        case InitProducer():
            return 0 if command.producer_name in catalog.producers.by_name else SESSION
        case HoldRetention():
            return 0 if command.consumer_group in groups else GROUP
        case JoinGroup():
            shares = 2 * OFFSET * sum(topics[n].partitions for n in command.topics if n in topics)
            new = GROUP if command.consumer_group not in groups else 0
            return new + shares + _member(command)
        case CommitOffsets() | CommitProgress() | CommitConsumed():
            group = groups.get(command.consumer_group)
            known_offsets = 0 if group is None else sum(map(len, group.offsets.values()))
            asked = sum(map(len, command.offsets.values()))
            return (GROUP if group is None else 0) + OFFSET * max(0, asked - known_offsets)
        case OpenStage():
            return STAGE + len(command.label) + len(command.writer_id)
        case CommitTransaction() | CommitWrite() | CommitConsumedTransaction():
            known_writer = command.writer_id in catalog.transactions.writers.by_name
            return 0 if known_writer else WRITER + SPAN * len(command.stages)
        case EvolveSchema():
            return len(command.schema)
        case AlterQuotas():
            return 0 if command.entity in catalog.quotas.by_entity else QUOTAS
        case SetUser() | IssueToken():
            return USER
        case AddAcls():
            return RULE * len(command.rules)
    return 0


def _member(member: ConsumerMember | JoinGroup) -> int:
    names = sum(map(len, member.topics)) + len(member.instance_id) + len(member.label)
    return MEMBER + names
