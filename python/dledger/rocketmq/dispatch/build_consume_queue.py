"""The dispatch of messages from the commit log: consume queues and index are made of them.

`Dispatcher` reads bytes of a log and returns the messages in them; `Reput` puts those into the
queues and the index and remembers how far it has come. It takes the plain commit log and that of
DLedger mode, where a message lies 48 bytes behind the start of its entry. The rules are the
original's: a message gets a unit in its queue unless it is prepared or rolled back in a
transaction, and a place in the index unless it is rolled back; its tags code is the hash of its
tags, or the time of delivery for one that is delayed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Final, NamedTuple

from dledger.checksum import crc32
from dledger.errors import FormatError
from dledger.protocol.messages.entry import HEADER_SIZE, MAGIC_NORMAL
from dledger.rocketmq.format.append_hook import COMMON_SIZE, STORED_AT
from dledger.rocketmq.format.message import (
    BORN_V6,
    CRC_MASK,
    EITHER_V6,
    INT16,
    INT64,
    MAGIC_V1,
    MESSAGE_MAGICS,
    MIN_MESSAGE,
    PAIR,
    TransactionType,
    lay_out,
)
from dledger.rocketmq.format.properties import TAGS, java_hash, keys_of, parse_properties
from dledger.rocketmq.format.scan import Scanner
from dledger.rocketmq.format.scanned_piece import Incomplete, PieceKind, Unbounded
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.index_service import IndexService
from dledger.rocketmq.store.mapped_file_queue import MappedFileQueue
from dledger.types import Buffer

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
DELAY: Final = "DELAY"
SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DELAY_LEVELS_MS: Final = (
    *(n * SECOND for n in (1, 5, 10, 30)),
    *(n * MINUTE for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    HOUR,
    2 * HOUR,
)
"""How long a message of each delay level waits (messageDelayLevel), from level 1 on."""
CHUNK: Final = 4 << 20
ROLLBACK: Final = int(TransactionType.ROLLBACK)
IN_QUEUE: Final = (int(TransactionType.NONE), int(TransactionType.COMMIT))
MANY: Final = 10_000
"""So many topics and tags are remembered."""
topic_text = lru_cache(MANY)(bytes.decode)
"""The same string for a topic each time."""
tags_hash = lru_cache(MANY)(java_hash)
FIELDS: Final = struct.Struct(">iIIi4xqqi16xq20xi")
"""Of a message with IPv4 hosts: size, magic, CRC, queue id, queue offset, place, flags, store time,
and body size."""
assert FIELDS.size == COMMON_SIZE
LEAST_ENTRY: Final = HEADER_SIZE + MIN_MESSAGE


class DispatchRequest(NamedTuple):
    """One message, as far as queues and index need it."""

    topic: str
    queue_id: int
    physical_offset: int
    size: int
    """Bytes of the message, without an entry's header."""
    tags_code: int
    store_timestamp: int
    queue_offset: int
    keys: Sequence[str]
    """The keys in the index: the unique key, then each word of KEYS."""
    sys_flag: int


new_request = partial(tuple.__new__, DispatchRequest)
"""Of a tuple of its fields, in half the time that its own way takes."""


