"""A member that lost its disk, or has an older copy of it, on real files and sockets: noticed,
filled, let back in."""

from __future__ import annotations

import logging
import shutil
from typing import Any

import pytest

from dledger.node.handlers.replaced_disks import change_of
from dledger.protocol.messages.catalog_commands import Admit, DeleteTopic
from dledger.protocol.messages.client import AdmitRequest, ExecuteRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import MAGIC_NORMAL, LogEnd
from dledger.protocol.messages.entry_runs import stamp_all
from dledger.protocol.messages.membership import Change
from dledger.protocol.wire import encode_command
from dledger.records.body.header import BodyHeader, BodyKind, encode_header
from dledger.types import Index, NodeId, Position, Role, Term
from tests.node.bodies import body
from tests.node.elections import ONE_LEADER, QUICK


async def fill(group: Any) -> int:
    client, topic = await group.topic()
    await client.write(topic, (b"%d" % number for number in range(10)))
    await group.agree()
    return int(topic)


def admission(node: Any) -> dict[str, Any]:
    found: dict[str, Any] = node.parts.admissions.status()
    return found


async def two_followers(group: Any) -> tuple[str, str]:
    leader = await group.leader()
    one, two = [name for name in group.config.members if name != leader.node.node_id]
    return one, two


async def with_an_emptied_member(group: Any) -> tuple[int, str, str]:
    """The topic of `fill`, a follower whose disk was replaced after that, and the other one."""
    topic = await fill(group)
    wiped, other = await two_followers(group)
    await group.replace_disk(wiped)
    await group.agree()
    return topic, wiped, other


@pytest.mark.group(**QUICK)
async def test_B27_emptied_directory_is_noticed_filled_and_readmitted_by_admit(
    group: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "dledger")
    topic, wiped, other = await with_an_emptied_member(group)
    node, leader = group.nodes[wiped], await group.leader()
    assert (await (await group.client(node)).fetch(topic, 9))[1] == [body(topic, b"9")], (
        "it may be read from"
    )
    assert admission(leader)["not_admitted"] == [wiped]
    assert not admission(node)["admitted"]
    assert f"'dledger admit {wiped}'" in caplog.text

    await group.kill(other)
    client = await group.client(leader)
    late = await client.append(body(topic), 300)
    assert late.code is Code.WAIT_QUORUM_ACK_TIMEOUT, "its word does not count"
    await group.until(lambda: leader.raft.role is not Role.LEADER)
    await group.start(other)

    assert (await group.admit(wiped)).code is Code.SUCCESS
    assert (await group.admit(wiped)).code is Code.SUCCESS, "again: it is admitted"
    await group.agree()
    assert admission(node)["admitted"]
    assert {tuple(admission(n)["members"].items()) for n in group.nodes.values()} == {
        tuple(admission(node)["members"].items())
    }
    last = next(n for n in group.nodes if n != wiped)
    await group.kill(last)
    client = await group.client()
    assert (await client.append(body(topic))).code is Code.SUCCESS, (
        "its vote and its disk count again"
    )


