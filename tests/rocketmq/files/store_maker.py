"""Writes stores as brokers and DLedger nodes do: files of one size, closed by blanks."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from dledger.protocol.messages.entry import HEADER
from dledger.rocketmq.format.hosts import Host
from dledger.rocketmq.format.message import (
    Message,
    encode_blank,
    encode_dledger_blank,
    encode_message,
    message_size,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
HOST = Host.of("10.1.2.3", 10911)
FIRST = 1_790_000_000_000
"""When the first message of a store is stored; each one is stored a second after the one before."""


class Log:
    """A log that grows in a folder."""

    def __init__(
        self, folder: Path, file_size: int, start: int = 0, *, entries: bool = False
    ) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.file_size = file_size
        self.end = start
        self.entries = entries
        self.index = 0
        self.units: list[bytes] = []

    def path(self, offset: int) -> Path:
        return self.folder / f"{offset - offset % self.file_size:020d}"

    def write(self, offset: int, data: bytes) -> None:
        path = self.path(offset)
        if not path.exists():
            path.write_bytes(bytes(self.file_size))
        with path.open("r+b") as file:
            file.seek(offset % self.file_size)
            file.write(data)

    @property
    def room(self) -> int:
        return self.file_size - self.end % self.file_size

    def place(self, size: int) -> int:
        """Where something of this size goes; a blank closes the file that has no room."""
        if size + 8 > self.room:
            self.close()
        return self.end

    def close(self) -> None:
        blank = encode_dledger_blank if self.entries else encode_blank
        self.write(self.end, blank(self.room))
        self.end += self.room

    def append(self, messages: Iterable[Message], term: int = 3) -> list[int]:
        """Physical offsets of the messages."""
        return [self.message(message, term) for message in messages]

    def message(self, message: Message, term: int) -> int:
        size, head = message_size(message), 48 if self.entries else 0
        at = self.place(head + size) + head
        data = encode_message(message.moved(at))
        if self.entries:
            self.body(data, term)
        else:
            self.write(at, data)
            self.end += size
        return at

    def body(self, body: bytes, term: int) -> int:
        """Any entry; its position."""
        at = self.place(48 + len(body))
        head = HEADER.pack(1, 48 + len(body), self.index, term, at, 0, 0, 0, len(body))
        self.write(at, head + body)
        self.units.append(struct.pack(">iqiqq", 1, at, 48 + len(body), self.index, term))
        self.end = at + 48 + len(body)
        self.index += 1
        return at

    def commit(self, index: int) -> None:
        """What DLedger keeps beside the data: its index, and what is committed."""
        folder = self.folder.parent / "index"
        folder.mkdir(exist_ok=True)
        (folder / f"{0:020d}").write_bytes(b"".join(self.units).ljust(4096, b"\0"))
        (self.folder.parent / "checkpoint").write_text(
            f"endIndex={self.index - 1}\ncommittedIndex={index}\n"
        )


def some(count: int, size: int = 100, first: int = 0) -> list[Message]:
    """Messages that can be told apart, of two topics in turn."""
    topics = ("orders", "payments")
    return [
        Message(
            topics[n % len(topics)],
            f"{n:06d}".encode().ljust(size, b"."),
            f"KEYS\x01k{n}\x02TAGS\x01t{n % 3}",
            queue_id=n % 4,
            queue_offset=n // 4,
            born_timestamp=FIRST + 1000 * n - 5,
            born_host=HOST,
            store_timestamp=FIRST + 1000 * n,
            store_host=HOST,
        )
        for n in range(first, first + count)
    ]


def upgraded(root: Path, file_size: int = 4096, old: int = 40, new: int = 60) -> tuple[Log, Log]:
    """A store whose old commit log was closed before the first file of DLedger mode."""
    plain = Log(root / "commitlog", file_size)
    plain.append(some(old))
    plain.close()
    ledger = Log(root / "dledger-n0" / "data", file_size, plain.end, entries=True)
    ledger.append(some(new, first=old))
    return plain, ledger


__all__ = ["FIRST", "GOLDEN", "Log", "some", "upgraded"]