class Dispatcher:
    """Reads messages out of bytes of a log."""

    def __init__(self, *, check: bool = False) -> None:
        """Args:
        check: compare bodies with their CRC; otherwise the writer of the log has done that.
        """
        self._check = check

    def requests(
        self, data: Buffer, start: int, file_end: int
    ) -> tuple[list[DispatchRequest], int]:
        """The messages that begin with the first byte of the data, one behind the other, as far as
        they are whole.

        Args:
            data: bytes of one file from the border of a message on.
            start: offset in the log of the first byte.
            file_end: offset in the log where the file ends.

        Returns:
            The messages, and the offset in the log behind the last one: to go on from there with
            more bytes. A blank leads to ``file_end``.

        Raises:
            FormatError: the data do not begin with a message; it says where, and why.
        """
        view = memoryview(data).cast("B")
        found: list[DispatchRequest] = []
        at, size, unpack = 0, len(view), PAIR.unpack_from
        while at + PAIR.size <= size:
            # A message begins with size and magic, an entry with magic and size: the order tells
            # them apart.
            first, second = unpack(view, at)
            if second in MESSAGE_MAGICS and MIN_MESSAGE <= first <= size - at:
                place, end = at, at + first
            elif first == MAGIC_NORMAL and LEAST_ENTRY <= second <= size - at:
                place, end = at + HEADER_SIZE, at + second
            else:
                try:
                    end = self._other(view, at, start, file_end)
                except FormatError:
                    # The messages before the damage are returned first. The next call begins with
                    # the damage, and raises.
                    if found:
                        break
                    raise
                if end == at:
                    break
                at = end
                continue
            request = self._request(view, place, end, start)
            if request is None:
                if not found:
                    raise self._wrong(view, at, start, file_end)
                break
            found.append(request)
            at = end
        return found, start + at

    def message(self, data: Buffer, place: int) -> DispatchRequest | None:
        """The message that these bytes are, all of them, at this offset in the log; None where they
        are none."""
        return self._request(data, 0, len(data), place) if len(data) >= MIN_MESSAGE else None

    def _request(self, view: Buffer, at: int, end: int, start: int) -> DispatchRequest | None:
        """A message of a size that can be; None where something about it is wrong."""
        size, magic, crc, queue_id, queue_offset, physical, sys_flag, stored, body_size = (
            FIELDS.unpack_from(view, at)
        )
        # A message says where it lies, so one of another place, in a body or left over, is told.
        if physical != at + start or size != end - at:
            return None
        if magic == MAGIC_V1 and not sys_flag & EITHER_V6:
            body = at + COMMON_SIZE
            body_end = body + body_size
            if not body <= body_end <= end - 3:
                return None
            # Behind the body: size of the topic (1 byte), topic, size of the properties (2),
            # properties. They must fill the message exactly.
            rest = bytes(view[body_end:end])
            topic_end = 1 + rest[0]
            properties_at = topic_end + 2
            if properties_at > len(rest) or properties_at + INT16.unpack_from(rest, topic_end)[
                0
            ] != len(rest):
                return None
            name, text = rest[1:topic_end], rest[properties_at:]
        else:
            try:
                parts = lay_out(view, at, size)
            except FormatError:
                return None
            body, body_end = parts.body, parts.body_end
            name, text = (
                bytes(view[parts.topic : parts.topic_end]),
                bytes(view[parts.properties : end]),
            )
            if sys_flag & BORN_V6:
                (stored,) = INT64.unpack_from(view, at + STORED_AT + 12)
        if self._check and body_end > body and crc32(view[body:body_end]) & CRC_MASK != crc:
            return None
        try:
            topic = topic_text(name)
            properties = parse_properties(text.decode())
        except UnicodeDecodeError:
            return None
        due = _time_of_delivery(properties, stored) if topic == SCHEDULE_TOPIC else None
        code = tags_hash(properties.get(TAGS, "")) if due is None else due
        words = keys_of(properties)
        return new_request(
            (topic, queue_id, physical, size, code, stored, queue_offset, words, sys_flag)
        )

    def _other(self, view: memoryview, at: int, start: int, file_end: int) -> int:
        """Pass bytes that are neither a whole message nor a whole entry: where to go on, which is
        ``at`` where that takes more bytes.

        Raises:
            FormatError: no log has this.
        """
        scanner = Scanner(view, start, file_end=file_end, data_end=file_end, check=False)
        try:
            piece = scanner.piece(start + at)
        except (Incomplete, Unbounded) as more:
            if isinstance(more, Unbounded) and more.reason:
                raise FormatError(f"commit log, byte {start + at:,}: {more.reason}") from None
            return at
        if piece.kind is PieceKind.DAMAGE:
            raise FormatError(f"commit log, byte {start + at:,}: {piece.reason}")
        return at if piece.kind is PieceKind.UNUSED else piece.end - start

    def _wrong(self, view: memoryview, at: int, start: int, file_end: int) -> FormatError:
        """The fault of a message, as an error."""
        scanner = Scanner(view, start, file_end=file_end, data_end=file_end, check=self._check)
        try:
            reason = scanner.piece(start + at).reason
        except (Incomplete, Unbounded) as more:
            reason = getattr(more, "reason", "")
        return FormatError(
            f"commit log, byte {start + at:,}: {reason or 'topic or properties are not UTF-8'}"
        )


