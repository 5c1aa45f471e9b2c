"""What one request, or one client's many, may do in one turn of a node's loop: the others wait
meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dledger.net.secret import create_secret
from dledger.node.handlers.request_router import COMMANDS_UNDER_WAY
from dledger.protocol.messages.catalog_commands import CreateTopic, InitProducer, OpenStage
from dledger.protocol.messages.client import ExecuteRequest, OffsetsRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest
from tests.node.bodies import body
from tests.node.conftest import BareClient
from tests.node.holding import watch


async def test_commands_that_make_thousands_of_partitions_open_none_on_any_node(group: Any) -> None:
    """The limits let a group have 100,000 in all, and they may come in one read."""
    client, nodes = await group.client(), list(group.nodes.values())
    requests = [
        ExecuteRequest(command=CreateTopic(name=f"t{n}", log_id=f"log-of-t{n}", partitions=10_000))
        for n in range(5)
    ]
    for future in [client.start(request) for request in requests]:
        assert (await future)[0].code is Code.SUCCESS
    await group.until(lambda: all(len(node.catalog.partitions) == 50_000 for node in nodes))
    assert len((await client.offsets("t0")).offsets["t0"]) == 10_000
    assert [len(node.catalog.partitions.used) for node in nodes] == [0, 0, 0]


@pytest.mark.group(1)
async def test_commands_with_time_outs_are_counted_while_they_wait_and_no_longer(
    group: Any,
) -> None:
    """Catalog time may step forward only while there are none, and a leader asks that for each
    command: it must not look at all that wait each time."""
    client, leader = await group.client(), await group.leader()
    assert (await client.execute(InitProducer(producer_name="first"))).code is Code.SUCCESS
    settled: list[bool] = []
    is_settled = leader.parts.proposals._nothing_timed_waits
    watch(leader.raft, "propose", lambda bodies, _: settled.append(is_settled()))
    assert (await client.execute(InitProducer(producer_name="p"))).code is Code.SUCCESS
    assert is_settled()
    await client.create("t")
    assert settled == [False, True]
    refused = OpenStage(writer_id="w" * 2000, sequence=0, label="", timeout_ms=1)
    assert (await client.execute(refused)).code is Code.MALFORMED
    assert leader.parts.proposals._nothing_timed_waits()


@pytest.mark.group(1)
async def test_command_with_timeout_counts_until_applied_even_if_client_left(
    group: Any,
) -> None:
    """Its client may give up before a quorum has it. Catalog time that stepped forward then would
    end it too soon."""
    client, leader = await group.client(), await group.leader()
    assert (await client.execute(InitProducer(producer_name="first"))).code is Code.SUCCESS
    settled: list[bool] = []
    carry_out = leader.parts.ready_loop.carry_out

    def give_up_at_once(ready: Any) -> None:
        carry_out(ready)
        if ready.append:  # written, and not durable before the loop's next turn
            leader.parts.proposals.fail_all(Code.WAIT_QUORUM_ACK_TIMEOUT)
            settled.append(leader.parts.proposals._nothing_timed_waits())

    leader.parts.ready_loop.carry_out = give_up_at_once
    given_up = await client.execute(InitProducer(producer_name="p"))
    assert given_up.code is Code.WAIT_QUORUM_ACK_TIMEOUT
    leader.parts.ready_loop.carry_out = carry_out
    await client.create("t")
    assert settled == [False]
    assert leader.parts.proposals._nothing_timed_waits()


async def sessions(client: Any, count: int) -> list[int]:
    """Ask for so many at once; their numbers."""
    requests = [ExecuteRequest(command=InitProducer(producer_name=f"p{n}")) for n in range(count)]
    answers = [(await one)[0] for one in [client.start(request) for request in requests]]
    assert {one.code for one in answers} == {Code.SUCCESS}
    return [one.result["producer_id"] for one in answers]


async def test_a_flood_of_commands_is_carried_out_a_few_at_a_time_and_in_order(group: Any) -> None:
    client, leader = await group.client(), await group.leader()
    most: list[int] = []
    proposals = leader.parts.proposals
    watch(leader.raft, "propose", lambda bodies, _: most.append(proposals.unanswered.commands))
    leader.parts.router._company.is_alone = lambda *_: False
    ids = await sessions(client, 100)
    assert ids == sorted(ids), "in the order in which they were sent"
    assert 0 < max(most) <= COMMANDS_UNDER_WAY
    assert leader.parts.proposals.unanswered.commands == 0


@pytest.mark.group(1)
async def test_one_client_alone_waits_for_no_turn_and_one_with_company_does(group: Any) -> None:
    """A pace for everybody would be a limit for sound clients: the tasks of a job begin
    transactions by commands."""
    client, other, leader = await group.client(), await group.client(), await group.leader()
    topic = await other.create("t")
    company, waited = leader.parts.router._company, []
    company._lasts_s = -1.0
    watch(leader.parts.router._commands, "_on_wait", waited.append)
    await sessions(client, 64)
    assert waited == []
    company._lasts_s = 1e9
    assert (await other.append(body(topic))).code is Code.SUCCESS
    appending = company.last
    assert (await client.offsets("t")).code is Code.SUCCESS
    assert company.last is not appending
    await sessions(client, 64)
    assert set(waited) == {company.last}


@pytest.mark.group(1)
async def test_client_that_waits_for_its_turn_is_not_read_and_others_are(
    group: Any,
) -> None:
    """Not even when the budget of bytes lets everybody go on."""
    flooding, other, leader = await group.client(), await group.client(), await group.leader()
    topic = await other.create("t")
    front = leader.parts.router
    await group.until(lambda: not leader.parts.proposals.unanswered.commands)
    front._commands._is_free = lambda _: False
    command = flooding.start(ExecuteRequest(command=InitProducer(producer_name="p")))
    behind = flooding.start(OffsetsRequest(topics=("t",)))
    await group.until(lambda: len(front._commands.waiting) == 1)
    for connection in list(front.port_sessions.clients):
        front._paused.add(connection)
        connection.pause_reading()
    front.relieved()
    assert (await other.append(body(topic))).code is Code.SUCCESS
    assert not command.done()
    assert not behind.done(), "one connection's requests are answered in their order"
    front._commands._is_free = lambda _: True
    front.relieved()
    assert (await command)[0].code is Code.SUCCESS
    assert (await behind)[0].code is Code.SUCCESS


async def test_hellos_that_want_a_proof_wait_for_their_turn_and_clients_do_not(
    play: Callable[..., Any], tmp_path: Path
) -> None:
    create_secret(tmp_path / "secret")
    async with play(2, secret_file=str(tmp_path / "secret")) as group:
        node = await group.leader()
        node.parts.router.port_sessions.hellos._is_free = lambda _: False
        stranger = await BareClient.dial(node.port)
        other = next(name for name in group.nodes if name != node.node.node_id)
        answer = stranger.start(HelloRequest(group="test", node_id=other, nonce=b"s" * 16))
        await group.until(lambda: len(node.parts.router.port_sessions.hellos.waiting) > 0)
        await group.client(node)
        assert not answer.done()
        node.parts.router.port_sessions.hellos._is_free = lambda _: True
        assert (await answer)[0].proof_wanted
        stranger.close()
        await group.until(lambda: len(node.parts.router.port_sessions.hellos.waiting) == 0)
