"""The operation that each request and each command is, and on which resources: the one table of
them.

A request is let pass when its principal may do all that its row names. One that lists things has an
empty row: it is answered, with what its principal may describe (`dledger.node.access.sight`). The
rows of RocketMQ's requests hold for groups that keep such a log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from dledger.catalog.access.acls import (
    ADMIN,
    ALTER,
    CLUSTER,
    CONSUMERS,
    CREATE,
    DELETE,
    DESCRIBE,
    PRODUCER,
    READ,
    TOPIC,
    WRITE,
)
from dledger.catalog.state import CatalogState
from dledger.errors import FormatError
from dledger.protocol.messages import catalog_commands as command
from dledger.protocol.messages import user_commands as user
from dledger.protocol.messages.acl_decisions import AclDecisionRequest
from dledger.protocol.messages.backup import (
    OpenBackupRequest,
    ReadBackupImageRequest,
    ReadBackupLogRequest,
)
from dledger.protocol.messages.client import (
    AdmitRequest,
    AppendRequest,
    ExecuteRequest,
    FetchRequest,
    GroupRequest,
    Listing,
    ListRequest,
    MetadataRequest,
    OffsetsRequest,
    SchemasRequest,
    StatusRequest,
    TransferRequest,
)
from dledger.protocol.messages.group_heartbeat import GroupHeartbeatRequest
from dledger.protocol.messages.member_requests import AlterMemberRequest
from dledger.protocol.messages.rocketmq import (
    MAX_PUT_MESSAGES,
    GetMessageRequest,
    PutMessageRequest,
    QueryMessageRequest,
    ViewMessageRequest,
)
from dledger.protocol.messages.shared_offsets import SharedOffsetsRequest
from dledger.protocol.messages.splits import SplitRequest
from dledger.records.body.header import Flag, destination

EVERY: Final = "*"
SOME: Final = ""
"""In place of a name; see `Acls.decide`."""
_STAGED: Final = int(Flag.STAGED)
DRAWN: Final = re.compile(r"(job/)?[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}")
"""The name of a producer, or of the writer of one append or batch write, that has none from its
program: the client draws it, and nobody guesses it."""


class Need(NamedTuple):
    """What a principal must be allowed."""

    operation: str
    resource_type: str
    resource: str = ""
    topic_id: int = -1
    """By which the request names the topic; -1: by its name."""


Needs = Iterator[Need]
Row = Callable[[Any, CatalogState], Iterable[Need]]
"""What a request needs in this state."""


def cluster(operation: str) -> Row:
    """A row on the group of nodes itself."""
    needs = (Need(operation, CLUSTER),)
    return lambda asked, catalog: needs


def on(operation: str, resource_type: str, field: str) -> Row:
    """A row on the resource that a field names, or on all that it does."""

    def needs(asked: Any, catalog: CatalogState) -> Needs:
        named = getattr(asked, field)
        for name in (named,) if isinstance(named, str) else named:
            yield Need(operation, resource_type, name)

    return needs


def both(*rows: Row) -> Row:
    """A row that needs what each of these does."""
    return lambda asked, catalog: (need for row in rows for need in row(asked, catalog))


def nothing(asked: Any, catalog: CatalogState) -> Iterable[Need]:
    """A row that needs nothing: the answer shows what the principal may describe."""
    return ()


def topic_of(operation: str, topic_id: int, catalog: CatalogState) -> Needs:
    """What a topic needs that a request names by its id; nothing where it is not there, which the
    answer says."""
    info = catalog.topics_state.by_id.get(topic_id)
    if info is not None:
        yield Need(operation, TOPIC, info.name, topic_id)


def by_id(operation: str) -> Row:
    """A row on the topic of the field ``topic_id``."""
    return lambda asked, catalog: topic_of(operation, asked.topic_id, catalog)


def _spans(asked: SplitRequest, catalog: CatalogState) -> Needs:
    for topic_id in dict.fromkeys(row[0] for row in asked.rows()):
        yield from topic_of(DESCRIBE, topic_id, catalog)


def _one_group(asked: GroupRequest, catalog: CatalogState) -> Needs:
    if asked.consumer_group:
        yield Need(DESCRIBE, CONSUMERS, asked.consumer_group)


LISTINGS: Final[dict[Listing, Row]] = {
    Listing.PARTITIONS: nothing,
    Listing.PROGRESS: on(DESCRIBE, CONSUMERS, "name"),
    Listing.MEMBERS: on(DESCRIBE, CONSUMERS, "name"),
    Listing.COMMITS: nothing,
    # commands as they stand in the log, of everybody
    Listing.ENTRIES: cluster(ADMIN),
    Listing.ACLS: cluster(DESCRIBE),
    Listing.USERS: cluster(DESCRIBE),
    Listing.QUOTAS: cluster(DESCRIBE),
    Listing.SETTINGS: cluster(DESCRIBE),
    Listing.SETTING_CHANGES: cluster(DESCRIBE),
}


def batch(body: memoryview, catalog: CatalogState) -> Needs:
    """What a batch needs that is appended; nothing where the bytes are none, which the answer
    says. One of a stage goes the way of its writer, one of a named producer that of the name. Its
    opener hears of a stage or session when this leader has it: a number that is not drawn yet is a
    guess at another's."""
    try:
        flags, topic_id, producer_id = destination(body)
    except ValueError:
        return
    yield from topic_of(WRITE, topic_id, catalog)
    if flags & _STAGED:
        if (stage := catalog.transactions.stages.get(producer_id)) is not None:
            yield _writes(stage.writer_id)
        elif producer_id > catalog.applied_index:
            yield Need(WRITE, PRODUCER, EVERY)
    elif (session := catalog.producers.sessions.get(producer_id)) is not None:
        yield _writes(session.name)
    elif producer_id >= catalog.producers.next_id:
        yield Need(WRITE, PRODUCER, EVERY)


