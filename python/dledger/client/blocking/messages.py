"""Messages of a RocketMQ commit log, for the blocking client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from dledger.client.protocol.arguments import checked
from dledger.client.protocol.client_state import ClientState, Operation, T
from dledger.client.protocol.messages import (
    LATEST,
    GetMessageResult,
    PutMessageResult,
    get,
    make_message,
    offset_of,
    put,
    query,
    view,
)
from dledger.rocketmq.format.message import Message


@checked
class Messages(ABC):
    """The part of `dledger.client.Client` for groups that keep a RocketMQ commit log."""

    core: ClientState

    @abstractmethod
    def _run(self, operation: Operation[T]) -> T:
        """Carry out an operation."""

    def put_message(
        self,
        topic: str,
        body: bytes,
        *,
        queue_id: int = 0,
        tags: str = "",
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
    ) -> PutMessageResult:
        """Put one message; returns when a quorum has it on disk. A topic is there as soon as a
        message names it.

        It is asked again only while nothing was written. After an error that leaves the outcome
        open nobody repeats it but the caller, and then the message may be there twice, as with a
        broker.

        Args:
            keys: what `query_message` finds it by; several as a list.
            properties: more of them; what ``tags`` and ``keys`` say does not replace one of these.

        Raises:
            ConfigError, RecordTooLarge, DiskFull, Unavailable: nothing was written.
            OutcomeUnknown: it may have been written.
        """
        message = make_message(self.core, topic, body, queue_id, tags, keys, properties, flag)
        return self.put_messages([message])[0]

    def put_messages(self, messages: Sequence[Message]) -> list[PutMessageResult]:
        """Put messages, in this order, and side by side as far as one request holds them (4,096; 4
        MiB); raises as `put_message`, and OutcomeUnknown also where a request failed behind others
        that are stored. Queue offset, physical offset, store time and store host are replaced."""
        return self._run(put(self.core, messages))

    def view_message(self, place: int | str, *, stale: bool = False) -> Message:
        """The message at a physical offset, or of a broker's message id; body and properties as
        stored.

        Args:
            stale: from any node, as far as that one has come.

        Raises:
            OffsetOutOfRange: no committed message begins there, or it is not kept any more.
        """
        return self._run(view(offset_of(place) if isinstance(place, str) else place, stale))

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        max_messages: int = 32,
        max_bytes: int = 4 << 20,
        stale: bool = False,
    ) -> GetMessageResult:
        """Messages of a queue from an offset on, in order, at least one where there is one.

        Args:
            stale: from any node, as far as that one has come.
        """
        return self._run(get(topic, queue_id, queue_offset, max_messages, max_bytes, stale))

    def query_message(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = 32,
        begin: int = 0,
        end: int = LATEST,
        stale: bool = False,
    ) -> list[Message]:
        """Messages with this unique key, or with this word among their keys, the newest first.

        Args:
            begin, end: store times in milliseconds since 1970, both included.
            stale: from any node, as far as that one has come.
        """
        return self._run(query(topic, key, max_messages, begin, end, stale))


__all__ = ["Messages"]
