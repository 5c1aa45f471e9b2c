"""Who is a member, on real files and sockets: wrong lists, groups of one name, stores from before
there were ids."""

from __future__ import annotations

import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dledger.config import GroupConfig, NodeConfig
from dledger.errors import ConfigError
from dledger.node.peers.handshake import Gate
from dledger.node.peers.members import GroupMembers
from dledger.protocol.messages.catalog_commands import Admit
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import MAGIC_NORMAL, Entry
from dledger.protocol.messages.entry_runs import stamp_all
from dledger.protocol.messages.hello import HelloRequest
from dledger.protocol.messages.membership import Change
from dledger.protocol.wire import encode_command
from dledger.records.body.header import BodyHeader, BodyKind, encode_header
from dledger.storage.disk.disk import RealDisk
from dledger.storage.opening import open_store
from dledger.types import NO_INDEX, NodeId
from tests.node.bodies import body, entries_of
from tests.node.conftest import played

GOLDEN = Path(__file__).parents[1] / "golden" / "stores_before_group_ids.tar.gz"
"""Three nodes, and one alone, of commit 9bd8acc; topic t has ``record 0`` to ``record 19``."""
OLD_SIZES = {"segment_bytes": 1 << 16, "index_file_bytes": 1 << 13, "max_body_bytes": 1 << 14}


def ids(group: Any) -> set[str]:
    return {node.store.membership.group_id for node in group.nodes.values()}


def names(count: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(f"n{number}") for number in range(count))


@pytest.mark.group(5)
async def test_nodes_told_a_list_that_differs_from_their_files_do_not_start(
    group: Any,
) -> None:
    """Two of five with a list of three elected each other and acknowledged what the other three
    replaced."""
    client, topic = await group.topic()
    (data,) = await client.write(topic)
    await group.agree()
    await group.stop()
    whole = group.config
    for count in (3, 1):
        group.config = replace(whole, members=names(count))
        with pytest.raises(ConfigError, match="n0, n1, n2, n3, n4, but it was told") as caught:
            await group.start("n0")
        assert "docs/operations.md" in str(caught.value)
    group.config = whole
    await group.start()
    client = await group.client()
    assert (await client.fetch(topic, 0))[1] == [data]


@pytest.mark.group(start=False)
async def test_first_start_with_wrong_list_leaves_nothing_against_right_one(
    group: Any,
) -> None:
    right = group.config
    group.config = replace(right, members=names(2))
    mistaken = await group.start("n1")
    group.config = right
    await group.start("n0", "n2")
    await group.until(lambda: "n1" in group.nodes[NodeId("n0")].parts.gate.refused)
    assert not mistaken.store.membership.members
    await group.restart("n1", kill=True)
    client, topic = await group.topic()
    await client.write(topic)
    await group.agree()
    assert len(ids(group)) == 1


async def test_a_list_that_grew_is_refused_too(group: Any) -> None:
    await group.agree()
    await group.stop()
    group.config = replace(group.config, members=names(5))
    with pytest.raises(ConfigError, match="members are n0, n1, n2, but it was told"):
        await group.start("n1")


async def test_peer_of_other_list_or_group_is_refused_by_name_and_in_status(
    group: Any,
) -> None:
    node = await group.leader()
    await group.agree()
    own = node.parts.gate.introduction()
    other = next(name for name in group.config.members if name != node.node.node_id)
    as_peer = HelloRequest(group="test", node_id=other, group_id=own.group_id, members=own.members)
    for request, words in (
        (replace(as_peer, members=("n0", "n1", "n2", "n3")), ["n0, n1, n2, n3", "n0, n1, n2"]),
        (replace(as_peer, group_id="feed"), ["feed", own.group_id]),
        (HelloRequest(group="test", group_id="feed"), ["feed", own.group_id]),
    ):
        refused = node.parts.gate.answer(request)
        assert refused.code in {Code.UNKNOWN_GROUP, Code.UNKNOWN_MEMBER}
        for word in words:
            assert word in refused.message
    status = await (await group.client(node)).status()
    assert status["group_id"] == own.group_id
    assert "feed" in status["refused_peers"][other]
    descended = HelloRequest(group="test", group_id="feed", ancestors=((own.group_id, 3),))
    assert node.parts.gate.answer(descended).code is Code.SUCCESS
    assert node.parts.gate.answer(as_peer).code is Code.SUCCESS
    assert other not in node.parts.gate.refused


async def test_a_leader_of_another_group_at_a_members_address_is_not_followed(
    group: Any, tmp_path: Path
) -> None:
    """Group A's n1 dies, and its address goes to n1 of a new group of the same name."""
    first = await group.client()
    topic = await first.create("a")
    await group.agree()
    if group.follow("n1"):
        await group.hand_over("n0")
    await group.kill("n1")
    async with played(tmp_path / "second", start=False) as second:
        second.addresses[NodeId("n1")] = group.addresses[NodeId("n1")]
        await second.start("n1")
        newcomer = second.nodes[NodeId("n1")]
        await group.until(lambda: newcomer.raft.strangers)
        assert newcomer.raft.leader_id is None
        await second.start("n0", "n2")
        leader = await second.leader()
        await second.agree()
        assert ids(second) != ids(group)
        assert len(ids(second)) == 1
        assert leader.raft.membership.of(NodeId("n1")) == newcomer.store.identity.incarnation
        client = await second.client(leader)
        await client.create("b")
        await (await group.client()).write(topic)


def unpacked(folder: Path, name: str, into: Path) -> None:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(folder / "golden", filter="data")
    for node in (folder / "golden" / name).iterdir():
        shutil.move(node, into / node.name)


