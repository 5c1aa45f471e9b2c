"""A commit log that takes another log's bytes only as far as they are sound messages: a slave's.

A master's bytes are put into the log as they come, whole messages or not. But a damaged message is
refused when its last byte is there, before that is written, and its written part is cut off again.
So a slave never acknowledges a log that it could not start with, and goes on behind the last sound
message when it is started anew.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from dledger.errors import FormatError
from dledger.rocketmq.dispatch.build_consume_queue import (
    IN_QUEUE,
    ROLLBACK,
    Dispatcher,
    DispatchRequest,
)
from dledger.rocketmq.dispatch.chunk import Chunk, sound_rows
from dledger.rocketmq.format.message import PAIR
from dledger.rocketmq.store.commit_log import CommitLog
from dledger.rocketmq.store.consume_queue import MAX_QUEUE_OFFSET
from dledger.rocketmq.store.consume_queues import MAX_QUEUE_ID, checked_topic
from dledger.rocketmq.with_numpy import np
from dledger.types import Buffer


class CheckedLog:
    """The log that `dledger.rocketmq.ha.follower.BrokerFollower` needs, over a `CommitLog` that
    ends behind a message.

    Args:
        log: where the bytes go.
        next_offsets: topic and queue id -> queue offset of the next message, as far as that is
            known.
        units_in_file: of a consume queue: no message is so far behind its queue's end that a whole
            file is left out.
    """

    def __init__(
        self, log: CommitLog, next_offsets: Mapping[tuple[str, int], int], *, units_in_file: int
    ) -> None:
        self._log = log
        self._next = dict(next_offsets)
        self._units = units_in_file
        self._dispatcher = Dispatcher(check=True)
        self._sound = log.max_offset
        self._needed = 0
        """Bytes of the message at ``_sound`` that must be there before it is looked at again."""

    @property
    def max_offset(self) -> int:
        """Where the log ends, perhaps within a message."""
        return self._log.max_offset

    @property
    def sound_offset(self) -> int:
        """Behind the last byte that is part of a sound message, or closes a file."""
        return min(self._sound, self._log.max_offset)

    def flush(self) -> None:
        """See `CommitLog.flush`."""
        self._log.flush()

    def append_raw(self, offset: int, data: Buffer) -> int:
        """As `CommitLog.append_raw`, for bytes of one file.

        Raises:
            FormatError: a message in it is damaged. The bytes before it are in the log, which ends
                there.
        """
        log, whole = self._log, memoryview(data).cast("B")
        if log.files.is_empty:
            self._sound = offset
        begun, looked = log.max_offset - self._sound, whole
        if begun < 0:  # behind a blank: the rest of its file says nothing
            return log.append_raw(offset, whole)
        if begun > 0:  # a message has begun
            if begun + len(whole) < self._needed:
                return log.append_raw(offset, whole)
            looked = memoryview(log.read(self._sound, begun) + bytes(whole))
        try:
            self._check(looked)
        except FormatError as error:
            if self._sound < log.max_offset:
                log.files.truncate_dirty(self._sound)
            elif self._sound > offset:
                log.append_raw(offset, whole[: self._sound - offset])
            raise FormatError(
                f"{error}. So the master sends it: 'dledger rocketmq verify' there shows its "
                f"damage, and 'follow' goes on at {self._sound:,} when it is mended. What is "
                f"before is in {log.files.directory}"
            ) from None
        return log.append_raw(offset, whole)

    def _check(self, view: memoryview) -> None:
        """Look at bytes from ``_sound`` on, and move it as far as they are sound messages."""
        size, start, at, self._needed = self._log.file_size, self._sound, 0, 0
        while at < len(view):
            self._check_chunk(view[at:])
            begin = self._sound
            found, self._sound = self._dispatcher.requests(
                view[begin - start :], begin, begin - begin % size + size
            )
            for request in found:
                try:
                    self._follows(request)
                except FormatError:
                    self._sound = request.physical_offset
                    raise
            if self._sound == start + at:
                break
            at = self._sound - start
        rest = len(view) - at
        if rest >= PAIR.size:
            if not any(view[at : at + PAIR.size]):
                raise FormatError(
                    f"commit log, byte {self._sound:,}: zeros, where a message or a blank must be"
                )
            claimed: int = PAIR.unpack_from(view, at)[0]
            if claimed > size - self._sound % size:
                raise FormatError(
                    f"commit log, byte {self._sound:,}: a message of {claimed:,} bytes, over the "
                    f"end of its file"
                )
            self._needed = max(claimed, rest + 1)

    def _check_chunk(self, view: memoryview) -> None:
        """Check many messages at once. Where one of them is not in order, they are left to the
        check of one message at a time, which gives the reason."""
        rows = sound_rows(view, self._sound, check=True)
        if rows is None:
            return
        try:
            chunk = Chunk(rows, self._sound)
            chunk.columns.properties_text().validate(full=True)
            for topic in chunk.topics:
                checked_topic(topic)
        except (UnicodeDecodeError, pa.ArrowInvalid, FormatError):
            return
        ends = self._ends_behind(chunk)
        if ends is not None:
            self._next |= ends
            self._sound = chunk.end

    def _ends_behind(self, chunk: Chunk) -> dict[tuple[str, int], int] | None:
        """As `_follows` for each message: where each queue ends then; None where its messages must
        be looked at one by one."""
        ends = {}
        for key, rows in chunk.queues():
            offsets = chunk.queue_offsets[rows]
            first, last = int(offsets[0]), int(offsets[-1])
            end = self._next.get(key, first)
            possible = 0 <= key[1] <= MAX_QUEUE_ID and 0 <= first <= end + self._units
            possible = possible and last <= MAX_QUEUE_OFFSET
            if not possible or bool((np.diff(offsets) != 1).any()):
                return None
            ends[key] = max(end, last + 1)
        return ends

    def _follows(self, request: DispatchRequest) -> None:
        """See that the message can be put into its queue.

        Raises:
            FormatError: it names a queue, or a place in it, that cannot be.
        """
        key, offset = (request.topic, request.queue_id), request.queue_offset
        place = request.physical_offset
        try:
            checked_topic(request.topic)
        except FormatError as error:
            raise FormatError(f"commit log, byte {place:,}: {error}") from None
        if request.sys_flag & ROLLBACK not in IN_QUEUE:
            return
        if not 0 <= request.queue_id <= MAX_QUEUE_ID:
            raise FormatError(f"commit log, byte {place:,}: a message of queue {request.queue_id}")
        end = self._next.get(key, offset)
        if not 0 <= offset <= min(MAX_QUEUE_OFFSET, end + self._units):
            raise FormatError(
                f"commit log, byte {place:,}: a message with queue offset {offset:,}, and queue "
                f"{request.queue_id} of {request.topic} ends at {end:,}"
            )
        self._next[key] = max(end, offset + 1)
