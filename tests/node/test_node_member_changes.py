"""Members are added, promoted, demoted and removed while a group works."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from dledger.catalog.versions import SINCE
from dledger.errors import ConfigError
from dledger.node.node import NodeServer
from dledger.protocol.messages.catalog_commands import AlterSettings, ChangeMembers
from dledger.protocol.messages.client import TransferRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.member_requests import AlterMemberRequest, MemberAction
from dledger.protocol.messages.membership import MemberRole
from dledger.types import NodeId
from tests.node.growing import (
    ADD,
    DEMOTE,
    HOST,
    LABEL,
    PROMOTE,
    REMOVE,
    Newcomer,
    ask,
    done,
    grown,
    once,
)


@pytest.fixture(autouse=True)
def any_group_takes_them(takes_members: None) -> None:
    """Whatever its version."""


def listed(server: NodeServer) -> dict[str, str]:
    return {member.id: member.role.name for member in server.raft.members}


async def test_a_member_is_added_and_promoted_while_the_group_works(group: Any) -> None:
    fourth = await grown(group)
    await group.agree()
    assert listed(fourth) == dict.fromkeys(("n0", "n1", "n2", "n3"), "VOTER")
    leader = await group.leader()
    if leader is not fourth:
        client = await group.client(leader)
        assert (await client.ask(TransferRequest(to=NodeId("n3")))).code is Code.SUCCESS
    assert await (await group.client(await group.leader())).create("u") >= 0


async def test_the_list_survives_a_restart_of_all(group: Any) -> None:
    fourth = await grown(group)
    port = fourth.port
    await group.stop()
    await group.start()
    newcomer = Newcomer(group, "n3")
    newcomer.port = port
    await newcomer.start()
    await (await group.client()).create("u")
    await group.agree()
    assert {len(node.raft.voters) for node in group.nodes.values()} == {4}


async def test_what_is_so_already_is_a_success(group: Any) -> None:
    fourth = await grown(group)
    await group.agree()
    index = fourth.raft.membership.index
    await done(group, ADD, "n3", host=HOST, port=fourth.port)
    await done(group, PROMOTE, "n3")
    await done(group, PROMOTE, "n0")
    await done(group, REMOVE, "n9")
    await group.agree()
    assert fourth.raft.membership.index == index


async def test_what_is_so_already_is_none_for_a_leader_alone(group: Any) -> None:
    """A later leader may have changed the list: who is told that a node was removed may empty its
    directory."""
    await (await group.client()).create("t")
    leader = await group.leader()
    client = await group.client(leader)
    for name in list(group.nodes):
        if group.nodes[name] is not leader:
            await group.stop(name)
    answer = await client.ask(
        AlterMemberRequest(action=REMOVE, node_id=NodeId("n9"), timeout_ms=10_000)
    )
    assert answer.code is Code.NOT_LEADER


@pytest.mark.group(heartbeat_ms=100, election_ms=1000)
async def test_a_removed_node_hears_of_it_and_does_not_start_again(group: Any) -> None:
    fourth = await grown(group)
    await done(group, REMOVE, "n3")
    await fourth.removed.wait()
    await group.stop("n3")
    with pytest.raises(ConfigError, match="n3 was removed from the group"):
        await fourth.start()
    assert await (await group.client()).create("u") >= 0
    await group.agree()


async def test_the_leader_may_be_removed(group: Any) -> None:
    await grown(group)
    leader = await group.leader()
    name = leader.node.node_id
    await done(group, REMOVE, name)
    await leader.removed.wait()
    await group.stop(name)
    assert await (await group.client()).create("u") >= 0
    await group.agree()


@pytest.mark.parametrize("action", [REMOVE, DEMOTE])
async def test_a_leader_that_is_to_go_first_lets_another_voter_lead(
    group: Any, action: MemberAction
) -> None:
    """Out of the list it would not hear who leads, and could tell no client."""
    await grown(group)
    await group.agree()
    leader = await group.leader()
    name, index = leader.node.node_id, leader.raft.membership.index
    answer = await once(group, action, name)
    assert answer.code is Code.NOT_LEADER
    assert answer.leader_id not in {"", name}
    assert leader.raft.membership.index == index
    assert leader.raft.leader_id == answer.leader_id
    await done(group, action, name)
    left = listed(await group.leader())
    assert left.get(name, "gone") == ("gone" if action is REMOVE else "LEARNER")
    assert len(leader.raft.voters) == 3


async def test_a_leader_that_nobody_follows_up_makes_the_change_itself(group: Any) -> None:
    """Those that have lost their catalogs lead in no case."""
    await grown(group)
    await group.agree()
    leader = await group.leader()
    for server in group.nodes.values():
        if server is not leader:
            server.raft.follow_only()
    answer = await once(group, REMOVE, leader.node.node_id)
    assert answer.code is Code.SUCCESS


async def test_a_leader_that_stops_while_it_hands_over_says_so(group: Any) -> None:
    leader = await group.leader()
    for server in group.nodes.values():
        if server is not leader:
            server.raft.follow_only()
    asking = asyncio.ensure_future(once(group, REMOVE, leader.node.node_id))
    await group.until(lambda: leader.raft.leader.transfers.ongoing is not None)
    leader.parts.member_changes.stop()
    assert (await asking).code is Code.TERM_CHANGED


async def test_founders_are_labelled_with_their_racks(group: Any) -> None:
    for name, rack in (("n0", "east"), ("n1", "west"), ("n0", "north")):
        await done(group, LABEL, name, rack=rack)
    await group.agree()
    for server in group.nodes.values():
        assert server.parts.context.members.racks() == {"n0": "north", "n1": "west"}
        assert listed(server) == dict.fromkeys(("n0", "n1", "n2"), "VOTER")
    assert await (await group.client()).create("u") >= 0


async def test_a_demoted_voter_counts_no_more(group: Any) -> None:
    follower = await group.follower()
    name = follower.node.node_id
    await done(group, DEMOTE, name)
    leader = await group.leader()
    assert listed(leader)[name] == "LEARNER"
    assert len(leader.raft.voters) == 2


@pytest.mark.parametrize(
    ("action", "node", "fields", "said"),
    [
        (PROMOTE, "n9", {}, "'n9' is not a member"),
        (DEMOTE, "n9", {}, "'n9' is not a member"),
        (ADD, "n1", {"host": "h", "port": 9}, "n1 is a member already, at 127.0.0.1:"),
    ],
)
async def test_what_contradicts_the_list_is_refused(
    group: Any, action: MemberAction, node: str, fields: dict[str, Any], said: str
) -> None:
    answer = await ask(group, action, node, **fields)
    assert answer.code is Code.UNEXPECTED_ARGUMENT
    assert said in answer.message
    assert (await group.leader()).raft.members == ()


async def test_what_would_leave_no_live_majority_is_refused(group: Any) -> None:
    leader = await group.leader()
    follower = await group.follower()
    third = next(n for n in group.nodes if group.nodes[n] not in (leader, follower))
    await group.kill(third)
    name = follower.node.node_id
    answer = await ask(group, REMOVE, name)
    assert answer.code is Code.UNEXPECTED_ARGUMENT
    assert "fewer than a majority" in answer.message


@pytest.mark.group(1)
async def test_the_last_voter_is_not_removed(group: Any) -> None:
    answer = await ask(group, REMOVE, "n0")
    assert answer.code is Code.UNEXPECTED_ARGUMENT
    assert "no voter would be left" in answer.message


async def test_an_observer_gets_everything_and_lacks_no_admission(group: Any) -> None:
    newcomer = Newcomer(group, "n3")
    await done(group, ADD, "n3", **newcomer.place, role=MemberRole.OBSERVER, rack="west")
    server = await newcomer.start()
    await (await group.client(await group.leader())).create("t")
    await group.agree()
    assert server.parts.context.is_admitted
    assert len(server.raft.voters) == 3
    assert server.raft.members[-1].rack == "west"
    answer = await ask(group, PROMOTE, "n3")
    assert "only a learner becomes a voter" in answer.message


@pytest.mark.group(1)
async def test_a_group_of_an_older_version_keeps_its_members(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older node would not know the entry."""
    monkeypatch.setitem(SINCE, ChangeMembers, 1)
    leader = await group.leader()
    end = leader.raft.end_index
    answer = await ask(group, ADD, "n1", host=HOST, port=7001)
    assert answer.code is Code.UNSUPPORTED
    assert "run 'dledger upgrade'" in answer.message
    assert leader.raft.end_index == end
    assert listed(leader) == {}