@pytest.mark.group(start=False, **OLD_SIZES)
async def test_stores_from_before_ids_are_read_and_get_id_when_all_are_there(
    group: Any, tmp_path: Path
) -> None:
    unpacked(tmp_path, "three", group.folder)
    await group.start("n0", "n1")
    client = await group.client()
    assert (await client.fetch(1, 7))[1] == [body(1, b"record %d" % n) for n in range(7, 20)]
    assert (await client.append(body(1, b"on"))).base_offset == 20, "a majority goes on as it is"
    assert ids(group) == {""}
    await group.start("n2")
    await group.until(lambda: "" not in ids(group))
    assert len(ids(group)) == 1
    drawn = ids(group)
    assert (await (await group.client()).append(body(1))).base_offset == 21
    await group.agree()
    await group.restart()
    await group.agree()
    assert ids(group) == drawn


@pytest.mark.group(1, start=False, **OLD_SIZES)
async def test_a_lone_store_from_before_ids_gets_one_at_once(group: Any, tmp_path: Path) -> None:
    unpacked(tmp_path, "one", group.folder)
    await group.start()
    client = await group.client()
    assert len((await client.fetch(1, 0))[1]) == 20
    await group.until(lambda: "" not in ids(group))


@pytest.mark.group(start=False, **OLD_SIZES)
async def test_old_stores_are_refused_with_another_list_too(group: Any, tmp_path: Path) -> None:
    unpacked(tmp_path, "three", group.folder)
    group.config = replace(group.config, members=names(2))
    with pytest.raises(ConfigError, match="n0, n1, n2, but it was told that they are n0, n1"):
        await group.start("n0")


NEW_N0 = 4711
"""The incarnation that the `Admit` of `with_admission` is for."""


def with_admission(group: Any) -> Change:
    """The logs of the old n1 and n2 end with an uncommitted ``Admit`` of n0, and another entry, as
    the old release left them: it kept no record of what it had not applied."""
    entries: list[Entry] = []
    for name in ("n2", "n1"):
        store = open_store(group.config, group.make(name).node, RealDisk())
        members = {str(node): incarnation for node, incarnation in store.membership.bound} | {
            "n0": NEW_N0
        }
        admit = encode_header(BodyHeader(BodyKind.COMMAND)) + encode_command(
            Admit(node_id="n0", members=members, after=-1)
        )
        if not entries:
            entries = [*entries_of(store)]
            end, term = store.end, store.end.position.term
            entries += stamp_all(
                end, term, MAGIC_NORMAL, (admit, body(1, b"behind it")), group.config.segment_bytes
            )
        store.append(entries[store.end.position.index + 1 :])
        store.close()
        assert not store.membership.changes
    return Change(entries[-2].position, NO_INDEX, NodeId("n0"), NEW_N0)


@pytest.mark.group(start=False, **OLD_SIZES)
async def test_uncommitted_admission_of_old_release_is_in_force_after_upgrade(
    group: Any, tmp_path: Path
) -> None:
    """Without a record of it, the former n0 would count, and elect n2 beside a leader of n1 and the
    new n0."""
    unpacked(tmp_path, "three", group.folder)
    change = with_admission(group)
    for _ in range(2):
        node = await group.start("n2")
        assert node.raft.change == change
        assert node.store.membership.changes == (change,), "on the disk, before anybody is heard"
        await group.kill("n2")


@pytest.mark.group(start=False, **OLD_SIZES)
async def test_damaged_possible_admission_is_repaired_before_its_node_leads(
    group: Any, tmp_path: Path
) -> None:
    """The damaged entry may be an admission of an old release."""
    unpacked(tmp_path, "three", group.folder)
    change = with_admission(group)
    path = group.folder / "n2" / "data" / f"{0:020d}"
    data = path.read_bytes()
    path.write_bytes(data.replace(NEW_N0.to_bytes(2, "big"), b"!!"))
    assert path.read_bytes() != data
    node = await group.start("n2")
    assert node.parts.repairs.runs == ((change.index, change.index),), "so it asks for no votes"
    assert node.raft.change is None
    await group.start("n1")
    await group.until(lambda: not node.parts.repairs.runs)
    await group.until(lambda: node.raft.change == change or node.raft.membership.of("n0") == NEW_N0)


async def test_a_members_file_of_another_group_keeps_a_node_from_its_own(
    group: Any, tmp_path: Path
) -> None:
    """Somebody has copied it: nothing that the other members say is heard, and they say why."""
    await group.agree()
    own = ids(group)
    async with played(tmp_path / "other") as other:
        await other.agree()
        await other.stop()
    if group.follow("n2"):
        await group.hand_over("n0")
    await group.stop("n2")
    shutil.copy(tmp_path / "other" / "n2" / "members", group.folder / "n2" / "members")
    await group.start("n2")
    leader = await group.leader()
    await group.until(lambda: "n2" in leader.parts.gate.refused)
    assert "were founded apart" in leader.parts.gate.refused["n2"]
    assert not group.nodes[NodeId("n2")].raft.leader_id
    client = await group.client(leader)
    await client.create("t")
    assert ids(group) > own


def test_a_gate_of_a_group_that_is_not_founded_takes_members_of_any_id() -> None:
    group = GroupConfig(group="test", members=names(3))
    gate = Gate(
        group,
        NodeConfig(node_id=NodeId("n0"), directory=Path("/tmp/never")),
        members=GroupMembers(group, dict),
        disk=RealDisk(),
    )
    request = HelloRequest(group="test", node_id="n1", members=names(3), group_id="feed")
    assert gate.answer(request).code is Code.SUCCESS
