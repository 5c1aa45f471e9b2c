"""Answers that nobody takes: a few small requests ask for gigabytes, and neither memory nor the
others pay for it."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.protocol.messages.client import FetchRequest
from dledger.protocol.messages.codes import Code
from tests.node.bodies import body

KIB = 1 << 10
LIMIT = 4096 * KIB
BODY = 900 * KIB


def unsent(node: Any) -> int:
    return sum(connection.unsent_bytes for connection in node.parts.router._listener.connections)


@pytest.mark.group(1, max_client_bytes=LIMIT)
async def test_clients_that_take_no_answers_stay_in_budget_and_others_go_on(
    group: Any,
) -> None:
    client, topic_id = await group.topic()
    await client.write(topic_id, (bytes([number]) * BODY for number in range(20)))
    node = await group.leader()
    deaf = [await group.client() for _ in range(12)]
    for one in deaf:
        one.connection.pause_reading()
        for number in range(30):
            one.start(
                FetchRequest(
                    topic_id=topic_id, partition=0, start_offset=number % 20, max_bytes=32 << 20
                )
            )
    most = 0
    for number in range(20):
        answer, bodies = await client.fetch(topic_id, number, max_bytes=32 << 20)
        assert answer.code is Code.SUCCESS
        assert len(bodies[0]) > BODY
        most = max(most, unsent(node))
        assert (await client.append(body(topic_id))).code is Code.SUCCESS
    assert LIMIT // 2 < most <= LIMIT + 2 * BODY
    assert not client.closed.is_set()
