"""Each request of each principal: let pass as the rules say, and never otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from dledger.node.access.operations import COMMANDS, LISTINGS, PAYLOADS, REQUESTS
from dledger.protocol.messages import catalog_commands as command
from dledger.protocol.messages import user_commands as user
from dledger.protocol.messages.acl_decisions import AclDecisionRequest
from dledger.protocol.messages.acl_rules import AclRule
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
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.group_heartbeat import GroupHeartbeatRequest
from dledger.protocol.messages.member_requests import AlterMemberRequest, MemberAction
from dledger.protocol.messages.rocketmq import (
    GetMessageRequest,
    PutMessageRequest,
    QueryMessageRequest,
    ViewMessageRequest,
)
from dledger.protocol.messages.shared_offsets import SharedOffsetsRequest
from dledger.protocol.messages.splits import SplitRequest
from dledger.records.body.header import Flag
from dledger.rocketmq.format.message import Message, encode_message
from dledger.types import Index, NodeId
from tests.node.as_principals import ADMIN, connected, rule
from tests.node.bodies import body

pytestmark = pytest.mark.group(1)

VERIFIER = user.ScramVerifier(
    salt=b"s" * 16, iterations=4096, stored_key=b"k" * 32, server_key=b"v" * 32
)

GRANTS: dict[str, tuple[str, ...]] = {
    "User:ANONYMOUS": (),
    "User:wrong": ("read topic other", "write topic other", "read group other"),
    "User:reader": ("read topic t", "read group g"),
    "User:writer": ("write topic t", "write producer w*"),
    "User:keeper": (
        *("create topic *", "delete topic t", "alter topic t"),
        *("alter group g", "delete group g", "read group g", "read topic *"),
    ),
    "User:admin": ("admin cluster",),
    "User:*": (),
}
"""Principal -> what rules allow it."""
TRUSTED = ("Owner", "Node:n1")
EVERYONE = (*(name for name in GRANTS if name != "User:*"), *TRUSTED)
IMPLIED = ("read", "write", "delete", "alter", "admin")
STAGES = command.StageSum(stage_id=99, batches=1, records=1)
CONSUMED = command.CommitConsumed(
    consumer_group="g", member_id="m", epoch=1, sequence=1, offsets={"t": {0: 0}}
)
PROGRESS = {"consumer_group": "g", "offsets": {"t": {0: 0}}}
TRANSACTION = {"writer_id": "w1", "sequence": 0}


@dataclass(frozen=True)
class Asked:
    """A request, and what its principal needs."""

    request: Any
    needs: tuple[str, ...]
    payload: bytes = b""


def executed(one: Any, *needs: str) -> Asked:
    return Asked(ExecuteRequest(command=one, timeout_ms=5000), needs)


def listed(listing: Listing, *needs: str) -> Asked:
    return Asked(ListRequest(listing=listing, name="g"), needs)


def requests(t: int, stage: int) -> list[Asked]:
    """Each request that can be asked for topic ``t``, group ``g``, writer ``w1``."""
    message = encode_message(Message("t", b"x", "", 0))
    span = SplitRequest.of([(t, 0, 0, 0, 1 << 20, 10)])
    return [
        Asked(MetadataRequest(), ()),
        Asked(MetadataRequest(all_topics=True), ()),
        Asked(MetadataRequest(topics=("t",)), ("describe topic t",)),
        Asked(OffsetsRequest(topics=("t",)), ("describe topic t",)),
        Asked(OffsetsRequest(topics=("t",), stale=True), ("describe topic t",)),
        Asked(
            OffsetsRequest(topics=(), newer_than={"t": {0: 9}}, wait_ms=1), ("describe topic t",)
        ),
        Asked(SharedOffsetsRequest(group_id="g", topics=("t",)), ("describe topic t",)),
        Asked(FetchRequest(topic_id=t, partition=0, start_offset=0), ("read topic t",)),
        Asked(span, ("describe topic t",)),
        Asked(SchemasRequest(topic_id=t), ("describe topic t",)),
        Asked(GroupRequest(), ()),
        Asked(GroupRequest(consumer_group="g"), ("describe group g",)),
        Asked(GroupHeartbeatRequest(consumer_group="g", member_id="m"), ("read group g",)),
        listed(Listing.PARTITIONS),
        listed(Listing.PROGRESS, "describe group g"),
        listed(Listing.COMMITS),
        listed(Listing.ENTRIES, "admin cluster"),
        listed(Listing.MEMBERS, "describe group g"),
        listed(Listing.ACLS, "describe cluster"),
        listed(Listing.USERS, "describe cluster"),
        listed(Listing.QUOTAS, "describe cluster"),
        listed(Listing.SETTINGS, "describe cluster"),
        listed(Listing.SETTING_CHANGES, "describe cluster"),
        Asked(StatusRequest(), ()),
        Asked(TransferRequest(to=NodeId("n0")), ("admin cluster",)),
        Asked(AdmitRequest(node_id=NodeId("n0"), timeout_ms=1), ("admin cluster",)),
        Asked(
            AlterMemberRequest(node_id=NodeId("n0"), action=MemberAction.REMOVE),
            ("admin cluster",),
        ),
        Asked(OpenBackupRequest(), ("admin cluster",)),
        Asked(ReadBackupLogRequest(view=9, first=Index(0), max_bytes=9), ("admin cluster",)),
        Asked(ReadBackupImageRequest(view=9, offset=0, max_bytes=9), ("admin cluster",)),
        Asked(
            AclDecisionRequest(principal="User:a", operation="read", resource_type="topic"),
            ("describe cluster",),
        ),
        Asked(AppendRequest(), ("write topic t",), body(t)),
        Asked(
            AppendRequest(),
            ("write topic t", "write producer w1"),
            body(t, producer_id=stage, flags=Flag.STAGED),
        ),
        Asked(PutMessageRequest(), ("write topic t",), message),
        Asked(GetMessageRequest(topic="t", queue_id=0, queue_offset=0), ("read topic t",)),
        Asked(QueryMessageRequest(topic="t", key="k"), ("read topic t",)),
        Asked(ViewMessageRequest(physical_offset=0), ("read topic *",)),
        *commands(),
    ]


def commands() -> list[Asked]:
    admin = AclRule(
        effect="allow", principal="User:x", operation="read", resource_type="topic", resource="x"
    )
    drawn = command.InitProducer(producer_name="0123456789abcdef" * 2)
    return [
        executed(command.CreateTopic(name="new", log_id="l"), "create topic new"),
        executed(command.AddPartitions(name="t", partitions=1), "alter topic t"),
        executed(
            command.EvolveSchema(topic="t", log_id="l", base_version=0, schema="{}"),
            "write topic t",
        ),
        executed(
            command.EvolveSchema(topic="t", log_id="l", base_version=1, schema="{}"),
            "alter topic t",
        ),
        executed(command.InitProducer(producer_name="w1"), "write producer w1"),
        executed(drawn, "write topic "),
        *(
            executed(
                command.OpenStage(writer_id=f"job/{one}", sequence=0, label="", timeout_ms=1000),
                need,
            )
            for one, need in (
                ("0a" * 16, "write topic "),
                ("123e4567-e89b-42d3-a456-426614174000", "write topic "),
                ("nightly", "write producer job/nightly"),
            )
        ),
        executed(command.OpenStage(**TRANSACTION, label="", timeout_ms=1000), "write producer w1"),
        executed(command.CommitTransaction(**TRANSACTION, stages=(STAGES,)), "write producer w1"),
        executed(
            command.CommitWrite(**TRANSACTION, digest="0" * 16, formerly="v"),
            "write producer w1",
            "write producer v",
        ),
        executed(command.AbortTransaction(**TRANSACTION, stage_ids=(99,)), "write producer w1"),
        executed(command.CommitOffsets(**PROGRESS), "read group g", "read topic t"),
        executed(command.CommitProgress(**PROGRESS), "read group g", "read topic t"),
        executed(CONSUMED, "read group g", "read topic t"),
        executed(
            command.CommitConsumedTransaction(**TRANSACTION, stages=(), consumed=CONSUMED),
            *("write producer w1", "read group g", "read topic t"),
        ),
        executed(
            command.JoinGroup(
                consumer_group="g", member_id="m", topics=("t",), session_timeout_ms=60_000
            ),
            *("read group g", "read topic t"),
        ),
        executed(
            command.ReleasePartitions(consumer_group="g", member_id="m", epoch=1, partitions=()),
            "read group g",
        ),
        executed(command.LeaveGroup(consumer_group="g", member_ids=("m",)), "read group g"),
        executed(command.HoldRetention(consumer_group="g", hold=False), "alter group g"),
        executed(command.DeleteGroup(consumer_group="g"), "delete group g"),
        executed(command.Expire(time_ms=0), "admin cluster"),
        executed(command.Admit(node_id="n0", members={"n0": 1}, after=-1), "admin cluster"),
        executed(command.ChangeMembers(after=-1, members=()), "admin cluster"),
        executed(
            command.AdoptCommitLog(divided_offset=0, fingerprint=0, store_ms=0, queues={}),
            "admin cluster",
        ),
        executed(command.EnforceSecret(), "admin cluster"),
        executed(command.AddAcls(rules=(admin,)), "admin cluster"),
        executed(command.RemoveAcls(rules=(admin,)), "admin cluster"),
        executed(user.SetUser(name="u", verifier=VERIFIER, is_new=True), "admin cluster"),
        executed(
            user.IssueToken(token_id="t", user="u", verifier=VERIFIER, lifetime_ms=1),
            "admin cluster",
        ),
        executed(user.RemoveUser(name="u"), "admin cluster"),
        executed(command.AlterQuotas(entity="User:u", quotas={"requests": 1}), "admin cluster"),
        executed(command.UpgradeGroup(version=1, release="0.2.0"), "admin cluster"),
        executed(command.AlterSettings(values={"retention_ms": "1"}), "admin cluster"),
        executed(command.DeleteTopic(name="t"), "delete topic t"),
    ]


def fits(need: str, granted: str) -> bool:
    operation, kind, name = need.split(" ", 2) if need.count(" ") > 1 else (*need.split(), "")
    has, on, *pattern = granted.split()
    if on != kind or not (has == operation or (operation == "describe" and has in IMPLIED)):
        return False
    if kind == "cluster" or not name:  # some name will do
        return True
    return pattern[0] == name or (pattern[0][-1] == "*" and name.startswith(pattern[0][:-1]))


def is_allowed(principal: str, needs: tuple[str, ...]) -> bool:
    return principal in TRUSTED or all(
        any(fits(need, granted) for granted in GRANTS[principal]) for need in needs
    )


async def prepared(group: Any) -> tuple[Any, int, int]:
    """The node, topic ``t`` and a stage of ``w1``, with the rules of `GRANTS`."""
    node = await group.leader()
    owner = await connected(node, "Owner")
    topic_id = await owner.create("t")
    opened = command.OpenStage(writer_id="w1", sequence=5, label="", timeout_ms=600_000)
    stage = (await owner.execute(opened)).result["stage_id"]
    texts = [f"allow {who} {grant}" for who, grants in GRANTS.items() for grant in grants]
    await rule(node, *texts)
    return node, topic_id, stage


def hidden(code: Code, asked: Asked) -> bool:
    """A topic that is asked for by its id, and may not be described, is not there."""
    return code is Code.UNKNOWN_TOPIC and "topic t" in asked.needs[0]


@pytest.mark.parametrize("principal", EVERYONE)
async def test_each_request_passes_as_its_needs_say(group: Any, principal: str) -> None:
    node, topic_id, stage = await prepared(group)
    client = await connected(node, principal)
    for asked in requests(topic_id, stage):
        before = node.catalog.digest()
        answer = (await client.start(asked.request, asked.payload))[0]
        allowed = is_allowed(principal, asked.needs)
        passed = answer.code is not Code.ACCESS_DENIED and not hidden(answer.code, asked)
        if allowed and hidden(answer.code, asked):  # by this time it is deleted
            continue
        assert passed == allowed, (principal, asked, answer)
        if not allowed:
            assert node.catalog.digest() == before
            if answer.code is Code.ACCESS_DENIED:
                assert f"dledger acl add allow {principal} " in answer.message


def test_each_row_of_the_table_is_asked() -> None:
    asked = requests(1, 1)
    assert {type(one.request) for one in asked} == {*REQUESTS, *PAYLOADS}
    executes = [one.request.command for one in asked if isinstance(one.request, ExecuteRequest)]
    assert {type(one) for one in executes} == set(COMMANDS)
    lists = [one.request.listing for one in asked if isinstance(one.request, ListRequest)]
    assert set(lists) == set(LISTINGS)


async def test_without_rules_everybody_may_do_everything(group: Any) -> None:
    node = await group.leader()
    client = await connected(node, "User:ANONYMOUS")
    topic_id = await client.create("t")
    for asked in requests(topic_id, 1):
        answer = (await client.start(asked.request, asked.payload))[0]
        assert answer.code is not Code.ACCESS_DENIED, (asked, answer)
        if isinstance(asked.request, StatusRequest):
            assert "durable_index" in answer.status


async def test_first_rule_counts_at_once_and_the_last_removed_no_more(group: Any) -> None:
    node = await group.leader()
    client = await connected(node, "User:a")
    assert (await client.execute(command.CreateTopic(name="t", log_id="l"))).code is Code.SUCCESS
    await rule(node, ADMIN)
    denied = await client.execute(command.CreateTopic(name="u", log_id="m"))
    assert denied.code is Code.ACCESS_DENIED
    await rule(node, ADMIN, remove=True, force=True)
    assert (await client.execute(command.CreateTopic(name="u", log_id="m"))).code is Code.SUCCESS


ABSENT: tuple[Callable[[str], Any], ...] = (
    lambda name: MetadataRequest(topics=(name,)),
    lambda name: OffsetsRequest(topics=(name,)),
    lambda name: GroupRequest(consumer_group=name),
    lambda name: ListRequest(listing=Listing.PROGRESS, name=name),
    lambda name: ListRequest(listing=Listing.MEMBERS, name=name),
    lambda name: GroupHeartbeatRequest(consumer_group=name, member_id="m"),
    *(
        lambda name, one=one: ExecuteRequest(command=one(name))
        for one in (
            lambda name: command.CreateTopic(name=name, log_id="x"),
            lambda name: command.DeleteTopic(name=name),
            lambda name: command.AddPartitions(name=name, partitions=9),
            lambda name: command.EvolveSchema(topic=name, log_id="", base_version=0, schema=""),
            lambda name: command.OpenStage(writer_id=name, sequence=0, label="", timeout_ms=9),
            lambda name: command.CommitOffsets(consumer_group=name, offsets={}),
            lambda name: command.DeleteGroup(consumer_group=name),
            lambda name: command.InitProducer(producer_name=name),
        )
    ),
)


@pytest.mark.parametrize("make", ABSENT, ids=lambda make: str(type(make("x")).__name__))
async def test_denial_is_the_same_for_what_is_not_there(group: Any, make: Any) -> None:
    node = await group.leader()
    owner = await connected(node, "Owner")
    await owner.create("there")
    for one in (
        command.InitProducer(producer_name="there"),
        command.OpenStage(writer_id="there", sequence=0, label="", timeout_ms=60_000),
        command.CommitOffsets(consumer_group="there", offsets={"there": {0: 0}}),
    ):
        assert (await owner.execute(one)).code is Code.SUCCESS
    await rule(node, ADMIN)
    client = await connected(node, "User:a")
    there, absent = [await client.ask(make(name)) for name in ("there", "absent")]
    assert there.code is absent.code is Code.ACCESS_DENIED
    assert there.message.replace("there", "absent") == absent.message


@pytest.mark.parametrize(
    "make",
    [
        lambda t: (FetchRequest(topic_id=t, partition=0, start_offset=0), b""),
        lambda t: (SplitRequest.of([(t, 0, 0, 0, 1, 1)]), b""),
        lambda t: (SchemasRequest(topic_id=t), b""),
        lambda t: (AppendRequest(), body(t)),
    ],
    ids=["fetch", "split", "schemas", "append"],
)
async def test_hidden_id_is_answered_as_one_that_is_gone(group: Any, make: Any) -> None:
    node = await group.leader()
    owner = await connected(node, "Owner")
    there, gone = [await owner.create(name) for name in ("there", "gone")]
    await owner.execute(command.DeleteTopic(name="gone"))
    await rule(node, ADMIN)
    client = await connected(node, "User:a")
    answers = [(await client.start(*make(t)))[0] for t in (there, gone)]
    assert {answer.code for answer in answers} == {Code.UNKNOWN_TOPIC}
    assert answers[0].message.replace(f"id {there}", f"id {gone}") == answers[1].message
    # who may know the name is told what is missing
    await rule(node, "allow User:a describe topic there")
    told = (await client.start(*make(there)))[0]
    if not isinstance(make(there)[0], (SplitRequest, SchemasRequest)):
        assert told.code is Code.ACCESS_DENIED
        assert "topic there" in told.message
