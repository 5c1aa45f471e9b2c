"""A round's messages in a RocketMQ commit log, put and asked for by either client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from dledger.client import Client
from dledger.client.protocol.operations.messages import GetMessageResult, PutMessageResult
from dledger.client.protocol.results import Appended
from dledger.rocketmq.format.message import Message
from verification.interrupts.book import TAKEN, Book

Call = tuple[Callable[[], Any], Callable[[Any], None]]
"""A call, and a function that takes its answer if it was not interrupted."""
MESSAGE_CALLS: Final = ("get_message", "view_message", "query_message", "put_messages")
"""Calls that come in turn, once there is a message."""


class Messages:
    """Messages of one queue.

    Args:
        client: blocking or asyncio; calls of the latter are coroutines.
        turns: names of `MESSAGE_CALLS`, without end.
    """

    def __init__(self, client: Any, topic: str, *, dice: Random, turns: Iterator[str]) -> None:
        self.book = Book(topic)
        self._client = client
        self._topic = topic
        self._dice = dice
        self._turns = turns
        self._places: list[int] = []

    def next(self) -> tuple[str, Call]:
        """The call that comes next, and its name."""
        if not self._places or self._dice.random() < 0.2:
            return "put_message", self._put()
        name = next(self._turns)
        calls = {
            "get_message": self._get,
            "view_message": self._view,
            "query_message": self._query,
            "put_messages": self._put_some,
        }
        return name, calls[name]()

    def _put(self) -> Call:
        one = self.book.attempt(self.book.values(1))
        (body,) = one.values

        def took(answer: PutMessageResult) -> None:
            one.state, one.answer = TAKEN, self._place(answer, 1)
            self._places.append(answer.physical_offset)

        return lambda: self._client.put_message(self._topic, body, keys="k"), took

    def _put_some(self) -> Call:
        one = self.book.attempt(self.book.values(3))
        messages = [Message(self._topic, body) for body in one.values]

        def took(answers: list[PutMessageResult]) -> None:
            one.state, one.answer = TAKEN, self._place(answers[0], len(answers))

        return lambda: self._client.put_messages(messages), took

    def _place(self, answer: PutMessageResult, count: int) -> Appended:
        return Appended(
            self._topic, answer.queue_id, answer.queue_offset, answer.queue_offset + count
        )

    def _get(self) -> Call:
        def took(answer: GetMessageResult) -> None:
            self._expect(bool(answer.messages), "get_message", answer)

        return lambda: self._client.get_message(self._topic, 0, 0), took

    def _view(self) -> Call:
        at = self._dice.choice(self._places)

        def took(answer: Message) -> None:
            self._expect(answer.physical_offset == at, "view_message", answer)

        return lambda: self._client.view_message(at), took

    def _query(self) -> Call:
        def took(answer: list[Message]) -> None:
            self._expect(bool(answer), "query_message", answer)

        return lambda: self._client.query_message(self._topic, "k"), took

    def _expect(self, right: bool, name: str, answer: Any) -> None:
        if not right:
            self.book.problems.append(f"client.{name} was answered with {answer!r}")

    def check(self, servers: str) -> None:
        """Compare with what is stored."""
        found: list[bytes] = []
        with Client(servers) as client:
            while self.book.attempts:
                answer = client.get_message(self._topic, 0, len(found))
                if not answer.messages:
                    break
                found += [message.body for message in answer.messages]
        self.book.check({0: found})
