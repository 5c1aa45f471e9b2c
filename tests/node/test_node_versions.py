"""The group version: what a node announces, takes, writes and opens. ``tests/compatibility`` has it
with nodes of the release before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dledger.catalog import state_machine, versions
from dledger.catalog.versions import SINCE
from dledger.errors import DLedgerError, UnsupportedVersion
from dledger.node.node import NodeServer
from dledger.node.peers import handshake
from dledger.protocol.messages.catalog_commands import CreateTopic, UpgradeGroup
from dledger.protocol.messages.client import ExecuteRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import MAGIC_NOOP
from dledger.protocol.messages.group_version import NO_VERSIONS, SUPPORTED
from dledger.protocol.wire import decode_command
from dledger.records.body.header import BODY_HEADER_SIZE
from dledger.release import FIRST_RELEASES, GROUP_VERSION
from dledger.storage.recovery import open_files
from dledger.types import NodeId
from tests.node.conftest import Group, Play, until

UPGRADE = UpgradeGroup(version=GROUP_VERSION, release=FIRST_RELEASES[GROUP_VERSION])
INSTALL = f"install dledger {FIRST_RELEASES[GROUP_VERSION]} or newer"


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nodes that are started now announce no version, until this is undone."""
    monkeypatch.setattr(handshake, "SUPPORTED", NO_VERSIONS)
    return monkeypatch


def active(group: Group) -> set[int]:
    return {node.catalog.version.active for node in group.nodes.values()}


async def greeted(group: Group, leader: NodeServer) -> None:
    """Wait until the leader has heard the last hello of each member."""
    gate = leader.parts.gate
    await until(lambda: len(gate.supporting) == len(group.nodes) - 1)


@pytest.mark.group(founding_version=GROUP_VERSION)
async def test_new_group_has_the_newest_version(group: Group) -> None:
    leader = await group.leader()
    await until(lambda: active(group) == {GROUP_VERSION})
    first, second = leader.store.read(leader.store.begin_index, 1 << 20)[:2]
    assert first.magic == MAGIC_NOOP
    assert decode_command(second.body[BODY_HEADER_SIZE:]) == UPGRADE
    await group.restart()
    assert active(group) == {GROUP_VERSION}


@pytest.mark.group(1, founding_version=GROUP_VERSION)
async def test_group_of_one_has_it_too(group: Group) -> None:
    await until(lambda: active(group) == {GROUP_VERSION})


@pytest.mark.group(1, founding_version=0)
async def test_group_that_is_to_begin_older_does(group: Group) -> None:
    """And it takes no other release into its files than the one that brings the version."""
    client, _ = await group.topic()
    assert active(group) == {0}
    refused = await client.execute(replace(UPGRADE, release="9" * 5000))
    assert (refused.code, active(group)) == (Code.UNEXPECTED_ARGUMENT, {0})
    assert (await client.execute(UPGRADE)).code is Code.SUCCESS


@pytest.mark.group(1, commit_log="rocketmq", founding_version=GROUP_VERSION)
async def test_broker_log_has_nothing_but_what_it_was_given(group: Group) -> None:
    await (await group.client()).status()
    assert active(group) == {0}


async def test_older_group_stays_so_until_it_is_upgraded(
    play: Play, older: pytest.MonkeyPatch
) -> None:
    """Its nodes are replaced one by one, it goes on as it was, and its files are the older ones."""
    async with play(founding_version=GROUP_VERSION) as group:
        client, topic_id = await group.topic()
        await client.write(topic_id)
        older.undo()
        for name in group.config.members:
            await group.restart(name)
        leader = await group.leader()
        await greeted(group, leader)
        client = await group.client()
        await client.write(topic_id)  # behind whatever the leader itself has proposed
        assert leader.catalog.version.active == 0
        assert (await client.execute(UPGRADE)).result == {"version": GROUP_VERSION}
        await until(lambda: active(group) == {GROUP_VERSION})
        assert (await client.execute(UPGRADE)).result == {"version": GROUP_VERSION}
        await group.agree()
        await group.restart()
        assert active(group) == {GROUP_VERSION}


async def test_command_waits_for_its_version(play: Play, older: pytest.MonkeyPatch) -> None:
    async with play(founding_version=GROUP_VERSION) as group:
        client = await group.client()
        older.setitem(SINCE, CreateTopic, 1)
        command = CreateTopic(name="t", log_id="l")
        refused = await client.execute(command)
        assert refused.code is Code.UNSUPPORTED
        assert refused.message == "CreateTopic needs group version 1; run 'dledger upgrade'"
        older.setattr(handshake, "SUPPORTED", SUPPORTED)
        for name in group.config.members:
            await group.restart(name)
        await greeted(group, await group.leader())
        client = await group.client()
        assert (await client.execute(UPGRADE)).code is Code.SUCCESS
        assert (await client.execute(command)).code is Code.SUCCESS