def _put(messages: memoryview, catalog: CatalogState) -> Needs:
    """What messages of RocketMQ need; nothing where the bytes are none, which the answer says."""
    from dledger.rocketmq.format.append_hook import check_messages  # of few groups

    try:
        topics = dict.fromkeys(one.topic for one in check_messages(messages, MAX_PUT_MESSAGES))
    except FormatError:
        return
    for topic in topics:
        yield Need(WRITE, TOPIC, topic)


def _writes(name: str) -> Need:
    """What a producer or writer of this name needs, whatever it writes."""
    return Need(WRITE, TOPIC, SOME) if DRAWN.fullmatch(name) else Need(WRITE, PRODUCER, name)


def _session(asked: command.InitProducer, catalog: CatalogState) -> Needs:
    yield _writes(asked.producer_name)


def _writer(asked: Any, catalog: CatalogState) -> Needs:
    yield _writes(asked.writer_id)


def _written(asked: command.CommitWrite, catalog: CatalogState) -> Needs:
    yield _writes(asked.writer_id)
    if asked.formerly:
        yield Need(WRITE, PRODUCER, asked.formerly)


def _columns(asked: command.EvolveSchema, catalog: CatalogState) -> Needs:
    """The first columns of a topic come with the first rows."""
    yield Need(ALTER if asked.base_version > 0 else WRITE, TOPIC, asked.topic)


def _consumed(asked: command.CommitConsumedTransaction, catalog: CatalogState) -> Needs:
    yield _writes(asked.writer_id)
    yield from COMMITS(asked.consumed, catalog)


COMMITS: Final = both(on(READ, CONSUMERS, "consumer_group"), on(READ, TOPIC, "offsets"))
_CONSUMER: Final = on(READ, CONSUMERS, "consumer_group")

COMMANDS: Final[dict[type[Any], Row]] = {
    command.CreateTopic: on(CREATE, TOPIC, "name"),
    command.DeleteTopic: on(DELETE, TOPIC, "name"),
    command.AddPartitions: on(ALTER, TOPIC, "name"),
    command.EvolveSchema: _columns,
    command.InitProducer: _session,
    command.OpenStage: _writer,
    command.CommitTransaction: _writer,
    command.CommitWrite: _written,
    command.AbortTransaction: _writer,
    command.CommitOffsets: COMMITS,
    command.CommitProgress: COMMITS,
    command.CommitConsumed: COMMITS,
    command.CommitConsumedTransaction: _consumed,
    command.JoinGroup: both(_CONSUMER, on(READ, TOPIC, "topics")),
    command.ReleasePartitions: _CONSUMER,
    command.LeaveGroup: _CONSUMER,
    command.HoldRetention: on(ALTER, CONSUMERS, "consumer_group"),
    command.DeleteGroup: on(DELETE, CONSUMERS, "consumer_group"),
    command.Expire: cluster(ADMIN),
    command.Admit: cluster(ADMIN),
    command.ChangeMembers: cluster(ADMIN),
    command.AdoptCommitLog: cluster(ADMIN),
    command.EnforceSecret: cluster(ADMIN),
    command.AddAcls: cluster(ADMIN),
    command.RemoveAcls: cluster(ADMIN),
    user.SetUser: cluster(ADMIN),
    user.RemoveUser: cluster(ADMIN),
    user.IssueToken: cluster(ADMIN),
    command.AlterQuotas: cluster(ADMIN),
    command.UpgradeGroup: cluster(ADMIN),
    command.AlterSettings: cluster(ADMIN),
}
"""Of what `ExecuteRequest` brings."""

REQUESTS: Final[dict[type[Any], Row]] = {
    MetadataRequest: on(DESCRIBE, TOPIC, "topics"),
    OffsetsRequest: both(on(DESCRIBE, TOPIC, "topics"), on(DESCRIBE, TOPIC, "newer_than")),
    SharedOffsetsRequest: on(DESCRIBE, TOPIC, "topics"),
    FetchRequest: by_id(READ),
    SplitRequest: _spans,
    SchemasRequest: by_id(DESCRIBE),
    GroupRequest: _one_group,
    GroupHeartbeatRequest: _CONSUMER,
    ListRequest: lambda asked, catalog: LISTINGS[asked.listing](asked, catalog),
    StatusRequest: nothing,
    TransferRequest: cluster(ADMIN),
    AdmitRequest: cluster(ADMIN),
    AlterMemberRequest: cluster(ADMIN),
    ExecuteRequest: lambda asked, catalog: COMMANDS[type(asked.command)](asked.command, catalog),
    AclDecisionRequest: cluster(DESCRIBE),
    # all records, of everybody
    OpenBackupRequest: cluster(ADMIN),
    ReadBackupLogRequest: cluster(ADMIN),
    ReadBackupImageRequest: cluster(ADMIN),
    GetMessageRequest: on(READ, TOPIC, "topic"),
    QueryMessageRequest: on(READ, TOPIC, "topic"),
    # by its place in the log, whichever topic it is of
    ViewMessageRequest: lambda asked, catalog: (Need(READ, TOPIC, EVERY),),
}
"""Of the requests that say by themselves what they are about."""

PAYLOADS: Final[dict[type[Any], Callable[[memoryview, CatalogState], Needs]]] = {
    AppendRequest: batch,
    PutMessageRequest: _put,
}
"""Of those whose payload does."""
