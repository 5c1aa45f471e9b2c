"""The simulator's changes of members, versions and settings: most seeds have them, nodes leave and
come back, and what would be wrong is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from dledger.client import AsyncClient
from dledger.protocol.messages.membership import MemberRole
from dledger.types import NodeId, Role
from tests.verification.watching import breaks, server_of
from verification.invariants.watch import Watch
from verification.sim.changing import Changing
from verification.sim.damage import Damage
from verification.sim.loop import SimLoop
from verification.sim.moving import told
from verification.sim.reckless import drawn
from verification.sim.rng import Rng
from verification.sim.scene import Scene
from verification.sim.settings import CHANGES, VERSION_STEP, draw_plan
from verification.sim.stepping import check_settings


class Group:
    """Three founding members of a group whose list may change, and a client."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.client: AsyncClient
        self.loop: SimLoop
        self.client, self.loop = scene.client()
        scene.leader()
        scene.run(self.loop, self.client.upgrade_group)

    @property
    def watch(self) -> Watch:
        assert self.scene.world.watch is not None
        return self.scene.world.watch

    def say(self, request: str, *args: str) -> None:
        self.scene.run(self.loop, lambda: getattr(self.client, request)(*args))

    def all_vote(self) -> bool:
        servers = self.scene.group.servers()
        return len(servers) == 3 and all(len(one.raft.voters) == 3 for one in servers)


@pytest.fixture
def group() -> Iterator[Group]:
    with Scene(group={"election_ms": 1000}) as scene:
        yield Group(scene)


def test_two_thirds_of_all_seeds_change_members() -> None:
    plans = [draw_plan(Rng(seed).fork("plan"), 1000) for seed in range(1, 1001)]
    assert 630 <= sum(plan.has(CHANGES) for plan in plans) <= 710
    assert {plan.spares for plan in plans if plan.has(CHANGES)} == {0, 1, 2}
    assert {plan.spares for plan in plans if not plan.has(CHANGES)} == {0}


def test_a_removed_node_ends_is_refused_and_joins_when_emptied(group: Group) -> None:
    """Long after its links are closed: those that it gets then are watched as well."""
    node = group.scene.node("n2")
    group.say("remove_member", "n2")
    group.scene.until(lambda: node.disk.is_out, 10_000)
    group.scene.wait(10_000)
    assert not node.is_up
    node.disk.put_back({})
    node.joins = True
    group.watch.lost_disk(node.name)
    group.scene.group.restart_soon(node)
    group.say("add_member", "n2", "n2:7000")
    group.say("promote_member", "n2")
    group.scene.until(group.all_vote, 5000)


def test_a_founder_that_joined_again_starts_again_as_it_was_told(group: Group) -> None:
    """By the same command line, with ``--join`` and a list that the group never had."""
    node = group.scene.node("n2")
    group.say("remove_member", "n2")
    group.scene.until(lambda: node.disk.is_out, 10_000)
    told = node.peers = NodeId("n0"), NodeId("n2")
    node.disk.put_back({})
    node.joins = True
    group.watch.lost_disk(node.name)
    group.scene.group.restart_soon(node)
    group.say("add_member", "n2", "n2:7000")
    group.say("promote_member", "n2")
    group.scene.until(group.all_vote, 5000)
    node.kill(power=False)
    group.scene.until(group.all_vote, 10_000)
    assert (node.peers, node.server is not None) == (told, True)


def test_a_node_that_was_away_when_it_left_comes_back(group: Group) -> None:
    """With its disk, which has the list of before."""
    node = group.scene.node("n2")
    node.disk.is_out = True
    node.kill(power=False)
    group.scene.wait(2000)
    group.say("remove_member", "n2")
    group.scene.wait(10_000)
    group.say("add_member", "n2", "n2:7000")
    node.disk.is_out = False
    group.scene.group.restart_soon(node)
    group.say("promote_member", "n2")
    group.scene.until(group.all_vote, 5000)


@pytest.mark.parametrize(("faults", "version"), [((CHANGES,), 1), ((CHANGES, VERSION_STEP), 0)])
def test_group_that_got_no_version_is_upgraded_for_its_changes(
    faults: tuple[str, ...], version: int
) -> None:
    """Not where another operator is to raise it later."""
    with Scene(group={"election_ms": 1000, "founding_version": 0}) as scene:
        scene.leader()
        scene.world.plan.faults = faults
        changing = Changing(scene.world, scene.group, Damage(scene.world, scene.group))
        changing.start()
        scene.wait(20_000)
        changing.stop()
        scene.until(lambda: changing.is_over, 30_000)
        servers = scene.group.servers()
        assert {one.catalog.version.active for one in servers} == {version}


def test_all_nodes_anew_are_told_lists_that_they_may_start_with(group: Group) -> None:
    """A list that a node has may have removed it: no process starts with a list without itself."""
    node = group.scene.node("n2")
    assert told(node, ["n3", "n2"]) == ("n2", "n3")
    assert told(node, ["n3"]) == told(node, []) == ("n0", "n1", "n2")
    node.joins = True
    assert told(node, ["n3"]) == ("n2", "n3")
    assert told(node, []) == ("n0", "n1", "n2")


def test_i17_leader_by_votes_of_others_than_its_voters_is_found(group: Group) -> None:
    leader = group.scene.leader()
    view, members = group.watch.views[leader.name], group.watch.members
    members.elected(view, group.watch.memories)
    for memory in group.watch.memories.values():
        memory.votes.clear()
    text = breaks("I17", members.elected, view, group.watch.memories)
    assert f"leads term {view.machine.term} by the votes of ['{leader.name}']" in text


def test_i31_lists_versions_and_settings_are_those_of_commands(group: Group) -> None:
    group.say("remove_member", "n2")
    group.scene.wait(1000)
    view = group.watch.views[group.scene.leader().name]
    group.watch.commands.check(view)
    catalog = view.catalog
    catalog.version.active = 0
    assert "the commands make (1, " in breaks("I31", group.watch.commands.check, view)
    catalog.version.active = 1
    catalog.settings.values["max_topics"] = "7"
    breaks("I31", group.watch.commands.check, view)
    catalog.settings.values.clear()
    catalog.group_list.members = catalog.group_list.members[:1]
    breaks("I31", group.watch.commands.check, view)


def test_s1_node_with_other_settings_than_its_catalog_is_found(group: Group) -> None:
    scene = group.scene
    scene.run(group.loop, lambda: group.client.set_settings({"max_transfer_lag": 7}))
    scene.wait(1000)
    check_settings(scene.group.servers())
    machine = server_of(scene.node("n1")).raft._machine
    machine.config = replace(machine.config, max_transfer_lag=8)
    assert "'max_transfer_lag': '8'" in breaks("S1", check_settings, scene.group.servers())


def test_lists_by_force_change_two_members_at_most_and_add_none(group: Group) -> None:
    group.say("demote_member", "n2")
    raft = server_of(group.scene.leader()).raft
    assert raft.role is Role.LEADER
    before = {one.id: one for one in raft.members}
    assert before["n2"].role is MemberRole.LEARNER
    changed = set()
    for number in range(200):
        after = {one.id: one for one in drawn(Rng(number), raft, ["n0", "n1", "n2"])}
        assert after.keys() <= before.keys()
        changed.add(sum(after.get(node) != one for node, one in before.items()))
    assert changed == {0, 1, 2}
