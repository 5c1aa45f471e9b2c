"""The audit log in the topic ``__audit``: each line once, whichever node leads, and of nodes
alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dledger.config import AUDIT_TOPIC
from dledger.errors import ConfigError
from dledger.node.audit import backlog
from dledger.node.handlers import audit_topic
from dledger.protocol.messages.audit import AuditLines
from dledger.protocol.messages.catalog_commands import (
    AddPartitions,
    CreateTopic,
    DeleteTopic,
    EvolveSchema,
    InitProducer,
)
from dledger.protocol.messages.client import MetadataRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest
from dledger.records.body.records import decode_batch
from dledger.types import OWNER, NodeId
from tests.node.as_principals import ADMIN, connected, rule
from tests.node.bodies import body
from tests.node.conftest import BareClient
from tests.node.elections import ONE_LEADER, QUICK

ON = {"audit_topic": True}


def audit_id(node: Any) -> int:
    info = node.catalog.topics_state.by_name.get(AUDIT_TOPIC)
    return 0 if info is None else int(info.topic_id)


def count(node: Any) -> int:
    """Lines in the topic, as this node has it."""
    return node.catalog.end_offset(audit_id(node), 0) if audit_id(node) else 0


async def in_topic(group: Any) -> list[dict[str, Any]]:
    """The lines, in the order of the topic."""
    node = await group.leader()
    client, found = await group.client(node), []
    while len(found) < count(node):
        answer, bodies = await client.fetch(audit_id(node), len(found))
        assert answer.code is Code.SUCCESS, answer
        for data in bodies:
            _, batch = decode_batch(data)
            found += zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
    lines = [json.loads(value) for _, value in found]
    assert [key.decode() for key, _ in found] == [line["node"] for line in lines]
    return lines


def in_file(node: Any) -> list[dict[str, Any]]:
    path = Path(node.node.directory) / "audit.log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def probe(node: Any, *numbers: int) -> None:
    for number in numbers:
        node.parts.context.audit.record_own("probe", number=number)


def numbers(lines: list[dict[str, Any]], node: str) -> list[int]:
    own = [line for line in lines if line["node"] == node and line["event"] == "probe"]
    return [line["details"]["number"] for line in own]


@pytest.mark.group(1, **ON)
async def test_the_topic_has_the_lines_of_the_file_and_no_more(group: Any) -> None:
    node, client = await group.leader(), await group.client()
    await client.create("orders")
    await group.until(lambda: count(node) == 1)
    await client.execute(DeleteTopic(name="orders"))
    await group.until(lambda: count(node) == 2)
    await client.execute(DeleteTopic(name="orders"))
    await group.until(lambda: count(node) == 3 == len(in_file(node)))
    lines = await in_topic(group)
    assert [line["event"] for line in lines] == ["create topic", "delete topic", "delete topic"]
    assert lines == in_file(node), "what nodes write there makes no line of its own"
    status = await client.status()
    assert status["audit_topic"] == {"waiting": 0, "lost": 0}


@pytest.mark.group(1)
async def test_without_the_setting_there_is_no_such_topic(group: Any) -> None:
    node, client = await group.leader(), await group.client()
    await client.create("orders")
    await group.until(lambda: len(in_file(node)) == 1)
    node.parts.audit_topic.tick(10**9)
    assert not audit_id(node)
    assert "audit_topic" not in await client.status()


@pytest.mark.group(**ON, **ONE_LEADER)
async def test_the_topic_has_the_lines_of_every_node(group: Any) -> None:
    leader, follower = await group.leader(), await group.follower()
    stranger = await BareClient.dial(follower.port)
    await stranger.ask(HelloRequest(group="test", node_id="n9"))
    stranger.close()
    await (await group.client()).create("orders")
    await group.until(lambda: count(leader) == 2)
    lines = {line["node"]: line for line in await in_topic(group)}
    assert lines[follower.node.node_id]["event"] == "authenticate"
    assert lines[leader.node.node_id]["event"] == "create topic"
    assert lines[follower.node.node_id] == in_file(follower)[0]
    await group.agree()


@pytest.mark.group(**ON, **ONE_LEADER)
async def test_lines_that_are_sent_again_and_again_are_written_once(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_topic, "AGAIN_MS", 0)
    nodes = list(group.nodes.values())
    leader = await group.leader()
    for number in range(300):
        for node in nodes:
            probe(node, number)
            node.parts.audit_topic.tick(number)
    await group.until(lambda: count(leader) == 900)
    await group.agree()
    lines = await in_topic(group)
    for node in nodes:
        assert numbers(lines, node.node.node_id) == list(range(300))


@pytest.mark.group(**ON, **QUICK)
async def test_no_line_is_lost_or_doubled_when_leaders_are_killed(group: Any) -> None:
    written = dict.fromkeys(group.nodes, 0)
    killed = dict.fromkeys(group.nodes, 0)

    def write() -> None:
        for name, node in group.nodes.items():
            probe(node, *range(written[name], written[name] + 50))
            written[name] += 50

    for _ in range(2):
        write()
        leader = await group.leader()
        before, name = count(leader), leader.node.node_id
        write()
        await group.until(lambda leader=leader, before=before: count(leader) > before)
        write()
        await group.kill(name)
        killed[name] = written[name]
        write()
        senders = [node.parts.audit_topic for node in group.nodes.values()]
        await group.until(lambda senders=senders: not any(one._backlog for one in senders))
        await group.start(name)
    lines = await in_topic(group)
    for name in written:
        found = numbers(lines, name)
        assert found == sorted(set(found)), "in order, each once"
        assert set(range(killed[name], written[name])) <= set(found), "but those of a killed life"


@pytest.mark.group(**ON, **QUICK)
async def test_a_node_that_stops_leaves_no_line_behind(group: Any) -> None:
    leader, follower = await group.leader(), await group.follower()
    for node in (follower, leader):
        probe(node, 1, 2)
        await group.stop(node.node.node_id)
        await group.start(node.node.node_id)
    assert [numbers(await in_topic(group), one.node.node_id) for one in (leader, follower)] == [
        [1, 2],
        [1, 2],
    ]


@pytest.mark.group(**ON, **QUICK)
async def test_without_a_leader_lines_wait_and_what_is_lost_is_counted(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "MOST_LINES", 5)
    node = await group.kill_followers()
    await group.until(lambda: node.raft.leader_id is None)
    probe(node, *range(12))
    await group.until(lambda: len(in_file(node)) == 12)
    assert (await (await group.client(node)).status())["audit_topic"] == {"waiting": 5, "lost": 7}
    name = node.node.node_id
    await group.start(*(other for other in group.config.members if other != name))
    await group.until(lambda: count(node) == 6)
    probe(node, 12)
    await group.until(lambda: count(node) == 7)
    lines = await in_topic(group)
    assert numbers(lines, name) == [*range(5), 12]
    assert (lines[5]["event"], lines[5]["details"]) == ("lines missing", {"lines": 7})
    assert len(in_file(node)) == 13, "the file has them all"


def test_a_line_that_no_entry_can_hold_is_counted() -> None:
    waiting = backlog.Backlog(10, gap=lambda lines: backlog.Line(b"gap %d" % lines, 7))
    waiting.put(b"x" * 11, 1)
    waiting.put(b"short", 2)
    assert [line.text for line in waiting.first(9, 99)] == [b"gap 1", b"short"]
    assert [line.text for line in waiting.first(9, 1)] == [b"gap 1"], "one at least"


@pytest.mark.group(1, **ON, max_body_bytes=2048)
async def test_a_long_line_goes_to_the_topic_without_its_details(group: Any) -> None:
    node = await group.leader()
    node.parts.context.audit.record_own("probe", text="x" * 5000)
    await group.until(lambda: count(node) == 1)
    (line,) = await in_topic(group)
    assert line["details"]["left_out_bytes"] > 5000
    assert in_file(node)[0]["details"]["text"] == "x" * 5000


# ---- whose it is


@pytest.mark.group(1, **ON)
@pytest.mark.parametrize("who", ["User:ANONYMOUS", "User:alice", OWNER, "Node:n0"])
async def test_clients_neither_make_nor_write_the_topic(group: Any, who: str) -> None:
    node = await group.leader()
    client = await connected(node, who)
    create = CreateTopic(name=AUDIT_TOPIC, log_id="x", partitions=1)
    answer = await client.execute(create)
    assert answer.code is Code.ACCESS_DENIED
    assert "create topic __audit" in answer.message
    await group.until(lambda: count(node) == 1)
    for command in (
        replace(create, if_absent=True),
        AddPartitions(name=AUDIT_TOPIC, partitions=2),
        EvolveSchema(topic=AUDIT_TOPIC, log_id="x", base_version=0, schema="{}"),
        InitProducer(producer_name=node.parts.audit_topic._producer),
    ):
        assert (await client.execute(command)).code is Code.ACCESS_DENIED, command
    topic = audit_id(node)
    for fields in ({}, {"partition": 3}, await client.stage()):
        assert (await client.append(body(topic, **fields))).code is Code.ACCESS_DENIED, fields
    client.close()
    events = {line["event"] for line in await in_topic(group)}
    assert events <= {"create topic", "add partitions", "change schema"}


@pytest.mark.group(1, **ON)
async def test_the_owner_alone_deletes_the_topic_and_it_comes_back(group: Any) -> None:
    node = await group.leader()
    probe(node, 1)
    await group.until(lambda: count(node) == 1)
    former = audit_id(node)
    user = await connected(node, "User:alice")
    assert (await user.execute(DeleteTopic(name=AUDIT_TOPIC))).code is Code.ACCESS_DENIED
    owner = await connected(node, OWNER)
    await group.until(lambda: count(node) == 2)
    assert (await owner.execute(DeleteTopic(name=AUDIT_TOPIC))).code is Code.SUCCESS
    audit = node.parts.audit_topic
    audit._make_again_ms.clear()  # 10 s have passed
    await group.until(lambda: audit_id(node) not in {0, former} and count(node))
    line = (await in_topic(group))[-1]
    assert (line["event"], line["principal"], line["result"]) == ("delete topic", OWNER, "done")
    user.close()
    owner.close()


@pytest.mark.group(1, **ON)
async def test_only_a_rule_on_its_name_lets_somebody_read_the_topic(group: Any) -> None:
    node = await group.leader()
    allowed = {
        "User:all": "*",
        "User:near": "__aud*",
        "User:one": "__audit",
        "User:more": "__audit*",
    }
    rules = [f"allow {who} read topic {name}" for who, name in allowed.items()]
    await rule(node, ADMIN, *rules, "deny User:denied read topic *")
    await group.until(lambda: count(node) >= 1)
    for who in (*allowed, "User:admin", OWNER):
        client = await connected(node, who)
        is_allowed = who in {"User:one", "User:more", OWNER}
        answer, _ = await client.fetch(audit_id(node), 0)
        code = Code.SUCCESS if is_allowed else Code.UNKNOWN_TOPIC
        assert answer.code is code, who
        listed = await client.ask(MetadataRequest(all_topics=True))
        names = {info.name for info in listed.topics}
        assert (AUDIT_TOPIC in names) is is_allowed, who
        client.close()


@pytest.mark.group(1, **ON, max_topics=1, max_partitions=1, max_producers=1)
async def test_limits_of_the_group_are_not_for_the_topic(group: Any) -> None:
    node, client = await group.leader(), await group.client()
    await client.create("orders")
    await client.producer()
    assert (await client.execute(CreateTopic(name="b", log_id="b"))).code is not Code.SUCCESS
    await group.until(lambda: count(node) == 2)


@pytest.mark.group(**ON, **ONE_LEADER)
async def test_only_lines_of_the_topic_and_its_producers_are_taken(group: Any) -> None:
    leader, follower = await group.leader(), await group.follower()
    orders = await (await group.client()).create("orders")
    probe(follower, 1)
    await group.until(lambda: count(leader) == 2)
    sender = follower.parts.audit_topic
    probe(follower, 2)
    sender._forget_written()
    lines = AuditLines(
        group=follower.raft.tag,
        local_id=follower.node.node_id,
        remote_id=leader.node.node_id,
        producer=sender._producer,
        bodies=sender._bodies(),
    )
    at, taken = leader.parts.audit_topic, leader.parts.proposals.waiting
    at.on_message(replace(lines, group="other"))
    at.on_message(replace(lines, remote_id=NodeId("n9")))
    at.on_message(replace(lines, producer="orders"))
    topic, place = audit_id(leader), sender._place
    assert place is not None
    own = {"producer_id": place.producer_id}
    other = (body(topic, partition=1, **own), body(orders, **own), body(topic), b"none")
    for wrong in other:
        at.on_message(replace(lines, bodies=(wrong,)))
    assert leader.parts.proposals.waiting == taken
    at.on_message(lines)
    assert leader.parts.proposals.waiting > taken
    await group.until(lambda: count(leader) == 3)
    assert not leader.catalog.end_offset(orders, 0)


@pytest.mark.group(**ON, **ONE_LEADER)
async def test_a_leader_of_an_older_release_is_sent_no_lines(group: Any) -> None:
    leader, follower = await group.leader(), await group.follower()
    name = leader.node.node_id
    await group.until(lambda: name in follower.parts.gate.supporting)
    known = follower.parts.gate.supporting
    hello = known[name]
    known[name] = replace(hello, versions=(0, 0))
    probe(follower, 1)
    probe(leader, 1)
    await group.until(lambda: count(leader) == 1)
    sender = follower.parts.audit_topic
    sender.tick(10**9)
    assert follower.parts.peers.links[name].connected
    assert len(sender._backlog) == 1
    known[name] = hello
    sender._again_ms = 0
    await group.until(lambda: count(leader) == 2)


async def test_a_group_without_topics_refuses_the_setting(play: Any) -> None:
    async with play(1, start=False, commit_log="rocketmq", **ON) as group:
        with pytest.raises(ConfigError, match="audit_topic: there is no such topic"):
            await group.start()
