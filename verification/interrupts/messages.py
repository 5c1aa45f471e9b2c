"""A round's messages in a RocketMQ commit log, put and asked for by either client."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from dledger.client import Client
from dledger.client.protocol.operations.messages import GetMessageResult, PutMessageResult
from dledger.client.protocol.results import Appended
from dledger.rocketmq.format.message import Message
from verification.interrupts.book import TAKEN, Book

Asked = tuple[str, Callable[[], Any], Callable[[Any], None]]
"""Name of a call, the call, and a function that takes its answer if it was not interrupted."""


class Messages:
    """Messages of one queue.

    Args:
        client: blocking or asyncio; calls of the latter are coroutines.
    """

    def __init__(self, client: Any, topic: str, dice: Random) -> None:
        self.book = Book(topic)
        self._client = client
        self._topic = topic
        self._dice = dice
        self._places: list[int] = []

    def next(self) -> Asked:
        """The call that comes next."""
        calls = [self._put, self._put_some] + [self._get, self._view, self._query] * bool(
            self._places
        )
        return self._dice.choice(calls)()

    def _put(self) -> Asked:
        one = self.book.attempt(self.book.values(1))
        (body,) = one.values

        def took(answer: PutMessageResult) -> None:
            one.state, one.answer = TAKEN, self._place(answer, 1)
            self._places.append(answer.physical_offset)

        return "put_message", lambda: self._client.put_message(self._topic, body, keys="k"), took

    def _put_some(self) -> Asked:
        one = self.book.attempt(self.book.values(3))
        messages = [Message(self._topic, body) for body in one.values]

        def took(answers: list[PutMessageResult]) -> None:
            one.state, one.answer = TAKEN, self._place(answers[0], len(answers))

        return "put_messages", lambda: self._client.put_messages(messages), took

    def _place(self, answer: PutMessageResult, count: int) -> Appended:
        return Appended(
            self._topic, answer.queue_id, answer.queue_offset, answer.queue_offset + count
        )

    def _get(self) -> Asked:
        def took(answer: GetMessageResult) -> None:
            self._expect(bool(answer.messages), "get_message", answer)

        return "get_message", lambda: self._client.get_message(self._topic, 0, 0), took

    def _view(self) -> Asked:
        at = self._dice.choice(self._places)

        def took(answer: Message) -> None:
            self._expect(answer.physical_offset == at, "view_message", answer)

        return "view_message", lambda: self._client.view_message(at), took

    def _query(self) -> Asked:
        def took(answer: list[Message]) -> None:
            self._expect(bool(answer), "query_message", answer)

        return "query_message", lambda: self._client.query_message(self._topic, "k"), took

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
