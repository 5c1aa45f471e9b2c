"""Messages of a RocketMQ commit log: what an answer must be to be believed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dledger.client.messages import put
from dledger.errors import ProtocolError
from dledger.messages.broker import PutMessageResponse
from dledger.messages.codes import Code
from dledger.rocketmq.hosts import LOCALHOST
from dledger.rocketmq.message import Message


def put_answered(physical: tuple[int, ...], queue: tuple[int, ...]) -> Any:
    """What a put of two messages makes of these places."""
    core: Any = SimpleNamespace()
    steps = put(core, [Message("t", body, "", 0, born_host=LOCALHOST) for body in (b"a", b"b")])
    next(steps)
    answer = PutMessageResponse(
        code=Code.SUCCESS, physical_offsets=physical, queue_offsets=queue, store_host="127.0.0.1:10911"
    )
    with pytest.raises(StopIteration) as ended:
        steps.send((answer, memoryview(b"")))
    return ended.value.value


def test_each_message_that_is_put_gets_its_own_places() -> None:
    results = put_answered((100, 200), (7, 8))
    assert [(result.physical_offset, result.queue_offset) for result in results] == [(100, 7), (200, 8)]


@pytest.mark.parametrize(("physical", "queue"), [((1,), (1, 2)), ((1, 2), (1,)), ((1, 2, 3), (1, 2)), ((), ())])
def test_an_answer_with_other_than_one_place_for_each_message_is_not_believed(
    physical: tuple[int, ...], queue: tuple[int, ...]
) -> None:
    with pytest.raises(ProtocolError, match="places"):
        put_answered(physical, queue)
