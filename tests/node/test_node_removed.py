"""A node that was removed from its group ends by itself whenever it comes back; it never counts."""

from __future__ import annotations

import shutil
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dledger.errors import NodeRemoved
from dledger.node.handlers.removed_node import RemovedNode
from dledger.node.node import NodeServer
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest
from dledger.protocol.messages.member_requests import MemberAction
from dledger.protocol.messages.membership import ids_of
from dledger.storage.disk.disk import RealDisk
from dledger.storage.meta.members import MemberFile
from dledger.types import Index, NodeId, Role
from tests.node.growing import Newcomer, done, grown

ADD, PROMOTE, DEMOTE, REMOVE, *_ = MemberAction


async def removed_while_down(group: Any, name: str) -> None:
    """The group has removed this node, which does not run and is not waited for any more."""
    if (await group.leader()).node.node_id == name:
        await group.hand_over(next(one for one in group.nodes if one != name))
    await group.kill(name)
    await done(group, REMOVE, name)
    await group.agree()
    # members that have started since keep no link to it, by which it would be told
    await group.restart(*group.nodes)


@pytest.fixture
def any_version(takes_members: None) -> None:
    """Any group takes changes of its members."""


async def test_one_removed_while_it_was_down_ends_when_it_is_back(
    group: Any, any_version: None
) -> None:
    await (await group.client()).create("t")
    await removed_while_down(group, "n2")
    leader = await group.leader()
    term = leader.raft.term
    back = await group.start("n2")
    await back.removed.wait()
    assert back.raft.is_removed
    await group.stop("n2")
    assert "n2" not in ids_of(back.store.membership.listed), "its next start knows"
    with pytest.raises(NodeRemoved, match=r"n2 was removed .* members add n2 .* --join"):
        await group.make("n2").start()
    assert (leader.raft.role, leader.raft.term) == (Role.LEADER, term)
    assert await (await group.client()).create("u") >= 0


async def test_record_of_a_release_that_kept_only_the_list_is_told_again(
    group: Any, any_version: None
) -> None:
    """Whether that list was in force, or was replayed from an old log, such a record has not."""
    await (await group.client()).create("t")
    await removed_while_down(group, "n2")
    back = await group.start("n2")
    await back.removed.wait()
    await group.stop("n2")
    file = MemberFile(RealDisk(), group.folder / "n2", incarnation=0, notes=[], draw=int)
    assert file.membership.removed
    file.save(replace(file.membership, removed=False))
    again = await group.start("n2")
    await again.removed.wait()
    assert again.store.membership.removed


@pytest.mark.group(3, start=False)
async def test_a_member_that_is_behind_ends_no_new_machine(group: Any) -> None:
    """Its disk is empty, and it does not join: it was told one of the group's lists."""
    node = await group.start("n2")
    now_ms, connected = 0, {"n0": False, "n1": True}
    part = RemovedNode(node.parts.context)
    part._now_ms = lambda: now_ms  # type: ignore[method-assign]
    part._peers = SimpleNamespace(connected=lambda: connected)  # type: ignore[assignment]

    def refused_at(at_ms: int) -> bool:
        nonlocal now_ms
        now_ms = at_ms
        part._unlisted(NodeId("n0"), Index(7), ())
        return node.removed.is_set()

    election_ms = group.config.election_ms
    assert not refused_at(0)
    assert not refused_at(2 * election_ms), "n1 takes it"
    connected["n1"] = False
    assert not refused_at(3 * election_ms)
    assert not refused_at(4 * election_ms - 1)
    assert refused_at(4 * election_ms)
    assert not node.raft.is_removed, "nothing is kept"


async def test_a_founder_without_its_disk_is_told_each_time(group: Any, any_version: None) -> None:
    """It knows no group by which it could check a list, and keeps none."""
    await (await group.client()).create("t")
    await removed_while_down(group, "n2")
    shutil.rmtree(group.folder / "n2")
    for _ in range(2):
        back = await group.start("n2")
        await back.removed.wait()
        assert back.raft.role is Role.CANDIDATE
        assert not back.store.membership.founded
        await group.stop("n2")


