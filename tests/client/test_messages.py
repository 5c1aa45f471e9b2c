"""Messages of a RocketMQ commit log: what an answer must be to be believed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dledger.client.protocol.operations.messages import MAX_PUT_BYTES, put_messages
from dledger.errors import ConfigError, DiskFull, OutcomeUnknown, ProtocolError
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.rocketmq import PutMessageResponse
from dledger.rocketmq.format.hosts import LOCALHOST
from dledger.rocketmq.format.message import Message


def put_answered(physical: tuple[int, ...], queue: tuple[int, ...]) -> Any:
    """What a put of two messages makes of these places."""
    core: Any = SimpleNamespace()
    steps = put_messages(
        core, [Message("t", body, "", 0, born_host=LOCALHOST) for body in (b"a", b"b")]
    )
    next(steps)
    answer = PutMessageResponse(
        code=Code.SUCCESS,
        physical_offsets=physical,
        queue_offsets=queue,
        store_host="127.0.0.1:10911",
    )
    with pytest.raises(StopIteration) as ended:
        steps.send((answer, memoryview(b"")))
    return ended.value.value


def test_each_message_that_is_put_gets_its_own_places() -> None:
    results = put_answered((100, 200), (7, 8))
    assert [(result.physical_offset, result.queue_offset) for result in results] == [
        (100, 7),
        (200, 8),
    ]


@pytest.mark.parametrize(
    ("physical", "queue"), [((1,), (1, 2)), ((1, 2), (1,)), ((1, 2, 3), (1, 2)), ((), ())]
)
def test_answer_without_exactly_one_place_per_message_is_rejected(
    physical: tuple[int, ...], queue: tuple[int, ...]
) -> None:
    with pytest.raises(ProtocolError, match="places"):
        put_answered(physical, queue)


def large(body: bytes = bytes(MAX_PUT_BYTES // 2), properties: str = "") -> Message:
    return Message("t", body, properties, 0, born_host=LOCALHOST)


def test_messages_of_which_a_part_is_stored_are_not_called_not_written() -> None:
    """Three requests: who took the error of the second one for definite would put the first message
    once more."""
    core: Any = SimpleNamespace()
    steps = put_messages(core, [large(), large(), large()])
    assert len(next(steps).payload) == 1
    stored = PutMessageResponse(
        code=Code.SUCCESS, physical_offsets=(0,), queue_offsets=(0,), store_host="127.0.0.1:10911"
    )
    assert len(steps.send((stored, memoryview(b""))).payload) == 1
    with pytest.raises(
        OutcomeUnknown, match="the first 1 of them are stored, and then full"
    ) as caught:
        steps.throw(DiskFull("full"))
    assert not caught.value.definite
    first = put_messages(core, [large(), large()])
    next(first)
    with pytest.raises(DiskFull):
        first.throw(DiskFull("full"))


def test_a_message_that_cannot_be_is_found_before_any_is_sent() -> None:
    core: Any = SimpleNamespace()
    with pytest.raises(ConfigError, match="message 2 for 't'"):
        next(put_messages(core, [large(), large(), large(b"", "p" * (1 << 20))]))
