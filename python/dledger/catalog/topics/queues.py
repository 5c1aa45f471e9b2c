"""How far each queue of a RocketMQ commit log has come: the queue offset that its next message
gets.

A message carries its queue offset in its own bytes, so a leader settles it before the message goes
into the log: from this table as of its log's end. Since every leader does so, the offsets of a
queue are gap-free in the order of the log, under any leader; an entry that is given up takes its
number with it. The table is state like any other here: every node has it, a snapshot carries it,
and it stays when the messages themselves are gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dledger.catalog.results import CommandResult
from dledger.protocol.messages.catalog_commands import AdoptCommitLog
from dledger.protocol.messages.codes import Code

Queue = tuple[str, int]
"""Topic and queue id."""


class Queues:
    """Queue offsets as of the last applied entry."""

    def __init__(self) -> None:
        self.next: dict[Queue, int] = {}
        """For each queue that ever had a message, the offset behind its last one."""
        self.store_ms = 0
        """The latest store time of a message; leaders stamp none that is earlier."""

    def add(self, topic: str, queue_id: int, queue_offset: int, store_ms: int) -> None:
        """A message is committed. ``queue_offset`` -1: it has no place in a queue (prepared, or
        rolled back)."""
        if store_ms > self.store_ms:
            self.store_ms = store_ms
        if queue_offset >= 0:
            key = topic, queue_id
            if queue_offset >= self.next.get(key, 0):
                self.next[key] = queue_offset + 1

    def begin(self, index: int, command: AdoptCommitLog) -> CommandResult:
        """The queues of an old commit log go on here, as the first entry of a log says it, and no
        other one."""
        if index:
            return CommandResult(
                Code.MALFORMED,
                "a commit log is adopted before its group is started, with no request",
            )
        self.store_ms = max(self.store_ms, command.store_ms)
        for topic, ends in command.queues.items():
            for queue_id, end in ends.items():
                self.next[topic, queue_id] = max(end, self.next.get((topic, queue_id), 0))
        return CommandResult(Code.SUCCESS)

    def __bool__(self) -> bool:
        return bool(self.next or self.store_ms)

    def encode(self) -> list[Any]:
        """As plain JSON values, the same for the same state."""
        return [
            self.store_ms,
            [[topic, queue_id, end] for (topic, queue_id), end in sorted(self.next.items())],
        ]

    @classmethod
    def decode(cls, data: Iterable[Any]) -> Queues:
        """From the result of `encode`."""
        queues = cls()
        queues.store_ms, rows = data
        queues.next = {(topic, queue_id): end for topic, queue_id, end in rows}
        return queues


class Settled:
    """The same as of the end of a leader's log: the applied messages, and its puts behind them
    since."""

    def __init__(self, applied: Queues) -> None:
        self._next = dict(applied.next)
        self.store_ms = applied.store_ms

    def take(self, topic: str, queue_id: int) -> int:
        """The offset of this queue's next message, which is now taken."""
        key = topic, queue_id
        offset = self._next.get(key, 0)
        self._next[key] = offset + 1
        return offset
