"""Dynamic settings at the nodes of a group: in force everywhere once they are applied, over each
node's own."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dledger.catalog.versions import SINCE
from dledger.config import GroupConfig, NodeConfig
from dledger.net.reloaded import Reloaded
from dledger.node.node import NodeServer
from dledger.protocol.messages.catalog_commands import (
    AlterSettings,
    CommitProgress,
    CreateTopic,
    HoldRetention,
)
from dledger.protocol.messages.client import ExecuteRequest, Listing, ListRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest
from dledger.types import NodeId
from tests.node.bodies import body
from tests.node.conftest import BareClient, until
from tests.node.trimming import KIB, SMALL, checkpointed, equal, expected, read_all, trimmed, write

MIB = 1 << 20
UNLIMITED = {**SMALL, "retention_bytes": 0}
QUICK = {"election_ms": 300}


@pytest.fixture(autouse=True)
def any_group_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its version, which tests/node/test_node_versions.py is about."""
    monkeypatch.setitem(SINCE, AlterSettings, 0)


async def change(client: BareClient, *reset: str, expect: int = -1, **values: str) -> Any:
    return await client.execute(
        AlterSettings(values=values, reset=reset, expected_version=expect, principal="User:forged")
    )


async def listed(client: BareClient, listing: Listing = Listing.SETTINGS) -> Any:
    answer = await client.ask(ListRequest(listing=listing))
    assert answer.code is Code.SUCCESS, answer
    return answer.rows


def versions(group: Any) -> set[int]:
    return {node.catalog.settings.version for node in group.nodes.values()}


async def test_a_change_counts_at_every_node_in_every_part(group: Any) -> None:
    client = await group.client()
    answer = await change(
        client,
        pending_bytes=str(3 * MIB),
        ack_timeout_ms="700",
        push_timeout_ms="800",
        max_transfer_lag="9",
        retention_ms="5000",
        delete_when="04",
    )
    assert answer.result == {"version": 1}
    await group.until(lambda: versions(group) == {1})
    for node in group.nodes.values():
        core = node.raft._machine.config
        assert (core.pending_bytes, core.ack_timeout_ms, core.push_timeout_ms) == (
            3 * MIB,
            700,
            800,
        )
        assert (core.max_transfer_lag, core.election_ms) == (9, group.config.election_ms)
        assert core.members == group.config.members
        context = node.parts.context
        assert (context.group.pending_bytes, context.node.retention_ms) == (3 * MIB, 5000)
        assert (node.store._settings.retention_ms, node.store._settings.delete_when) == (5000, "04")
        assert node.parts.router._full_bytes == 3 * MIB // 2
        assert node.parts.metadata.status_values()["settings_version"] == 1


@pytest.mark.group(1)
async def test_a_limit_counts_from_the_entry_on_that_sets_it(group: Any) -> None:
    client = await group.client()
    await client.create("one")
    await change(client, max_topics="1")
    answer = await client.execute(CreateTopic(name="two", log_id="two"))
    assert answer.code is Code.LIMIT_REACHED
    assert "raise max_topics" in answer.message
    await change(client, max_topics="2")
    assert (await client.execute(CreateTopic(name="two", log_id="two"))).code is Code.SUCCESS


@pytest.mark.group(1)
async def test_what_no_quorum_may_hold_follows_pending_bytes(group: Any) -> None:
    leader, client = await group.leader(), await group.client()
    topic = await client.create("t")
    await change(client, pending_bytes=str(MIB))
    leader.raft.leader.acks.pending_bytes += MIB  # as appends that wait for their quorum
    assert (await client.append(body(topic))).code is Code.LEADER_PENDING_FULL
    leader.raft.leader.acks.pending_bytes -= MIB
    assert (await client.append(body(topic))).code is Code.SUCCESS


