"""An old plain commit log in front of a group's log: where the original's "smooth upgrade" leaves
its files.

A node that has one lies in ``dledger-<id>`` beside ``commitlog``, as a broker in DLedger mode has
it, and its file ``adopted`` says where the two meet. The old files are not written any more;
retention removes them before it removes anything of the group's log.
"""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Final, Self

from dledger.errors import CorruptStore, FormatError, OffsetOutOfRange, PathError
from dledger.rocketmq.format.message import MESSAGE_MAGICS, MIN_MESSAGE, PAIR, decode_message
from dledger.rocketmq.store.files import HOST, FileHandles, read_whole, storing, write_whole
from dledger.rocketmq.store.mapped_file_queue import MappedFileQueue
from dledger.rocketmq.store.store_lock import StoreLock
from dledger.storage.disk.disk import Disk

ADOPTED_FILE: Final = "adopted"
COMMIT_LOG: Final = "commitlog"


@dataclass(frozen=True, slots=True)
class Adopted:
    """The content of ``adopted``."""

    divided_offset: int
    """Where the old log ends and the group's begins."""
    file_size: int
    """Bytes of each file of both."""
    fingerprint: int
    """Of the old log's last file; equal on all members."""
    gone: bool = False
    """Retention has removed, or is removing, the last old file."""

    def save(self, directory: Path, disk: Disk = HOST) -> None:
        """Write it into a node's directory, durably.

        Raises:
            DiskFull, StorageError: it was not written, or perhaps not.
        """
        text = json.dumps(asdict(self), sort_keys=True)
        write_whole(directory / ADOPTED_FILE, text.encode(), disk=disk)

    @classmethod
    def load(cls, directory: Path, disk: Disk = HOST) -> Self | None:
        """The record in a node's directory; None where it has no old log.

        Raises:
            PathError: it cannot be read as `save` writes it.
        """
        path = directory / ADOPTED_FILE
        text = read_whole(path, disk)
        if text is None:
            return None
        try:
            found = cls(**json.loads(text))
            kinds = [type(value) for value in astuple(found)]
            if kinds == [int, int, int, bool] and found.file_size > 0:
                return found
        except (ValueError, TypeError):
            pass
        raise PathError(
            f"{path} is damaged: put it back from a backup, or from another member of the group"
        )


class OldCommitLog:
    """The old log of one node. One thread at a time; closing it gives the store's lock back."""

    def __init__(
        self, directory: Path, adopted: Adopted, *, lock: bool = True, disk: Disk = HOST
    ) -> None:
        """Open it.

        Args:
            directory: the node's.
            lock: keep brokers and others off the store that it is part of.

        Raises:
            PathError: it is not as it was adopted, or another process has it open.
        """
        self._directory, self._disk = directory, disk
        self._adopted = adopted
        self.root = directory.absolute().parent
        """Of the store that the old log is part of."""
        self._lock = StoreLock(self.root, disk) if lock else None
        try:
            self.files = self._open(self.root / COMMIT_LOG)
        except BaseException:
            self._release()
            raise

    @classmethod
    def find(cls, directory: Path, *, lock: bool = True, disk: Disk = HOST) -> Self | None:
        """The one of a node's directory, if it has one.

        Raises:
            PathError: as for `OldCommitLog` and `Adopted.load`.
        """
        adopted = Adopted.load(directory, disk)
        return None if adopted is None else cls(directory, adopted, lock=lock, disk=disk)

    def _open(self, path: Path) -> MappedFileQueue:
        adopted = self._adopted
        try:
            handles = FileHandles(disk=self._disk)
            files = MappedFileQueue(path, adopted.file_size, handles=handles)
        except CorruptStore as error:
            raise PathError(f"the old commit log in front of {self._directory}: {error}") from error
        if adopted.gone:
            files.destroy()  # retention was interrupted while removing it
        elif files.is_empty:
            raise PathError(
                f"{path} has no files, but the old commit log up to {adopted.divided_offset:,} "
                f"was adopted with it: "
                f'put it back. Who can do without its messages writes "gone": true into '
                f"{self._directory / ADOPTED_FILE}"
            )
        elif files.max_offset != adopted.divided_offset:
            raise PathError(
                f"{path} ends at {files.max_offset:,}, and was adopted when it ended at "
                f"{adopted.divided_offset:,}: put back missing files. Files behind that place are "
                "of a broker that was started on the store without DLedger mode; what it was "
                "sent is in no group"
            )
        return files

    @property
    def divided_offset(self) -> int:
        """Where the group's log begins."""
        return self._adopted.divided_offset

    @property
    def min_offset(self) -> int:
        """Of the first byte that is kept; `divided_offset` when none is. Any thread may ask."""
        return next(iter(self.files.starts), self.divided_offset)

    @property
    def fingerprint(self) -> str:
        """Equal on all members."""
        return f"{self._adopted.fingerprint:08x}"

    @property
    def is_gone(self) -> bool:
        """Whether no file is left."""
        return self.files.is_empty

    def message(self, physical_offset: int) -> bytes | None:
        """The message that begins at this place; None where none does, or it is not kept any more.

        Raises:
            FormatError: it is damaged.
        """
        if not self.min_offset <= physical_offset <= self.divided_offset - PAIR.size:
            return None
        try:
            size, magic = PAIR.unpack(self.files.read(physical_offset, PAIR.size))
            room = self.files.file_size - physical_offset % self.files.file_size
            if magic not in MESSAGE_MAGICS or not MIN_MESSAGE <= size <= room:
                return None
            data = self.files.read(physical_offset, size)
        except OffsetOutOfRange:
            return None
        try:
            if decode_message(data).physical_offset != physical_offset:
                return None
        except FormatError as error:
            raise FormatError(
                f"the message at {physical_offset:,} in the old commit log: {error}"
            ) from error
        return data

    def written_ms(self) -> dict[int, int]:
        """When each file was last written, in milliseconds since 1970, by its first offset."""
        found = {}
        for start in self.files.starts:
            with storing("look at", self.files.path(start)):
                found[start] = self._disk.mtime_ms(self.files.path(start))
        return found

    def delete_before(self, offset: int) -> None:
        """Remove files that end at or before this place, oldest first, the last one too.

        Raises:
            DiskFull, StorageError: the disk failed.
        """
        if offset >= self.divided_offset and not self._adopted.gone:
            self._adopted = replace(self._adopted, gone=True)
            self._adopted.save(self._directory, self._disk)
        self.files.delete_before(offset)
        if self._adopted.gone:
            self.files.destroy()

    def close(self) -> None:
        """Let go of it."""
        self.files.close()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