@pytest.mark.group(**ONE_LEADER)
async def test_B30_an_older_copy_of_a_directory_is_no_voter_and_no_crash_loop(
    group: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await fill(group)
    restored, _ = await two_followers(group)
    await group.stop(restored)
    shutil.copytree(group.folder / restored, group.folder / "backup")
    await group.start(restored)
    client = await group.client()
    await client.write(topic, (b"later %d" % number for number in range(50)))
    await group.agree()
    leader = await group.leader()
    end = leader.raft.end_index
    await group.until(lambda: leader.raft.watermarks[NodeId(restored)] == end)
    await group.kill(restored)
    shutil.rmtree(group.folder / restored)
    (group.folder / "backup").rename(group.folder / restored)
    node = await group.start(restored)
    await group.until(lambda: not admission(node)["admitted"])
    assert leader.raft.role is Role.LEADER
    assert "older copy" in caplog.text
    await group.agree()
    node = await group.restart(restored)
    await group.agree()
    assert not admission(node)["admitted"], "it remembers"
    assert (await group.admit(restored)).code is Code.SUCCESS
    await group.until(lambda: admission(node)["admitted"])


@pytest.mark.group(start=False)
async def test_first_start_waits_for_all_members_and_later_one_for_a_majority(
    group: Any,
) -> None:
    first = await group.start("n0", "n1")
    await group.until(lambda: admission(first)["missing"] == ["n2"])
    assert first.raft.leader_id is None
    await group.start("n2")
    topic = await fill(group)
    await group.kill()
    await group.start("n1", "n2")
    assert (await (await group.client()).append(body(topic))).code is Code.SUCCESS


async def test_an_admission_survives_restarts_and_checkpoints_of_everybody(group: Any) -> None:
    topic, wiped, other = await with_an_emptied_member(group)
    await group.admit(wiped)
    await group.agree()
    await group.stop(wiped)
    await group.kill()
    await group.start(wiped, other)
    assert (await (await group.client()).append(body(topic))).code is Code.SUCCESS
    assert {node.catalog.members_index for node in group.nodes.values()} == {
        node.raft.membership.index for node in group.nodes.values()
    }


async def test_admit_says_what_keeps_it_from_being_done(group: Any) -> None:
    await fill(group)
    gone, _ = await two_followers(group)
    answer = await group.admit("n9")
    assert (answer.code, "n0, n1, n2" in answer.message) == (Code.UNEXPECTED_ARGUMENT, True)
    follower = await (await group.client(await group.follower())).ask(
        AdmitRequest(node_id=NodeId(gone))
    )
    assert (follower.code, follower.leader_id) == (
        Code.NOT_LEADER,
        (await group.leader()).node.node_id,
    )
    await group.stop(gone)
    leader = await group.leader()
    client = await group.client(leader)
    await client.ask(AdmitRequest(node_id=NodeId(gone)))
    forged = Admit(node_id=gone, members={gone: 1}, after=-1)
    answer = await client.ask(ExecuteRequest(command=forged))
    assert (answer.code, "AdmitRequest" in answer.message) == (Code.MALFORMED, True)


async def test_a_member_that_does_not_run_cannot_be_admitted(group: Any) -> None:
    await fill(group)
    await group.stop()
    await group.start("n0", "n1")
    answer = await group.admit("n2")
    assert (answer.code, "start it first" in answer.message) == (Code.ILLEGAL_MEMBER_STATE, True)


@pytest.mark.group(5)
async def test_of_two_admissions_that_cross_none_undoes_the_other(group: Any) -> None:
    await fill(group)
    leader = await group.leader()
    wiped = [name for name in group.config.members if name != leader.node.node_id][:2]
    for name in wiped:
        await group.replace_disk(name)
        await group.agree()
    client = await group.client(leader)
    both = [client.start(AdmitRequest(node_id=NodeId(name), timeout_ms=1000)) for name in wiped]
    for future in both:
        await future
    for name in wiped:
        await group.admit(name)
    await group.agree()
    assert all(admission(node)["admitted"] for node in group.nodes.values())


def test_core_is_told_only_of_admissions_by_the_bytes_of_the_entry() -> None:
    command = Admit(node_id="n1", members={"n0": 4, "n1": 900}, after=7)
    header = encode_header(BodyHeader(BodyKind.COMMAND))
    bodies = [
        header + encode_command(command),
        header + encode_command(DeleteTopic(name="t")),
        body(1),
        b"",
        b"DB",
        header,
        header + b"no command",
        b"x" * 3 + b"\x02" + b"y" * 80,
    ]
    entries = stamp_all(LogEnd(), Term(3), MAGIC_NORMAL, bodies, 1 << 20)
    change = Change(Position(Term(3), Index(0)), Index(7), NodeId("n1"), 900)
    assert [change_of(entry) for entry in entries] == [change] + [None] * (len(bodies) - 1)


async def test_kill_of_all_nodes_before_admission_commit_leaves_one_answer(
    group: Any,
) -> None:
    """Whether it was committed is decided by what the disks have; then all members say the same."""
    _, wiped, other = await with_an_emptied_member(group)
    leader = await group.leader()
    await group.kill(other)
    late = await group.admit(wiped, timeout_ms=300)
    assert late.code is Code.WAIT_QUORUM_ACK_TIMEOUT, "it takes a majority without it"
    assert leader.raft.change is not None
    await group.restart(kill=True)
    assert (await group.admit(wiped)).code is Code.SUCCESS
    await group.agree()
    await group.until(lambda: all(admission(node)["admitted"] for node in group.nodes.values()))
    assert not any(node.raft.change for node in group.nodes.values())


@pytest.mark.group(1)
async def test_a_lone_node_founds_its_group_alone(group: Any) -> None:
    await fill(group)
    node = await group.leader()
    assert admission(node) == {
        "incarnation": node.store.identity.incarnation,
        "admitted": True,
        "members": {"n0": node.store.identity.incarnation},
        "not_admitted": [],
        "missing": [],
    }
