"""A small store on a disk in memory, and what its tests say over and over."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dledger.protocol.messages.entry import Entry, HardState, LogEnd
from dledger.protocol.messages.entry_runs import stamp_all
from dledger.storage.api import LogStore
from dledger.storage.background import BackgroundState
from dledger.storage.disk.disk import Disk
from dledger.storage.disk.file_names import file_name
from dledger.storage.file_store import FileStore
from dledger.storage.log import index
from dledger.storage.offline.verify import verify_store
from dledger.storage.opening import open_settings
from dledger.storage.recovery.open_files import StoreSettings
from dledger.types import Index, NodeId, Term
from verification.disk.memory_disk import MemoryDisk
from verification.disk.memory_store import owned

SEGMENT = 1024
INDEX_FILE = 320


class Kit:
    """Files of 1 KiB of data and ten index units, so that a dozen entries need several of each."""

    segment = SEGMENT
    root = Path("/disk/n0")

    def settings(self, **changes: Any) -> StoreSettings:
        given = {
            "directory": self.root,
            "node_id": NodeId("n0"),
            "segment_bytes": SEGMENT,
            "index_file_bytes": INDEX_FILE,
            "disk_reserve_bytes": 0,
        }
        return StoreSettings(**{**given, **changes})

    def open(
        self, disk: Disk, keeping: BackgroundState = BackgroundState.INLINE, **changes: Any
    ) -> FileStore:
        return open_settings(self.settings(**changes), disk, keeping)

    def fresh(self, *keeping: BackgroundState, **changes: Any) -> tuple[MemoryDisk, FileStore]:
        """A new disk, and a store on it."""
        disk = MemoryDisk()
        return disk, self.open(disk, *keeping, **changes)

    def restart(
        self, disk: MemoryDisk, *keeping: BackgroundState, power: bool, **changes: Any
    ) -> FileStore:
        """The store of the next process; with ``power`` the system was gone too."""
        disk.reboot(power)
        return self.open(disk, *keeping, **changes)

    def crash(self, disk: MemoryDisk, outcome: str, seed: object = 0) -> None:
        """The process ends, or with it the system: then of what was not synced all is lost, or
        half, or what ``seed`` draws, or all survives."""
        kept = {
            "half": lambda n: n // 2,
            "survived": lambda n: n - 1,
            "seed": random.Random(f"{outcome} {seed}").randrange,
        }
        disk.reboot(outcome != "process", kept.get(outcome.split()[0]))

    def reopen(
        self, store: FileStore, disk: Disk, *keeping: BackgroundState, **changes: Any
    ) -> FileStore:
        """The store of the next process behind an orderly stop."""
        store.close()
        return self.open(disk, *keeping, **changes)

    def refuses(self, disk: Disk, error: type[Exception], says: str, **changes: Any) -> None:
        """The next process does not start with this disk, and says why."""
        with pytest.raises(error, match=says):
            self.open(disk, **changes)

    def close_sound(self, store: FileStore, disk: Disk) -> None:
        """An orderly stop, after which every byte verifies."""
        store.close()
        assert verify_store(self.root, disk)["problems"] == []

    def data(self, pos: int = 0) -> Path:
        """The file with this byte of the log."""
        return self.root / "data" / file_name(pos - pos % SEGMENT)

    def flip(self, disk: MemoryDisk, first: int, stop: int = 0, mask: int = 0xFF) -> None:
        """Rot: change the byte of the log at ``first``, or all from there up to ``stop``."""
        for pos in range(first, stop or first + 1):
            disk.flip(self.data(pos), pos % SEGMENT, mask)

    def make(
        self,
        end: LogEnd,
        sizes: Sequence[int],
        term: int = 1,
        magic: int = 1,
        salt: int = 0,
        segment: int = SEGMENT,
    ) -> list[Entry]:
        """Entries with bodies of those sizes that follow ``end``; the bodies tell them apart."""
        bodies = (
            bytes((index * 7 + salt * 31 + n) % 251 + 1 for n in range(size))
            for index, size in enumerate(sizes, end.position.index + 1)
        )
        return [owned(one) for one in stamp_all(end, Term(term), magic, bodies, segment)]

    def append(
        self, store: LogStore, sizes: Sequence[int], term: int = 1, **more: Any
    ) -> list[Entry]:
        """Entries that are written, with the hard state that the term asks for, and not synced."""
        self.reach(store, term)
        entries = self.make(store.end, sizes, term, **more)
        store.append(entries)
        return entries

    def fill(
        self, store: LogStore, sizes: Sequence[int], term: int = 1, **more: Any
    ) -> list[Entry]:
        """Entries that are written and synced."""
        entries = self.append(store, sizes, term, **more)
        store.sync()
        return entries

    def reach(self, store: LogStore, term: int) -> None:
        """See that the store's term is not lower."""
        if store.hard_state.term < term:
            store.save_hard_state(HardState(Term(term)))

    def all(self, store: LogStore) -> list[Entry]:
        """The whole log, read in small pieces."""
        entries: list[Entry] = []
        begin = store.begin_index
        while part := store.read(begin, 300):
            entries += part
            begin = Index(part[-1].index + 1)
        return entries

    def bytes_of(self, entries: Sequence[Entry]) -> list[bytes]:
        return [bytes(entry.header) + bytes(entry.body) for entry in entries]

    def refs(self, entries: Sequence[Entry]) -> list[tuple[int, int, int]]:
        return [(entry.index, entry.pos, entry.size) for entry in entries]


@pytest.fixture(autouse=True)
def each_unit_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """An append writes its index units at once, so that tests find in the index files what a node
    has there after many entries."""
    monkeypatch.setattr(index, "WAITING_UNITS", 1)


@pytest.fixture
def kit() -> Kit:
    return Kit()


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def store(kit: Kit, disk: MemoryDisk) -> FileStore:
    return kit.open(disk)