def _time_of_delivery(properties: Mapping[str, str], stored: int) -> int | None:
    """Of a message that is delayed; None where it names no level."""
    text = properties.get(DELAY, "")
    level = min(int(text), len(DELAY_LEVELS_MS)) if text.isdecimal() and len(text) < 10 else 0
    return stored + DELAY_LEVELS_MS[level - 1] if level else None


class Reput:
    """Puts messages into consume queues and index, from ``offset`` on.

    Bytes may be handed over again, from anywhere at or before ``offset``: a message that is there
    already is not put twice.
    """

    def __init__(
        self,
        queues: ConsumeQueues,
        index: IndexService | None,
        *,
        offset: int,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        """Args:
        index: None makes no index (messageIndexEnable=false).
        offset: reputFromOffset, the border in the log up to which everything has been dispatched.
        """
        self._queues = queues
        self._index = index
        self._dispatcher = Dispatcher() if dispatcher is None else dispatcher
        self.offset = offset
        self.store_timestamp = 0
        """Of the last message that was dispatched, in milliseconds since 1970; 0 before there is
        one."""

    def dispatch(self, data: Buffer, start: int, file_end: int) -> int:
        """Put the messages that are whole in the data; the new `offset`.

        Args:
            data: bytes of one file of the log.
            start: offset in the log of the first byte, at or before `offset`.
            file_end: offset in the log where the file ends.

        Raises:
            FormatError: the bytes at `offset` are no message, or name a queue that cannot be; the
                messages before have been put.
            DiskFull, StorageError: queues or index cannot be written; `offset` is where it was.
        """
        skipped = self.offset - start
        if skipped < 0:
            raise ValueError(f"bytes from {start:,} on; those from {self.offset:,} on come first")
        found, end = self._dispatcher.requests(memoryview(data)[skipped:], self.offset, file_end)
        self.put(found)
        self.offset = end
        return end

    def catch_up(self, files: MappedFileQueue, stop: int | None = None) -> int:
        """Dispatch the messages of a log, up to its end or to ``stop``, which need not be the
        border of a message; the new `offset`. A log that begins behind `offset` has lost the
        messages before.

        Raises:
            As for `dispatch`.
        """
        self.offset, window = max(self.offset, files.min_offset), CHUNK
        last = files.max_offset if stop is None else min(stop, files.max_offset)
        while (begin := self.offset) < last:
            rest = files.file_size - begin % files.file_size
            length = min(window, rest, files.max_offset - begin)
            # Without progress the window holds no whole message. A larger one helps, unless this
            # one ended with the file or the log already.
            if self.dispatch(files.read(begin, length), begin, begin + rest) > begin:
                window = CHUNK
            elif length < window:
                break
            else:
                window *= 4
        return self.offset

    def put(self, requests: Iterable[DispatchRequest]) -> None:
        """Put messages, and hand everything to the file system.

        Raises:
            As for `dispatch`.
        """
        put_unit, index = self._queues.put, self._index
        with self._writing():
            for request in requests:
                topic, queue_id, physical, size, code, stored, queue_offset, words, flag = request
                state = flag & ROLLBACK
                if state in IN_QUEUE:
                    put_unit(topic, queue_id, queue_offset, physical, size, code)
                if words and index is not None and state != ROLLBACK:
                    index.put(topic, words, physical, stored)
                self.store_timestamp = stored

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hand everything that is put meanwhile to the file system, also after an error: `offset`
        stays where it is then, so the next call puts these messages again. Queues and index pass
        over those that they have."""
        try:
            yield
        finally:
            self._queues.write()
            if self._index is not None:
                self._index.write()
