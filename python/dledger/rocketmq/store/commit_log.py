"""A plain commit log: messages of all topics one behind the other, in files that a blank closes.

A message is put at its place, or comes as bytes from a master, which has placed it already. Where
the log ends after a crash is found by walking over the messages: where the first unsound one
stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from dledger.errors import CorruptStore, FormatError, OffsetOutOfRange, RecordTooLarge
from dledger.rocketmq.dispatch.build_consume_queue import Dispatcher, DispatchRequest
from dledger.rocketmq.format.append_hook import OFFSETS, QUEUE_OFFSET_AT, STORED_AT
from dledger.rocketmq.format.checkpoint import RECOVERY_SLACK_MS
from dledger.rocketmq.format.message import (
    BLANK_SIZE,
    INT64,
    MESSAGE_MAGICS,
    PAIR,
    Message,
    SysFlag,
    TransactionType,
    decode_message,
    encode_blank,
    encode_message,
    lay_out,
)
from dledger.rocketmq.format.scan import Scanner
from dledger.rocketmq.format.scanned_piece import Incomplete, PieceKind
from dledger.rocketmq.store.files import FileHandles
from dledger.rocketmq.store.index_service import now_ms
from dledger.rocketmq.store.mapped_file_queue import MappedFileQueue
from dledger.rocketmq.store.placed import Placed, RecoveredLog
from dledger.types import Buffer

COMMIT_LOG_FILE: Final = 1 << 30
"""Bytes of a file (mappedFileSizeCommitLog)."""
WINDOW: Final = 8 << 20
OVERLAP: Final = 64
"""Of two windows in a search: more than a mark and the bytes around it."""
FIRST_BYTES: Final = 80
"""Of a message, with its store time in them."""
PENDING: Final = (int(TransactionType.PREPARED), int(TransactionType.ROLLBACK))

QueueKey = tuple[str, int]
"""Topic and queue id."""
CheckEnd = Callable[[int, int], None]
"""``check(end, latest)``: where a log was found to end, and the latest store time of the messages
walked over."""


class CommitLog:
    """The folder ``commitlog`` of a store."""

    def __init__(
        self,
        root: Path,
        file_size: int = COMMIT_LOG_FILE,
        *,
        handles: FileHandles | None = None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        """Open the files that there are; until one of the ``recover`` methods has been called, the
        log seems to reach to the end of the last one.

        Args:
            root: the store's folder (storePathRootDir).
            file_size: bytes of each file.
            clock: milliseconds since 1970: store times.

        Raises:
            CorruptStore: a file has another size, or is missing between others.
            PathError: the folder cannot be read.
        """
        self.files = MappedFileQueue(root / "commitlog", file_size, handles=handles)
        self.file_size = file_size
        self.next_offsets: dict[tuple[str, int], int] = {}
        """The queue offset that the next message of a topic and queue gets (topicQueueTable); set
        by the part that knows the consume queues."""
        self.store_timestamp = 0
        """Of the last message, in milliseconds since 1970."""
        self._clock = clock

    @property
    def min_offset(self) -> int:
        return self.files.min_offset

    @property
    def max_offset(self) -> int:
        return self.files.max_offset

    def put_messages(self, messages: Iterable[Message], *, stamped: bool = False) -> list[Placed]:
        """Put messages at the log's end, all or none: each gets its place, the next offset of its
        queue, a store time.

        A prepared or rolled back message gets queue offset 0 and takes none. A blank closes a file
        that has no room.

        Args:
            stamped: they have store times that are to be kept.

        Raises:
            RecordTooLarge: a message has no room in a file of this size.
            ValueError: topic, body or properties are longer than the format allows.
            DiskFull, StorageError: the log ends where it did before.
        """
        begin, now = self.max_offset, 0 if stamped else self._clock()
        taken: dict[tuple[str, int], int] = {}
        placed: list[Placed] = []
        pending: list[bytes | bytearray] = []
        try:
            at = begin
            for message in messages:
                data = bytearray(encode_message(message))
                at = self._place(at, len(data), pending)
                placed.append(self._stamp(data, message, at, now, taken))
                pending.append(data)
                at += len(data)
            self._write(pending)
        except BaseException:
            if self.max_offset > begin:
                self.files.truncate_dirty(begin)
            raise
        self.next_offsets.update(taken)
        self.store_timestamp = placed[-1].store_timestamp if placed else self.store_timestamp
        return placed

    def _place(self, at: int, size: int, pending: list[bytes | bytearray]) -> int:
        """The place for a message of this size; pending bytes are written before a blank."""
        room = self.file_size - at % self.file_size
        if size + BLANK_SIZE <= room:
            return at
        if size + BLANK_SIZE > self.file_size:
            raise RecordTooLarge(
                f"a message of {size:,} bytes in a commit log with files of {self.file_size:,}: "
                "make the files larger, or the message smaller"
            )
        self._write(pending)
        self.files.close_file(encode_blank(room))
        return at + room

    def _write(self, pending: list[bytes | bytearray]) -> None:
        if pending:
            self.files.append(b"".join(pending))
            pending.clear()

    def _stamp(
        self, data: bytearray, message: Message, at: int, now: int, taken: dict[QueueKey, int]
    ) -> Placed:
        queue_offset, key = 0, (message.topic, message.queue_id)
        if message.transaction not in PENDING:
            queue_offset = taken[key] if key in taken else self.next_offsets.get(key, 0)
            taken[key] = queue_offset + 1
        OFFSETS.pack_into(data, QUEUE_OFFSET_AT, queue_offset, at)
        if now:
            INT64.pack_into(data, STORED_AT + 12 * message.born_host.is_v6, now)
        return Placed(at, queue_offset, now or message.store_timestamp, len(data))

    def append_raw(self, offset: int, data: Buffer) -> int:
        """Take bytes of another log as they are, as a slave does; the new end.

        Args:
            offset: where they lie: exactly at this log's end. An empty log begins where a file of
                this size begins.
            data: messages, blanks, and parts of such.

        Raises:
            OffsetOutOfRange: they lie elsewhere; nothing was written.
            DiskFull, StorageError: the log ends where it did before.
        """
        if self.files.is_empty and offset >= 0 and offset % self.file_size == 0:
            self.files.start_at(offset)
        if offset != self.max_offset:
            raise OffsetOutOfRange(
                f"bytes from {offset:,} on for {self.files.directory}, which ends at "
                f"{self.max_offset:,}; a log goes "
                f"on at its end, and begins at a multiple of {self.file_size:,}",
                self.min_offset,
                self.max_offset,
            )
        self.files.append(data)
        return self.max_offset

    def read(self, offset: int, size: int) -> bytes:
        """Exactly these bytes.

        Raises:
            OffsetOutOfRange: not all of them are there.
        """
        return self.files.read(offset, size)

    def message_at(self, offset: int) -> Message:
        """The message at a physical offset.

        Raises:
            OffsetOutOfRange: nothing is there.
            FormatError: no message begins there, or it is damaged.
        """
        size, magic = PAIR.unpack(self.read(offset, PAIR.size))
        if magic not in MESSAGE_MAGICS or size < FIRST_BYTES:
            raise FormatError(f"no message begins at {offset:,} in {self.files.directory}")
        return decode_message(self.read(offset, size))

    def flush(self) -> None:
        """Return when everything that was put is on the disk.

        Raises:
            StorageError: it is not, or perhaps not.
        """
        self.files.flush()

    def recover_normally(
        self, *, cut_damage: bool = False, check: CheckEnd | None = None
    ) -> RecoveredLog:
        """Find the end after a clean stop, from the third last file on, and let the log end there.

        Args:
            cut_damage: when a sound message stands behind damage, give it up, as the
                original does.
            check: gets the end, and the latest store time on the way, before anything is cut; it
                may raise.

        Raises:
            CorruptStore: a sound message stands behind damage.
        """
        begin = next(iter(self.files.starts[-3:]), 0)
        return self._recovered(begin, None, -1 if cut_damage else 1 << 62, check)

    def recover_abnormally(
        self,
        begin: int,
        physic_msg_timestamp: int,
        put: Callable[[Sequence[DispatchRequest]], None],
        *,
        cut_damage: bool = False,
        check: CheckEnd | None = None,
    ) -> RecoveredLog:
        """Find the end after a crash, from ``begin`` on, and let the log end there.

        Args:
            begin: see `recovery_start`.
            physic_msg_timestamp: the checkpoint's: messages stored before are on the disk.
            put: gets the messages on the way.
            cut_damage: give up the log behind damage, on the disk or not, as the original does.
            check: as for `recover_normally`.

        Raises:
            CorruptStore: a message that was on the disk stands behind the damage.
        """
        self.files.doubt(begin)
        before, since = physic_msg_timestamp, physic_msg_timestamp - RECOVERY_SLACK_MS
        return self._recovered(begin, put, -1 if cut_damage else before, check, since)

    def recovery_start(self, recovery_timestamp: int) -> int:
        """Start of the last file whose first message was stored at this time (milliseconds since
        1970) or before, or of the first file: the log before it is on the disk, and in the queues
        too."""
        for start in reversed(self.files.starts):
            stored = self.first_stored(start)
            if stored and stored <= recovery_timestamp:
                return start
        return self.min_offset

    def first_stored(self, start: int) -> int:
        """Store time of the message at the beginning of a file, 0 where there is none."""
        end = min(self.max_offset, start - start % self.file_size + self.file_size)
        if start + FIRST_BYTES > end:
            return 0
        head = self.read(start, FIRST_BYTES)
        if PAIR.unpack_from(head)[1] not in MESSAGE_MAGICS:
            return 0
        wide = bool(int.from_bytes(head[36:40]) & SysFlag.BORN_HOST_V6)
        return int(INT64.unpack_from(head, STORED_AT + 12 * wide)[0])

    def _recovered(
        self,
        begin: int,
        put: Callable[[Sequence[DispatchRequest]], None] | None,
        durable_before: int,
        check: CheckEnd | None,
        since: int = 1 << 63,
    ) -> RecoveredLog:
        """What was stored ``since`` then may never get to the disk: it is written again."""
        dispatcher, at, stored, latest, reason = Dispatcher(check=True), begin, 0, 0, ""
        last: DispatchRequest | None = None
        window, unsure = WINDOW, 1 << 63
        while at < self.max_offset:
            rest = self.file_size - at % self.file_size
            data = self.read(at, min(window, rest))
            try:
                found, end = dispatcher.requests(data, at, at + rest)
            except FormatError as error:
                reason = str(error)
                break
            if found:
                last = found[-1]
                stored = last.store_timestamp
                newest = max(one.store_timestamp for one in found)
                latest = max(latest, newest)
                unsure = min(unsure, at) if newest >= since else unsure
                if put is not None:
                    put(found)
            if end == at:
                if not any(data[: PAIR.size]):
                    break
                if len(data) == rest:
                    reason = f"commit log, byte {at:,}: a message without its end"
                    break
                window *= 4
            else:
                window = WINDOW
            at = end
        begun = last if last is not None and last.physical_offset + last.size == at else None
        if begun is not None and self._is_begun(begun) and begun.store_timestamp >= durable_before:
            at, begun = begun.physical_offset, None
        if reason:
            self._check_behind(at, durable_before, reason)
        if begun is not None and not reason and self._is_begun(begun):
            where = f"commit log, byte {begun.physical_offset:,}"
            reason = f"{where}: zeros in topic or properties of the last message"
        if check is not None:
            check(at, latest)
        self.files.truncate_dirty(at)
        self.files.write_again(unsure)
        self.store_timestamp = stored
        return RecoveredLog(self.max_offset, reason)

    def _is_begun(self, last: DispatchRequest) -> bool:
        """Whether the log's last message may not have been written to its end: topic and
        properties, which no checksum covers, have zeros in them. A slave that takes it for whole
        never asks for the rest."""
        data = self.read(last.physical_offset, last.size)
        parts = lay_out(data, 0, len(data))
        return 0 in data[parts.topic : parts.topic_end] or 0 in data[parts.properties :]

    def _check_behind(self, offset: int, durable_before: int, reason: str) -> None:
        """Refuse to cut off bytes that had been on the disk."""
        if durable_before < 0:
            return
        begin = offset - offset % self.file_size
        for start in [begin, *(start for start in self.files.starts if start > offset)]:
            found = self._next_message(max(offset + 1, start), start + self.file_size)
            if found is None:
                continue
            if found.store_timestamp < durable_before:
                path = self.files.path(begin)
                raise CorruptStore(
                    f"{path}: {reason}; but a message that was on the disk stands behind it, at "
                    f"{found.physical_offset:,}. Put a copy of the damaged file in its place, or "
                    "open the store with cut_damage, which gives up everything from there on"
                )
            return

    def _next_message(self, at: int, file_end: int) -> Message | None:
        """The first sound message at or behind a place in a file."""
        length = WINDOW
        while at < file_end:
            data = self.read(at, min(length, file_end - at))
            scanner = Scanner(data, at, file_end=file_end, data_end=file_end)
            length = WINDOW
            try:
                found = scanner.next_sound(at)
            except Incomplete as more:
                at, length = more.offset, max(WINDOW, more.end - more.offset)
                continue
            if found is not None:
                is_message = found.kind is PieceKind.MESSAGE
                return decode_message(data, found.start - at) if is_message else None
            at += max(1, len(data) - OVERLAP) if at + len(data) < file_end else len(data)
        return None