async def test_leader_names_members_that_keep_it_from_upgrading(
    play: Play, older: pytest.MonkeyPatch
) -> None:
    """One that is older, and one that was not seen; one that was seen and is down is counted."""
    async with play(start=False, founding_version=GROUP_VERSION) as group:
        await group.start("n1", "n2")
        older.setattr(handshake, "SUPPORTED", SUPPORTED)
        await group.start("n0")
        leader = await group.hand_over("n0")
        await greeted(group, leader)
        client = await group.client(leader)
        refused = await client.execute(UPGRADE)
        assert refused.code is Code.ILLEGAL_MEMBER_STATE
        assert refused.message.count(INSTALL) == 2
        await group.restart("n1")
        await until(lambda: leader.parts.gate.supporting["n1"].versions == SUPPORTED)
        refused = await client.execute(UPGRADE)
        assert ("n1 runs" in refused.message, "n2 runs" in refused.message) == (False, True)
        leader.parts.gate.supporting.pop(NodeId("n2"))
        refused = await client.execute(UPGRADE)
        assert refused.message.startswith("n2 has not been here since this node started")
        assert leader.parts.versions.status()["obstacle"] == refused.message
        assert active(group) == {0}
        await group.restart("n2")
        await greeted(group, leader)
        await group.stop("n2")
        assert (await client.execute(UPGRADE)).code is Code.SUCCESS


@pytest.mark.parametrize("version", [0, -1, GROUP_VERSION + 1])
@pytest.mark.group(1, founding_version=GROUP_VERSION)
async def test_version_that_is_none_is_refused(group: Group, version: int) -> None:
    await until(lambda: active(group) == {GROUP_VERSION})
    refused = await (await group.client()).execute(UpgradeGroup(version=version, release="9"))
    assert refused.code is Code.UNEXPECTED_ARGUMENT
    assert f"there is no group version {version}" in refused.message


@pytest.mark.group(founding_version=GROUP_VERSION)
async def test_older_member_is_not_taken_once_the_version_is_active(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a node talk to it: both sides of a connection end it."""
    await until(lambda: active(group) == {GROUP_VERSION})
    leader = await group.hand_over("n0")
    older_hello = replace(
        leader.parts.gate.introduction(), node_id="n2", versions=NO_VERSIONS, group_version=0
    )
    answer = leader.parts.gate.answer(replace(older_hello, release="0.1.9"))
    assert (answer.code, INSTALL in answer.message) == (Code.UNSUPPORTED, True)
    assert answer.message.startswith("n2 runs dledger 0.1.9, which supports group versions up to 0")
    assert leader.parts.gate.refused["n2"] == answer.message
    greeting = leader.parts.gate.to_peer("n2")
    welcome = group.nodes["n2"].parts.gate.answer(greeting.hello)
    with pytest.raises(UnsupportedVersion, match=INSTALL):
        greeting.answered(replace(welcome, versions=NO_VERSIONS))
    newer = replace(greeting.hello, node_id="n1", group_version=GROUP_VERSION + 1)
    answer = leader.parts.gate.answer(replace(newer, versions=(0, GROUP_VERSION + 1)))
    assert answer.code is Code.UNSUPPORTED
    assert answer.message.startswith("n0 runs dledger")


async def test_connections_of_older_members_end_when_the_version_is_raised(
    play: Play, older: pytest.MonkeyPatch
) -> None:
    """A member may have become older between the leader's look and the entry."""
    async with play(founding_version=GROUP_VERSION) as group:
        leader = await group.hand_over("n0")
        await greeted(group, leader)
        for node in group.nodes.values():
            node.parts.gate.versions = SUPPORTED
            node.parts.gate._introduction = None
            for member, hello in node.parts.gate.supporting.items():
                if member != "n2":
                    node.parts.gate.supporting[member] = replace(hello, versions=SUPPORTED)
        older.setattr("dledger.node.peers.links.Peers.not_supporting", lambda *_: "")
        assert (await (await group.client(leader)).execute(UPGRADE)).code is Code.SUCCESS
        sessions = leader.parts.router.port_sessions
        await until(lambda: not sessions._peer_connections["n2"])


@pytest.mark.group(1, founding_version=GROUP_VERSION)
async def test_files_of_a_newer_group_are_not_opened(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those that say so, nor a log with the entry in it, which is not applied."""
    await until(lambda: active(group) == {GROUP_VERSION})
    newer = UpgradeGroup(version=GROUP_VERSION + 1, release="9.8.7")
    with monkeypatch.context() as patched:
        for module in (state_machine, versions, open_files):
            patched.setattr(module, "check_supported", lambda *_: None)
        patched.setattr(
            "dledger.node.proposals.command_rules.refused_by_version", lambda *_, **__: None
        )
        await (await group.client()).execute(newer)
        await until(lambda: active(group) == {GROUP_VERSION + 1})
        await group.stop("n0")
    state = group.folder / "n0" / "state"
    before = state.read_bytes()
    with pytest.raises(UnsupportedVersion, match=r"install dledger 9\.8\.7 or newer"):
        await group.start("n0")
    assert state.read_bytes() == before


@pytest.mark.group(1, founding_version=GROUP_VERSION)
async def test_node_stops_before_an_entry_of_a_newer_group(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until(lambda: active(group) == {GROUP_VERSION})
    (node,) = group.nodes.values()
    applied = node.catalog.applied_index
    monkeypatch.setattr(
        "dledger.node.proposals.command_rules.refused_by_version", lambda *_, **__: None
    )
    asked = (await group.client()).start(
        ExecuteRequest(
            command=UpgradeGroup(version=GROUP_VERSION + 1, release="9.8.7"), timeout_ms=10_000
        )
    )
    with pytest.raises(DLedgerError, match=r"install dledger 9\.8\.7 or newer"):
        await node.wait_failed()
    asked.cancel()
    assert node.catalog.version.active == GROUP_VERSION
    assert node.catalog.applied_index == applied
