"""The requests of clients to a group that keeps a RocketMQ commit log, and its responses.

Encoded messages travel as the frame's payload, one behind the other; their own sizes tell where
each ends.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from dledger.protocol.messages.client import LeaderResponse
from dledger.protocol.messages.codes import Code
from dledger.types import slots_dataclass

MAX_PUT_MESSAGES: Final = 4096
"""Messages of one request: so many keep a leader busy for some hundredths of a second."""


class PutMessageStatus(IntEnum):
    """The outcome of a put, under RocketMQ's names; only PUT_OK promises that the message is
    stored."""

    PUT_OK = 0
    SERVICE_NOT_AVAILABLE = 1
    """This node cannot take messages now; nothing was written."""
    OS_PAGECACHE_BUSY = 2
    """Too much is under way. After WAIT_QUORUM_ACK_TIMEOUT the message may still be stored."""
    MESSAGE_ILLEGAL = 3
    """The bytes are no message, or one that is too large; nothing was written."""
    UNKNOWN_ERROR = 4
    """It may be stored or not."""


_NOT_AVAILABLE: Final = (
    *(Code.INCONSISTENT_LEADER, Code.NOT_LEADER, Code.LEADER_NOT_READY),
    *(Code.LEADER_TRANSFERRING, Code.DISK_FULL, Code.UNSUPPORTED, Code.ACCESS_DENIED),
)
_STATUS: Final = {
    Code.SUCCESS: PutMessageStatus.PUT_OK,
    **dict.fromkeys(_NOT_AVAILABLE, PutMessageStatus.SERVICE_NOT_AVAILABLE),
    Code.WAIT_QUORUM_ACK_TIMEOUT: PutMessageStatus.OS_PAGECACHE_BUSY,
    Code.LEADER_PENDING_FULL: PutMessageStatus.OS_PAGECACHE_BUSY,
    Code.MALFORMED: PutMessageStatus.MESSAGE_ILLEGAL,
    Code.RECORD_TOO_LARGE: PutMessageStatus.MESSAGE_ILLEGAL,
}
"""DLedgerCommitLog's status for DLedger's answer to an append."""


@slots_dataclass(kw_only=True)
class PutMessageRequest:
    """Payload: up to MAX_PUT_MESSAGES messages, each of which becomes one entry, side by side and
    in this order. Answered when the last one is committed and applied. Their queue offset, physical
    offset, store time and store host are replaced."""

    timeout_ms: int = 2500


@slots_dataclass(kw_only=True)
class PutMessageResponse(LeaderResponse):
    """One number for each message, in order; a queue offset is 0 for a message that has no place in
    a queue. ``store_host`` is the ``host:port`` that the messages carry."""

    physical_offsets: tuple[int, ...] = ()
    queue_offsets: tuple[int, ...] = ()
    store_timestamp: int = 0
    store_host: str = ""

    @property
    def status(self) -> PutMessageStatus:
        """The outcome of the put, in RocketMQ's words."""
        return _STATUS.get(self.code, PutMessageStatus.UNKNOWN_ERROR)


@slots_dataclass(kw_only=True)
class ViewMessageRequest:
    """The message at a physical offset. Linearizable (leader only) unless ``stale``, which any node
    answers from the entries that it knows to be committed."""

    physical_offset: int
    stale: bool = False


@slots_dataclass(kw_only=True)
class ViewMessageResponse(LeaderResponse):
    """Payload: the message. OFFSET_OUT_OF_RANGE: no committed message begins at that offset, or it
    is not kept any more."""


class GetMessageStatus(IntEnum):
    """The state of a queue offset, under RocketMQ's names."""

    FOUND = 0
    MESSAGE_WAS_REMOVING = 2
    """Retention is just taking it away; go on at ``next_begin_offset``."""
    OFFSET_FOUND_NULL = 3
    """Only places without a message; go on at ``next_begin_offset``."""
    OFFSET_OVERFLOW_BADLY = 4
    """Behind the place of the next message."""
    OFFSET_OVERFLOW_ONE = 5
    """The place of the next message, which has not come yet."""
    OFFSET_TOO_SMALL = 6
    """Not kept any more."""
    NO_MATCHED_LOGIC_QUEUE = 7
    """No message was ever put into this queue."""


@slots_dataclass(kw_only=True)
class GetMessageRequest:
    """Messages of a queue from ``queue_offset`` on. Linearizable (leader only) unless ``stale``,
    which any node answers from its dispatched messages."""

    topic: str
    queue_id: int
    queue_offset: int
    max_messages: int = 32
    max_bytes: int = 4 << 20
    stale: bool = False


@slots_dataclass(kw_only=True)
class GetMessageResponse(LeaderResponse):
    """Payload: the messages, at least one where one is FOUND, even over ``max_bytes``.
    ``min_offset`` is that of the first message that is kept, ``max_offset`` the one that the next
    message gets."""

    status: GetMessageStatus = GetMessageStatus.FOUND
    next_begin_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0


@slots_dataclass(kw_only=True)
class QueryMessageRequest:
    """Messages with this unique key, or this word among their keys, that were stored from
    ``begin_ms`` to ``end_ms`` (both included; milliseconds since 1970). Linearizable (leader only)
    unless ``stale``."""

    topic: str
    key: str
    max_messages: int = 32
    begin_ms: int = 0
    end_ms: int = (1 << 63) - 1
    stale: bool = False


@slots_dataclass(kw_only=True)
class QueryMessageResponse(LeaderResponse):
    """Payload: the messages, the newest first."""


BrokerRequest = PutMessageRequest | ViewMessageRequest | GetMessageRequest | QueryMessageRequest
