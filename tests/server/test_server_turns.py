"""What one request, or one client's many, may do in one turn of a node's loop: the others wait meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dledger.messages.client import ExecuteRequest
from dledger.messages.codes import Code
from dledger.messages.command import CreateTopic, InitProducer, OpenStage
from dledger.server.apply import MANY_PARTITIONS


def test_commands_that_open_thousands_of_partitions_are_applied_one_in_a_turn(play: Callable[..., None]) -> None:
    """The limits let a group have 100,000 in all, and they may come in one read."""

    async def story(group: Any) -> None:
        client, nodes = await group.client(), list(group.nodes.values())
        opened: dict[Any, list[int]] = {}
        for node in nodes:
            note_passes(node, opened.setdefault(node.node.node_id, []))
        size = MANY_PARTITIONS + 1
        requests = [
            ExecuteRequest(command=CreateTopic(name=f"t{n}", log_id=f"log-of-t{n}", partitions=size)) for n in range(5)
        ]
        for future in [client.start(request) for request in requests]:
            assert (await future)[0].code is Code.SUCCESS
        await group.until(lambda: all(sum(passes) == 5 * size for passes in opened.values()))
        assert {most for passes in opened.values() for most in passes} <= {0, size}

    def note_passes(node: Any, passes: list[int]) -> None:
        apply = node.applier._apply

        def counted(entries: Any) -> None:
            before = len(node.catalog.partitions)
            apply(entries)
            passes.append(len(node.catalog.partitions) - before)

        node.applier._apply = counted

    play(story)


def test_commands_with_time_outs_are_counted_while_they_wait_and_no_longer(play: Callable[..., None]) -> None:
    """Catalog time may step forward only while there are none, and a leader asks that for each command: it must not
    look at all that wait each time."""

    async def story(group: Any) -> None:
        client, leader = await group.client(), await group.leader()
        assert (await client.execute(InitProducer(producer_name="first"))).code is Code.SUCCESS
        settled: list[bool] = []
        propose = leader.driver.propose
        leader.driver.propose = lambda bodies: settled.append(leader.writes._nothing_timed_waits()) or propose(bodies)
        assert (await client.execute(InitProducer(producer_name="p"))).code is Code.SUCCESS
        assert leader.writes._nothing_timed_waits()
        await client.create("t")
        assert settled == [False, True]
        refused = OpenStage(writer_id="w" * 2000, sequence=0, label="", timeout_ms=1)
        assert (await client.execute(refused)).code is Code.MALFORMED
        assert leader.writes._nothing_timed_waits()

    play(story, 1)
