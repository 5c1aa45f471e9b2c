"""What a principal sees of a group, and what rules do to requests under way, at nodes that do not
lead, and to those who are always let in."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
import trustme

from dledger.client import AsyncClient
from dledger.client.protocol.operations.access import parse_rule
from dledger.config import tls_files
from dledger.errors import PermissionDenied
from dledger.net.connections.tls import client_context
from dledger.protocol.messages import catalog_commands as command
from dledger.protocol.messages.client import (
    AppendRequest,
    ExecuteRequest,
    FetchRequest,
    GroupRequest,
    Listing,
    ListRequest,
    MetadataRequest,
    OffsetsRequest,
    StatusRequest,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest
from dledger.protocol.messages.rocketmq import (
    GetMessageRequest,
    PutMessageRequest,
    PutMessageResponse,
    PutMessageStatus,
)
from dledger.records.body.header import Flag
from dledger.rocketmq.format.message import Message, encode_message
from tests.node.as_principals import ADMIN, connected, rule
from tests.node.bodies import body
from tests.node.conftest import BareClient

one_node = pytest.mark.group(1)
SEES = ("allow User:a describe topic mine*", "allow User:a read group g*", ADMIN)


async def staged(client: Any, topic_id: int, writer: str) -> None:
    """A transaction of one record."""
    opened = command.OpenStage(writer_id=writer, sequence=0, label="", timeout_ms=60_000)
    stage = (await client.execute(opened)).result["stage_id"]
    await client.write(topic_id, producer_id=stage, flags=Flag.STAGED)
    sums = (command.StageSum(stage_id=stage, batches=1, records=1),)
    commit = command.CommitTransaction(writer_id=writer, sequence=0, stages=sums)
    assert (await client.execute(commit)).code is Code.SUCCESS


@one_node
async def test_what_may_not_be_described_is_not_listed(group: Any) -> None:
    node = await group.leader()
    owner = await connected(node, "Owner")
    topics = {name: await owner.create(name) for name in ("mine", "theirs")}
    for name, topic_id in topics.items():
        await owner.write(topic_id)
        await staged(owner, topic_id, f"w-{name}")
    both = {"mine": {0: 1}, "theirs": {0: 1}}
    for consumer_group in ("g1", "h1"):
        progress = command.CommitProgress(consumer_group=consumer_group, offsets=both)
        assert (await owner.execute(progress)).code is Code.SUCCESS
    joined = command.JoinGroup(
        consumer_group="g1", member_id="m", topics=tuple(topics), session_timeout_ms=60_000
    )
    await owner.execute(joined)
    await rule(node, *SEES, "allow User:a describe producer w-mine")
    client = await connected(node, "User:a")

    async def rows(listing: Listing) -> list[dict[str, Any]]:
        answer = await client.ask(ListRequest(listing=listing, name="g1"))
        assert answer.code is Code.SUCCESS, answer
        return list(answer.rows)

    named = await client.ask(MetadataRequest(all_topics=True))
    assert [info.name for info in named.topics] == ["mine"]
    assert (await client.ask(GroupRequest())).groups == ("g1",)
    assert (await client.ask(GroupRequest(consumer_group="g1"))).offsets == {"mine": {0: 1}}
    assert [row["topic"] for row in await rows(Listing.PARTITIONS)] == ["mine"]
    assert [row["topic"] for row in await rows(Listing.PROGRESS)] == ["mine"]
    assert [row["partitions"] for row in await rows(Listing.MEMBERS)] == [{"mine": (0,)}]
    (commit,) = await rows(Listing.COMMITS)
    assert (commit["writer_id"], commit["offsets"]) == ("w-mine", {"mine": {0: (1, 2)}})
    status = await client.status()
    assert set(status) == {
        *("node_id", "group", "members", "member_roles", "member_racks"),
        *("role", "term", "leader_id", "begin_index", "clock"),
    }
    assert len((await owner.ask(MetadataRequest(all_topics=True))).topics) == 2
    await rule(node, "allow User:a describe cluster")
    assert (await client.status())["topics"] == 2


@one_node
async def test_appends_that_come_together_pass_or_fail_each_by_its_topic(group: Any) -> None:
    node = await group.leader()
    owner = await connected(node, "Owner")
    mine, theirs = await owner.create("mine"), await owner.create("theirs")
    await rule(node, ADMIN, "allow User:a write topic mine")
    client = await connected(node, "User:a")
    order = [mine, mine, theirs, theirs, mine, theirs]
    started = [client.start(AppendRequest(timeout_ms=10_000), body(topic)) for topic in order]
    answers = [(await one)[0] for one in started]
    assert [answer.code is Code.SUCCESS for answer in answers] == [one == mine for one in order]
    assert [answer.base_offset for answer in answers if answer.code is Code.SUCCESS] == [0, 1, 2]
    assert node.catalog.end_offset(theirs, 0) == 0


@one_node
async def test_stage_and_named_session_are_their_writers_own(group: Any) -> None:
    """The ids in bodies are numbers that anybody may guess."""
    node = await group.leader()
    owner = await connected(node, "Owner")
    topic_id = await owner.create("t")
    stage, session = await owner.stage(), await owner.producer()
    drawn = (await owner.execute(command.InitProducer(producer_name="0a" * 16))).result
    await rule(node, ADMIN, "allow User:a write topic t")
    client = await connected(node, "User:a")
    for fields in (stage, session):
        answer = await client.append(body(topic_id, **fields))
        assert answer.code is Code.ACCESS_DENIED
        assert "write producer " in answer.message
    # numbers that somebody may be given next
    to_come = stage | {"producer_id": 1 << 20}, session | {"producer_id": 1 << 20}
    for fields in to_come:
        assert (await client.append(body(topic_id, **fields))).code is Code.ACCESS_DENIED
    own = {"producer_id": drawn["producer_id"], "producer_epoch": drawn["epoch"]}
    assert (await client.append(body(topic_id, **own))).code is Code.SUCCESS
    await rule(node, "allow User:a write producer p", "allow User:a write producer w")
    for fields in (stage, session):
        assert (await client.append(body(topic_id, **fields))).code is Code.SUCCESS


@one_node
async def test_request_that_waits_is_asked_again_when_rules_change(group: Any) -> None:
    node = await group.leader()
    owner = await connected(node, "Owner")
    topic_id = await owner.create("t")
    await rule(node, ADMIN, "allow User:a read topic t")
    client = await connected(node, "User:a")
    fetch = FetchRequest(topic_id=topic_id, partition=0, start_offset=0, wait_ms=60_000)
    news = OffsetsRequest(topics=(), newer_than={"t": {0: 0}}, wait_ms=60_000)
    waiting = [client.start(fetch), client.start(news)]
    await group.until(lambda: len(node.parts.polls) == 2)
    # as one entry with the record behind it, so that both may be applied in one go
    gone = command.RemoveAcls(rules=(parse_rule("allow User:a read topic t"),))
    removed = owner.start(ExecuteRequest(command=gone, timeout_ms=10_000))
    written = owner.start(AppendRequest(timeout_ms=10_000), body(topic_id))
    answers = [await one for one in waiting]
    assert answers[0][0].code is Code.SUCCESS
    assert not answers[0][1]
    assert (await removed)[0].code is (await written)[0].code is Code.SUCCESS
    assert (await client.ask(fetch)).code is Code.UNKNOWN_TOPIC
    assert (await client.ask(news)).code is Code.ACCESS_DENIED


async def test_node_that_may_not_know_each_rule_sends_to_the_leader(group: Any) -> None:
    leader = await group.leader()
    owner = await connected(leader, "Owner")
    topic_id = await owner.create("t")
    await owner.write(topic_id)
    await rule(leader, ADMIN, "allow User:a read topic t")
    await group.agree()
    follower = await group.follower()
    client, other = [await connected(follower, who) for who in ("User:a", "User:b")]
    fetch = FetchRequest(topic_id=topic_id, partition=0, start_offset=0)
    assert (await client.ask(fetch)).code is Code.SUCCESS
    assert (await other.ask(fetch)).code is Code.BEHIND
    stale = OffsetsRequest(topics=("t",), stale=True)
    assert (await client.ask(stale)).code is Code.SUCCESS
    for who in (client, other):
        answer = await who.execute(command.CreateTopic(name="u", log_id="u"))
        assert (answer.code, answer.leader_id) == (Code.NOT_LEADER, leader.node.node_id)
        assert (await who.append(body(topic_id))).code is Code.NOT_LEADER
    assert (await other.ask(stale)).code is Code.NOT_LEADER
    named = await other.ask(MetadataRequest(topics=("t",)))
    assert (named.code, named.topics, named.leader_id) == (
        *(Code.SUCCESS, ()),
        leader.node.node_id,
    )


async def test_new_leader_lets_nobody_pass_before_it_knows_each_rule(group: Any) -> None:
    """Its catalog may be behind the log that it was elected with."""
    leader = await group.leader()
    owner = await connected(leader, "Owner")
    topic_id = await owner.create("t")
    await rule(leader, ADMIN, "allow User:a write topic t")
    client = await connected(leader, "User:a")
    assert (await client.append(body(topic_id))).code is Code.SUCCESS
    noop = leader.raft.leader.noop_index
    try:
        leader.raft.leader.noop_index = leader.catalog.applied_index + 100
        assert (await client.append(body(topic_id))).code is Code.LEADER_NOT_READY
        assert (await client.ask(GroupRequest())).code is Code.LEADER_NOT_READY
        assert (await client.ask(MetadataRequest(topics=("u",)))).code is Code.BEHIND
    finally:
        leader.raft.leader.noop_index = noop
    assert (await client.append(body(topic_id))).code is Code.SUCCESS


@one_node
async def test_denial_is_in_the_audit_log_with_the_request(
    group: Any, caplog: pytest.LogCaptureFixture
) -> None:
    node = await group.leader()
    await rule(node, ADMIN)
    client = await connected(node, "User:a")
    with caplog.at_level(logging.INFO, "dledger.audit"):
        await client.execute(command.DeleteTopic(name="secret\x1b[2J"))
        await client.ask(MetadataRequest(topics=("t",)))
    first, second = (
        json.loads(record.message) for record in caplog.records if record.name == "dledger.audit"
    )
    assert "\x1b" not in caplog.records[0].message
    assert first["event"] == second["event"] == "authorize"
    assert (first["principal"], first["details"]["operation"]) == ("User:a", "delete")
    asked = second["details"]
    assert (asked["request"], asked["resource"]) == ("MetadataRequest", "topic t")
    assert first["address"].startswith("127.0.0.1:")
    assert "dledger acl add allow User:a describe topic t" in second["reason"]


@one_node
async def test_rules_outlive_a_restart(group: Any) -> None:
    node = await group.leader()
    await rule(node, ADMIN, "allow User:a create topic t")
    await group.restart(kill=True)
    node = await group.leader()
    client, other = [await connected(node, who) for who in ("User:a", "User:b")]
    create = command.CreateTopic(name="t", log_id="l")
    assert (await other.execute(create)).code is Code.ACCESS_DENIED
    assert (await client.execute(create)).code is Code.SUCCESS


@one_node
async def test_rules_hold_for_messages_of_a_rocketmq_log(play: Callable[..., Any]) -> None:
    async with play(1, commit_log="rocketmq") as group:
        node = await group.leader()
        await rule(
            node, ADMIN, "allow User:a write topic orders", "allow User:a read topic %RETRY*"
        )
        client = await connected(node, "User:a")

        async def put(*topics: str) -> Code:
            payload = b"".join(encode_message(Message(topic, b"x", "", 0)) for topic in topics)
            answer = (await client.start(PutMessageRequest(timeout_ms=10_000), payload))[0]
            code: Code = answer.code
            return code

        assert await put("orders") is Code.SUCCESS
        assert await put("other") is Code.ACCESS_DENIED
        nowhere = PutMessageResponse(code=Code.ACCESS_DENIED).status
        assert nowhere is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert await put("orders", "other") is Code.ACCESS_DENIED
        get = GetMessageRequest(topic="orders", queue_id=0, queue_offset=0)
        assert (await client.ask(get)).code is Code.ACCESS_DENIED
        other = GetMessageRequest(topic="%RETRY%g", queue_id=0, queue_offset=0)
        assert (await client.ask(other)).code is Code.SUCCESS
        assert (await (await connected(node, "Owner")).ask(get)).code is Code.SUCCESS


# ---- by certificates


def context_of(files: dict[str, str]) -> Any:
    return client_context(tls_files(**{k.removeprefix("tls_"): v for k, v in files.items()}))


async def test_users_are_those_of_certificates_and_nodes_are_let_in(
    play: Callable[..., Any], issue: Callable[..., dict[str, str]]
) -> None:
    authority = trustme.CA()
    own = issue(authority=authority)
    async with play(**own) as group:
        leader, follower = await group.leader(), await group.follower()
        addresses = ",".join(group.addresses.values())
        users = {
            name: issue(f"dledger://client/{name}", authority=authority, nodes=())
            for name in ("root", "alice", "bob", "carol")
        }
        async with AsyncClient(addresses, **users["root"]) as root:
            await root.create_topic("orders", 2)
            with pytest.raises(Exception, match="must name who may change them"):
                await root.add_acls(["allow User:alice read topic orders"])
            added = ["allow User:root admin cluster", "allow User:alice write topic orders"]
            assert await root.add_acls(added) == 2
            read = ["allow User:carol read topic orders", "allow User:carol read group c"]
            assert await root.add_acls([parse_rule(text) for text in read]) == 2
        async with AsyncClient(addresses, **users["alice"]) as alice:
            appended = await alice.append("orders", [b"x"], partition=0)
            assert (appended.start, appended.end) == (0, 1)
            # of several partitions: a transaction that has no name of its own
            parts = (await alice.append("orders", [b"y"] * 8, keys=list("abcdefgh"))).parts
            assert {part.partition for part in parts} == {0, 1}
        async with AsyncClient(addresses, **users["carol"]) as carol:
            batches = [batch async for batch in carol.read("orders", 0, 0)]
            assert sum(map(len, batches)) == 1 + parts[0].end - parts[0].start
            async with await carol.consumer("c", ["orders"]) as consumer:
                assert await consumer.poll(20)
                await consumer.commit()
            with pytest.raises(PermissionDenied, match="alter group c"):
                await carol.hold_retention("c")
            with pytest.raises(PermissionDenied, match="read group d"):
                await carol.consumer("d", ["orders"])
        async with AsyncClient(addresses, **users["bob"]) as bob:
            with pytest.raises(PermissionDenied, match="allow User:bob describe topic orders"):
                await bob.append("orders", [b"x"])
        # a node's own certificate, and nodes that ask one another
        client = await BareClient.dial(leader.port, tls=context_of(own))
        await client.ask(HelloRequest())
        assert "durable_index" in (await client.ask(StatusRequest())).status
        client.close()
        await group.agree()
        status = await follower.parts.peers.status_of(leader.node.node_id)
        assert status["clock"]["wall_ms"] > 0


@one_node
async def test_a_thousand_reads_under_rules_decide_once(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await group.leader()
    owner = await connected(node, "Owner")
    topic_id = await owner.create("t")
    await rule(node, ADMIN, "allow User:a write topic t")
    client = await connected(node, "User:a")
    decided: list[Any] = []
    acls = node.catalog.acls
    monkeypatch.setattr(
        acls, "_decide", lambda *asked: (decided.append(asked), type(acls)._decide(acls, *asked))[1]
    )
    answers = await asyncio.gather(
        *(client.start(AppendRequest(timeout_ms=10_000), body(topic_id)) for _ in range(1000))
    )
    assert {answer.code for answer, _ in answers} == {Code.SUCCESS}
    assert decided == [("User:a", "write", "topic", "t")]