async def test_one_that_joins_with_an_empty_disk_waits_to_be_added(
    group: Any, any_version: None
) -> None:
    newcomer = Newcomer(group, "n3")
    fourth = await grown(group, newcomer)
    await done(group, REMOVE, "n3")
    await fourth.removed.wait()
    await group.stop("n3")
    shutil.rmtree(group.folder / "n3")
    await group.restart(*group.nodes)
    back = await newcomer.start()
    gates = [node.parts.gate for name, node in group.nodes.items() if name != "n3"]
    await group.until(lambda: all("n3" in gate.refused for gate in gates))
    back.parts.events.unlisted(NodeId("n0"), Index(7), ())
    assert not back.removed.is_set()
    await done(group, ADD, "n3", **newcomer.place)
    await done(group, PROMOTE, "n3")
    await group.agree()
    assert not back.removed.is_set()


async def test_the_old_disk_of_one_that_was_added_again_is_not_counted(
    group: Any, any_version: None
) -> None:
    newcomer = Newcomer(group, "n3")
    await grown(group, newcomer)
    await group.agree()
    await group.stop("n3")
    former = group.folder / "former"
    shutil.copytree(group.folder / "n3", former)
    await done(group, REMOVE, "n3")
    shutil.rmtree(group.folder / "n3")
    await done(group, ADD, "n3", **newcomer.place)
    await newcomer.start()
    await done(group, PROMOTE, "n3")
    await group.stop("n3")
    shutil.rmtree(group.folder / "n3")
    former.rename(group.folder / "n3")
    old = await newcomer.start()
    leader = await group.leader(but="n3")
    await group.until(lambda: "n3" in leader.raft.heard)
    await group.until(lambda: leader.raft.heard["n3"] != leader.raft.membership.of("n3"))
    await group.until(lambda: not old.raft.is_admitted)
    assert leader.parts.context.status.values()["admission"]["not_admitted"] == ["n3"]


def hello_of(node: NodeServer, name: str, **fields: Any) -> HelloRequest:
    known = node.raft.membership
    return HelloRequest(**{"group": "test", "node_id": name, "group_id": known.group_id, **fields})


async def test_only_nodes_that_may_have_been_members_are_told(
    group: Any, any_version: None
) -> None:
    await (await group.client()).create("t")
    await removed_while_down(group, "n2")
    node = await group.leader()
    answer = node.parts.gate.answer
    founders = tuple(group.config.members)
    told = answer(hello_of(node, "n2"))
    assert (told.code, told.removed_by) == (Code.UNKNOWN_MEMBER, node.raft.membership.index)
    assert ids_of(told.listed) == ("n0", "n1")
    lost = answer(hello_of(node, "n2", group_id="", members=founders))
    assert (lost.removed_by, lost.listed) == (told.removed_by, ())
    for stranger in (
        hello_of(node, "n2", group_id="another"),
        hello_of(node, "n2", group_id="", members=("n2", "n7")),
        hello_of(node, "n2", group_id=""),
        hello_of(node, "n0" if node.node.node_id == "n1" else "n1"),
        HelloRequest(),
    ):
        assert answer(stranger).removed_by == -1


async def test_a_list_from_before_a_node_was_added_ends_it_not(
    group: Any, any_version: None
) -> None:
    newcomer = Newcomer(group, "n3")
    fourth = await grown(group, newcomer)
    await group.agree()
    known = fourth.raft.membership
    others = tuple(member for member in known.listed if member.id != "n3")
    await group.stop("n0", "n1", "n2")
    await group.until(lambda: fourth.raft.role is Role.CANDIDATE)
    for name in ("n0", "n1", "n2"):
        fourth.parts.events.unlisted(name, known.index, others)
    assert not fourth.raft.is_removed
    fourth.parts.events.unlisted("n0", known.index + 1, others)
    assert not fourth.raft.is_removed, "one alone may be behind itself"
    fourth.parts.events.unlisted("n1", known.index + 1, others)
    assert fourth.raft.is_removed


@pytest.mark.group(3, start=False)
async def test_a_group_that_never_changed_its_list_removes_nobody(group: Any) -> None:
    right = group.config
    await group.start()
    group.config = replace(right, members=(*right.members, NodeId("n9")))
    node = await group.leader()
    answer = node.parts.gate.answer(hello_of(node, "n9"))
    assert (answer.code, answer.removed_by) == (Code.UNKNOWN_MEMBER, -1)