@pytest.mark.group(1)
async def test_a_change_that_is_none_is_not_told(
    group: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = await group.client()
    with caplog.at_level("INFO", "dledger.node.maintenance"):
        for expect in (-1, -1, 0):
            await change(client, expect=expect, max_topics="7")
    told = [text for text in caplog.messages if "the group's settings" in text]
    assert told == ["n0 has the group's settings of version 1: max_topics is '7', was '10000'"]


async def test_settings_outlive_nodes_snapshots_and_leaders(group: Any) -> None:
    client = await group.client()
    await change(client, ack_timeout_ms="700", retention_ms="5000")
    await group.until(lambda: versions(group) == {1})
    for node in group.nodes.values():
        await node.parts.checkpointer.save()
    await group.restart(kill=True)
    leader = await group.leader()
    assert versions(group) == {1}
    for node in group.nodes.values():
        assert node.raft._machine.config.ack_timeout_ms == 700
        assert node.store._settings.retention_ms == 5000
    answer = await change(await group.client(leader), "ack_timeout_ms", "retention_ms", expect=1)
    assert answer.result == {"version": 2}
    await group.until(lambda: versions(group) == {2})
    for node in group.nodes.values():
        assert node.raft._machine.config.ack_timeout_ms == group.config.ack_timeout_ms
        assert node.store._settings.retention_ms == 0


@pytest.mark.group(**UNLIMITED)
async def test_retention_set_at_run_time_lets_files_go_and_comes_with_a_state(group: Any) -> None:
    topic = await write(group, 0, 60)
    await checkpointed(group)
    assert {node.store.begin_index for node in group.nodes.values()} == {0}
    await change(await group.client(), retention_bytes=str(192 * KIB))
    await trimmed(group)
    name = (await group.follower()).node.node_id
    await group.stop(name)
    shutil.rmtree(group.folder / name)
    await group.start(name)
    await equal(group)
    node = group.nodes[name]
    assert node.store.begin_index > 0, "it has taken over the leader's state"
    assert node.catalog.settings.version == 1
    assert node.parts.context.node.retention_bytes == 192 * KIB
    assert node.store._settings.retention_bytes == 192 * KIB
    assert await read_all(group, node, topic) == expected(node, topic, 60)


async def test_a_change_without_a_quorum_counts_nowhere_and_is_undone(group: Any) -> None:
    await group.agree()
    leader = await group.kill_followers()
    name = leader.node.node_id
    client = await group.client(leader)
    begun = client.start(
        ExecuteRequest(command=AlterSettings(values={"ack_timeout_ms": "700"}), timeout_ms=60_000)
    )
    end = leader.raft.log.end_index
    await group.until(lambda: leader.raft.log.end_index > end)
    assert versions(group) == {0}
    assert leader.raft._machine.config.ack_timeout_ms == group.config.ack_timeout_ms
    await group.kill(name)
    assert begun.exception() is not None or begun.result()[0].code is not Code.SUCCESS
    await group.start(*(other for other in group.config.members if other != name))
    await (await group.client()).create("after")
    await group.start(name)
    await group.agree()
    assert versions(group) == {0}
    for node in group.nodes.values():
        assert node.raft._machine.config.ack_timeout_ms == group.config.ack_timeout_ms


@pytest.mark.group(1)
async def test_the_leader_says_who_asked_and_what_its_own_settings_are(group: Any) -> None:
    client = await group.client()
    rows = {row["name"]: row for row in await listed(client)}
    assert rows["max_topics"] == {
        "name": "max_topics", "value": "10000", "source": "node", "version": 0
    }  # fmt: skip
    forged = AlterSettings(
        values={"retention_ms": "5"}, principal="User:forged", founding={"max_topics": "1"}
    )
    assert (await client.execute(forged)).code is Code.SUCCESS
    rows = {row["name"]: row for row in await listed(client)}
    assert (rows["retention_ms"]["value"], rows["retention_ms"]["source"]) == ("5", "set")
    assert (rows["max_topics"]["value"], rows["max_topics"]["source"]) == ("10000", "founding")
    assert rows["retention_bytes"]["source"] == "node"
    (row,) = await listed(client, Listing.SETTING_CHANGES)
    assert row["principal"] == "User:ANONYMOUS"
    assert row["time_ms"] > 0
    assert row["changes"] == {"retention_ms": (None, "5")}


@pytest.mark.group(1)
async def test_a_refused_change_is_not_written(group: Any) -> None:
    leader, client = await group.leader(), await group.client()
    end = leader.raft.log.end_index
    for values, expect, code, said in (
        ({"retention_m": "1"}, -1, Code.MALFORMED, "did you mean 'retention_ms'"),
        ({"max_topics": "x"}, -1, Code.MALFORMED, "no whole number"),
        ({"preferred_leaders": "n1"}, -1, Code.MALFORMED, "'n1' is no member"),
        ({"max_topics": "5"}, 3, Code.UNEXPECTED_ARGUMENT, "have version 0, not 3"),
    ):
        answer = await change(client, expect=expect, **values)
        assert (answer.code, said in answer.message) == (code, True), answer
    assert leader.raft.log.end_index == end


async def test_nodes_with_other_settings_of_their_own_are_told_and_follow(
    play: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with play(3, start=False) as group:
        whole = group.config
        await group.start("n0", "n1")
        group.config = replace(whole, max_topics=3)
        await group.start("n2", retention_ms=9000)
        group.config = whole
        if (await group.leader()).node.node_id == "n2":
            await group.hand_over("n0")
        await change(await group.client(), retention_ms="5000")
        await group.until(lambda: versions(group) == {1})
        assert {node.parts.context.group.max_topics for node in group.nodes.values()} == {10_000}
        assert "n2 has other settings of its own than its group, whose count" in caplog.text
        assert "max_topics is '10000', not '3'; retention_ms is '5000', not '9000'" in caplog.text
        assert "n0 has other settings" not in caplog.text, "it names none itself"


@pytest.mark.group(1, pending_bytes=70_000, ack_timeout_ms=90)
async def test_own_settings_that_could_not_be_set_at_run_time_stay(group: Any) -> None:
    leader, client = await group.leader(), await group.client()
    assert (await change(client, retention_ms="5000")).code is Code.SUCCESS
    core = leader.raft._machine.config
    assert (core.pending_bytes, core.ack_timeout_ms) == (70_000, 90)
    assert (await client.append(body(await client.create("t")))).code is Code.SUCCESS


@pytest.mark.group(1)
async def test_preferred_leaders_change_while_the_group_runs(group: Any) -> None:
    leader, client = await group.leader(), await group.client()
    assert (await change(client, preferred_leaders="n0")).code is Code.SUCCESS
    assert leader.raft._machine.config.preferred_leaders == ("n0",)


async def test_leadership_moves_to_a_leader_that_is_preferred_from_now_on(play: Any) -> None:
    async with play(3, **QUICK) as group:
        leader = await group.leader()
        other = next(name for name in group.nodes if name != leader.node.node_id)
        await change(await group.client(leader), preferred_leaders=str(other))
        await group.until(lambda: group.follow(other))


async def test_a_file_that_is_read_again_does_not_undo_the_groups_settings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "settings.json"

    def load() -> NodeConfig:
        given = {"disk_warn_ratio": 1.0, "disk_full_ratio": 1.0, **json.loads(file.read_text())}
        return NodeConfig(node_id=NodeId("n0"), directory=tmp_path / "n0", **given)

    file.write_text(json.dumps({"retention_ms": 9_000_000}))
    settings = Reloaded([str(file)], load)
    small = GroupConfig(segment_bytes=4 << 20, index_file_bytes=32 << 10, max_body_bytes=1 << 20)
    node = NodeServer(small, settings.value, addresses=dict, settings=settings)
    await node.start()
    try:
        await until(lambda: node.parts.proposals._leads_in() is not None)
        client = await BareClient.dial(node.port)
        assert (await client.ask(HelloRequest())).code is Code.SUCCESS
        assert (await change(client, retention_ms="5000000")).code is Code.SUCCESS
        file.write_text(json.dumps({"retention_ms": 7_000_000, "retention_bytes": 8 << 30}))
        node.reload()
        now = node.parts.context.node
        assert (now.retention_ms, now.retention_bytes) == (5_000_000, 8 << 30)
        assert node.store._settings.retention_ms == 5_000_000  # type: ignore[attr-defined]
        assert "retention_ms is '5000000', not '7000000'" in caplog.text
        await change(client, "retention_ms")
        assert node.parts.context.node.retention_ms == 7_000_000
        client.close()
    finally:
        await node.stop()


@pytest.mark.group(**UNLIMITED)
async def test_a_topic_keeps_its_records_for_less_than_the_group(group: Any) -> None:
    """At each node; what a consumer group with a hold still wants stays, and other topics."""
    topic = await write(group, 0, 20)
    client = await group.client()
    other = await client.create("other")
    await client.write(other, [b"x" * 5000] * 5)
    await client.execute(CommitProgress(consumer_group="g", offsets={"t": {0: 12}}))
    await client.execute(HoldRetention(consumer_group="g", hold=True))
    await change(client, **{"t/retention_bytes": "1"})
    await checkpointed(group)

    def begins(name: str) -> set[int]:
        catalogs = [node.catalog for node in group.nodes.values()]
        return {one.begin_offset(one.topic(name).topic_id, 0) for one in catalogs}

    await group.until(lambda: begins("t") == {12})
    await client.execute(HoldRetention(consumer_group="g", hold=False))
    await checkpointed(group)
    await group.until(lambda: begins("t") == {20})
    assert begins("other") == {0}
    await client.write(topic, [b"new"])
    assert (await client.fetch(topic, 20))[0].end_offset == 21
    await group.restart()
    await group.agree()
    assert begins("t") == {20}
