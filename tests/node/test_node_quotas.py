"""What the leader refuses before it writes: commands that cannot be, and more than the group may
have in all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.errors import LimitReached
from dledger.protocol.messages.catalog_commands import (
    AddPartitions,
    Command,
    CommitOffsets,
    CommitProgress,
    CommitTransaction,
    CreateTopic,
    DeleteTopic,
    HoldRetention,
    InitProducer,
    OpenStage,
)
from dledger.protocol.messages.client import ExecuteRequest
from dledger.protocol.messages.codes import Code


def topic(name: str, partitions: int = 1, **more: Any) -> CreateTopic:
    return CreateTopic(name=name, log_id=f"log-of-{name}", partitions=partitions, **more)


WRONG: list[tuple[Command, Code, str]] = [
    (topic("no/name"), Code.MALFORMED, "topic 'no/name'"),
    (topic("many", 10_001), Code.MALFORMED, "1 to 10000 partitions"),
    (
        CreateTopic(name="t", log_id="another", partitions=5),
        Code.TOPIC_EXISTS,
        "exists with 1 partitions",
    ),
    (topic("other", settings={"typo": "x"}), Code.MALFORMED, "no setting 'typo'"),
    (DeleteTopic(name="none"), Code.UNKNOWN_TOPIC, "no topic 'none'"),
    (AddPartitions(name="none", partitions=2), Code.UNKNOWN_TOPIC, "no topic 'none'"),
    (AddPartitions(name="t", partitions=0), Code.MALFORMED, "has 1 partitions"),
    (InitProducer(producer_name="p" * 100_000), Code.MALFORMED, "producer"),
    (CommitOffsets(consumer_group="g" * 100_000, offsets={}), Code.MALFORMED, "consumer group"),
    (
        CommitProgress(consumer_group="g", offsets={"none": {0: 0}}),
        Code.UNKNOWN_TOPIC,
        "no topic 'none'",
    ),
    (
        CommitOffsets(consumer_group="g", offsets={"t": {7: 0}}),
        Code.UNKNOWN_TOPIC,
        "partitions 0 to 0",
    ),
    (HoldRetention(consumer_group="../g", hold=True), Code.MALFORMED, "consumer group"),
    (
        OpenStage(writer_id="w" * 2000, sequence=0, label="", timeout_ms=1),
        Code.MALFORMED,
        "writer id",
    ),
    (CommitTransaction(writer_id="", sequence=0), Code.MALFORMED, "writer id"),
]


@pytest.mark.group(1)
async def test_refused_commands_are_not_written_and_answered_as_if_applied(
    group: Any,
) -> None:
    leader = await group.leader()
    client = await group.client()
    await client.create("t")
    end = leader.raft.end_index
    for command, code, text in WRONG:
        answer = await client.execute(command)
        assert (answer.code, text in answer.message) == (code, True), (command, answer)
        assert len(answer.message) < 300
        applied = Catalog.restore(leader.catalog.snapshot(), MemoryTables())
        result = applied.apply_command(applied.applied_index + 1, command)
        assert (result.code, result.message) == (answer.code, answer.message)
    assert leader.raft.end_index == end, "no entry was written"


@pytest.mark.group(1)
async def test_a_refusal_by_state_waits_for_what_is_under_way_to_change_it(group: Any) -> None:
    """A topic that is being created may be deleted, grown and read by a group in the same
    breath."""
    client = await group.client()
    commands = [
        topic("t"),
        AddPartitions(name="t", partitions=3),
        CommitOffsets(consumer_group="g", offsets={"t": {2: 0}}),
        DeleteTopic(name="t"),
        topic("t2"),
    ]
    answers = [client.start(ExecuteRequest(command=command)) for command in commands]
    assert [(await answer)[0].code for answer in answers] == [Code.SUCCESS] * 5


@pytest.mark.parametrize(
    ("setting", "limit", "commands"),
    [
        ("max_topics", 3, [topic(f"t{number}") for number in range(8)]),
        ("max_partitions", 20, [topic(f"t{number}", 5) for number in range(8)]),
        (
            "max_consumer_groups",
            3,
            [HoldRetention(consumer_group=f"g{number}", hold=True) for number in range(8)],
        ),
        ("max_producers", 3, [InitProducer(producer_name=f"p{number}") for number in range(8)]),
        ("max_catalog_bytes", 20_000, [topic(f"t{number}", 10) for number in range(8)]),
    ],
)
async def test_requests_over_limit_are_refused_with_setting_even_in_a_flood(
    play: Callable[..., Any], setting: str, limit: int, commands: list[Command]
) -> None:
    """What is proposed and not applied yet counts: no flood slips through between two applied
    entries."""
    async with play(1, **{setting: limit}) as group:
        client = await group.client()
        answers = [
            client.start(ExecuteRequest(command=command, timeout_ms=1)) for command in commands
        ]
        results = [(await answer)[0] for answer in answers]
        refused = [result for result in results if result.code is Code.LIMIT_REACHED]
        assert all(setting in result.message for result in refused)
        await group.agree()
        catalog = (await group.leader()).catalog
        there = {
            "max_topics": len(catalog.topics()),
            "max_partitions": len(catalog.partitions),
            "max_consumer_groups": len(catalog.groups()),
            "max_producers": len(catalog.producers.sessions),
            "max_catalog_bytes": 7000 * len(catalog.topics()),
        }[setting]
        assert 0 < there <= limit
        assert len(refused) >= 4
        again = await client.execute(commands[0])
        assert again.code is Code.SUCCESS, "what is there already takes no more"


@pytest.mark.group(1, max_partitions=10)
async def test_a_client_is_told_by_an_error_of_its_own(group: Any) -> None:
    client = await group.async_client()
    with pytest.raises(LimitReached, match="raise max_partitions"):
        await client.create_topic("large", partitions=11)
    await client.create_topic("small", partitions=10)
    await client.delete_topic("small")
    await client.create_topic("small", partitions=10)
