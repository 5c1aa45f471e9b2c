"""Messages of a RocketMQ commit log: what an answer must be to be believed."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from dledger.client.protocol.operations.messages import MAX_PUT_BYTES, put_messages
from dledger.errors import ConfigError, DiskFull, OutcomeUnknown, ProtocolError
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.rocketmq import PutMessageResponse
from dledger.rocketmq.format.hosts import LOCALHOST
from dledger.rocketmq.format.message import Message


def message(body: bytes = bytes(MAX_PUT_BYTES // 2), properties: str = "") -> Message:
    """Large without a body of its own: a request has room for one of these."""
    return Message("t", body, properties, 0, born_host=LOCALHOST)


def steps_of(*messages: Message) -> Generator[Any, Any, Any]:
    """The requests of a put of these messages."""
    core: Any = SimpleNamespace()
    return put_messages(core, list(messages))


def stored(physical: tuple[int, ...], queue: tuple[int, ...]) -> tuple[Any, memoryview]:
    """An answer with these places."""
    host = "127.0.0.1:10911"
    places = {"physical_offsets": physical, "queue_offsets": queue}
    return PutMessageResponse(code=Code.SUCCESS, store_host=host, **places), memoryview(b"")


def put_answered(physical: tuple[int, ...], queue: tuple[int, ...]) -> Any:
    """What a put of two messages makes of these places."""
    steps = steps_of(message(b"a"), message(b"b"))
    next(steps)
    with pytest.raises(StopIteration) as ended:
        steps.send(stored(physical, queue))
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


def test_messages_of_which_a_part_is_stored_are_not_called_not_written() -> None:
    """Three requests: who took the error of the second one for definite would put the first message
    once more."""
    steps = steps_of(message(), message(), message())
    assert len(next(steps).payload) == 1
    assert len(steps.send(stored((0,), (0,))).payload) == 1
    with pytest.raises(
        OutcomeUnknown, match="the first 1 of them are stored, and then full"
    ) as caught:
        steps.throw(DiskFull("full"))
    assert not caught.value.definite
    first = steps_of(message(), message())
    next(first)
    with pytest.raises(DiskFull):
        first.throw(DiskFull("full"))


def test_a_message_that_cannot_be_is_found_before_any_is_sent() -> None:
    with pytest.raises(ConfigError, match="message 2 for 't'"):
        next(steps_of(message(), message(), message(b"", "p" * (1 << 20))))