@pytest.mark.group(heartbeat_ms=100, election_ms=1000)
async def test_a_removed_member_has_no_part_in_the_groups_version(group: Any) -> None:
    """It may stay at its release for ever."""
    fourth = await grown(group)
    await done(group, REMOVE, "n3")
    await fourth.removed.wait()
    for name in ("n0", "n1", "n2"):
        parts = group.nodes[name].parts
        await group.until(lambda parts=parts: "n3" not in parts.peers.links)
        assert "n3" not in parts.gate.supporting


async def test_a_list_that_the_group_once_had_is_a_warning(
    group: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await grown(group)
    await group.agree()
    await group.restart("n0")
    said = "n0 was told that the members are n0, n1, n2, which the group once had"
    assert said in caplog.text
    assert "the list in its log counts: n0, n1, n2, n3" in caplog.text
    caplog.clear()
    group.config = replace(group.config, members=tuple(map(NodeId, ("n3", "n2", "n1", "n0"))))
    await group.restart("n1")
    assert "once had" not in caplog.text
    await group.agree()


async def test_a_list_that_the_group_never_had_is_refused(group: Any) -> None:
    newcomer = Newcomer(group, "n3")
    await grown(group, newcomer)
    await group.agree()
    await group.stop("n0", "n3")
    other = tuple(map(NodeId, ("n0", "n1", "n3")))
    group.config = replace(group.config, members=other)
    for start in (group.start("n0"), newcomer.start(other, joins=False)):
        with pytest.raises(ConfigError, match="n0, n1, n2, n3, and were n0, n1, n2 at its found"):
            await start
    await newcomer.start(other)  # with joins the list only says whom to ask
    await group.stop("n3")
    await newcomer.start(tuple(map(NodeId, ("n0", "n1", "n2", "n3"))), joins=False)


@pytest.mark.group(heartbeat_ms=100, election_ms=500)
async def test_a_member_of_which_no_file_tells_may_be_preferred(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SINCE, AlterSettings, 0)
    await grown(group)
    client = await group.client()
    answer = await client.execute(AlterSettings(values={"preferred_leaders": "n3"}))
    assert answer.code is Code.SUCCESS, answer
    await group.until(lambda: group.follow("n3"))
