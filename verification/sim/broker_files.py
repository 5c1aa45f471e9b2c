"""Consume queues and index of a simulated node: real files beside its log, with the time, the
errors and the power cuts of the node's simulated disk.

Writes and syncs ask that disk first. A sync of a file, or of a folder, is remembered as what a
power cut leaves for sure; of everything else it leaves any mix of pages and names.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from dledger.node.node import NodeServer
from dledger.node.rocketmq.dispatched import Dispatched
from dledger.node.rocketmq.dledger_commit_log import DLedgerCommitLog
from dledger.protocol.messages.entry import Entry
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.index_service import IndexService
from dledger.storage.disk.disk import Disk, DiskFile, RealDisk, RealFile
from dledger.types import Buffer
from verification.disk.memory_disk import ProcessKilled
from verification.invariants.queued import Queued
from verification.sim.disk import SimDisk
from verification.sim.outcome import SeedCounts
from verification.sim.rng import Rng

UNITS_IN_FILE: Final = 40
INDEX_SLOTS: Final = 32
INDEX_UNITS: Final = 300
FOLDER: Final = -1


class SmallDispatched(Dispatched):
    """With files of some dozen messages, so that a run sees many of each kind."""

    def __init__(
        self,
        directory: Path,
        wall_ms: Callable[[], int],
        on_open: Callable[[Dispatched], None],
        disk: Disk,
    ) -> None:
        super().__init__(directory, wall_ms, disk=disk)
        self._on_open = on_open

    def _open_files(self) -> None:
        self.queues = ConsumeQueues(
            self._root / "consumequeue", UNITS_IN_FILE, handles=self._handles
        )
        self.index = IndexService(
            self._root / "index",
            INDEX_SLOTS,
            units=INDEX_UNITS,
            clock=self._clock,
            disk=self._disk,
        )
        self._reput = self._reput_type(self.queues, self.index, offset=0)

    def open(self, store: Any) -> None:
        super().open(store)
        self._on_open(self)

    def let_go(self) -> None:
        """The process is gone: its descriptors are closed, and no byte is written."""
        self._handles.close()
        if hasattr(self, "index"):
            self.index.close()


class HostFiles:
    """The files of one host."""

    def __init__(self, root: Path, disk: SimDisk, rng: Rng, counts: SeedCounts) -> None:
        self.root = root
        self.disk = disk
        self._rng = rng
        self._counts = counts
        self._keep = root.with_name(f"{root.name}.kept")
        """A second name of every file that was synced, so that its number is not given to another
        one."""
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        self._used: SmallDispatched | None = None
        root.mkdir(parents=True)
        self._keep.mkdir()

    def use(self, files: SmallDispatched) -> None:
        """A process works with them from now on."""
        self.let_go()
        self._used = files

    def let_go(self) -> None:
        """That process is gone."""
        used, self._used = self._used, None
        if used is not None:
            used.let_go()

    def synced(self, path: Path) -> None:
        """The present content of a file, or the names of a folder, outlive a power cut."""
        if path.is_dir():
            names = {entry.name: self._number(entry) for entry in sorted(path.iterdir())}
            self._names[path] = names
        elif path.exists():  # else its name has gone meanwhile
            self._contents[self._number(path)] = path.read_bytes()

    def _number(self, path: Path) -> int:
        if path.is_dir():
            return FOLDER
        number = path.stat().st_ino
        kept = self._keep / str(number)
        if not kept.exists():
            os.link(path, kept)
        return number

    def cut_power(self) -> None:
        """Of what was not synced any page and any name may be there or not."""
        after: dict[Path, bytes | None] = {}
        self._left(self.root, after)
        self.replace(after)

    def empty(self) -> None:
        """Another disk is in its place."""
        self.replace({})

    def exchange(self, tree: dict[Path, bytes | None]) -> dict[Path, bytes | None]:
        """Another machine is in its place, which has these files; those of this one, as they were
        written."""
        here = {
            path: None if path.is_dir() else path.read_bytes()
            for path in sorted(self.root.rglob("*"))
        }
        self.replace(tree)
        return here

    def replace(self, tree: dict[Path, bytes | None]) -> None:
        """These files, all of them durable, are there now and no others; None: a folder."""
        shutil.rmtree(self.root)
        shutil.rmtree(self._keep)
        self._contents.clear()
        self._names.clear()
        self.root.mkdir()
        self._keep.mkdir()
        for path, data in tree.items():
            if data is None:
                path.mkdir(exist_ok=True)
            else:
                path.write_bytes(data)
        for path in [self.root, *tree]:
            self.synced(path)

    def _left(self, folder: Path, after: dict[Path, bytes | None]) -> None:
        now = (
            {entry.name: self._number(entry) for entry in sorted(folder.iterdir())}
            if folder.is_dir()
            else {}
        )
        durable = self._names.get(folder, {})
        odds = self._rng.pick((0, 500_000, 1_000_000))
        for name in sorted(now.keys() | durable.keys()):
            number = durable.get(name)
            if number != now.get(name):
                if self._rng.chance(odds):
                    number = now.get(name)
                else:
                    self._counts.bite("unsynced name lost")
            if number == FOLDER:
                after[folder / name] = None
                self._left(folder / name, after)
            elif number is not None:
                after[folder / name] = self._content(number)

    def _content(self, number: int) -> bytes:
        written = (self._keep / str(number)).read_bytes()
        durable = self._contents.get(number, b"").ljust(len(written), b"\0")[: len(written)]
        result = bytearray(durable)
        odds = self._rng.pick((0, 500_000, 1_000_000))
        for at in range(0, len(written), self.disk.tear):
            page = slice(at, at + self.disk.tear)
            if written[page] != durable[page]:
                if self._rng.chance(odds):
                    result[page] = written[page]
                else:
                    self._counts.bite("unsynced write lost")
        return bytes(result)


class HostDisk(RealDisk):
    """Where a host's files are."""

    def __init__(self, host: HostFiles) -> None:
        super().__init__()
        self._host = host

    def open(self, path: Path, create: bool = False) -> DiskFile:
        return HostFile(self._host, path, os.O_RDWR | (os.O_CREAT if create else 0))

    def fsync_dir(self, path: Path) -> None:
        if path.is_relative_to(self._host.root):
            self._host.disk.check("fsync_dir", path)
            self._host.synced(path)


class HostFile(RealFile):
    """One of them."""

    __slots__ = ("_host",)

    def __init__(self, host: HostFiles, path: Path, flags: int) -> None:
        super().__init__(path, flags)
        self._host = host

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        failure = self._host.disk.check("pwritev", self.path)
        if failure is not None:
            super().pwritev([b"".join(buffers)[: failure.short or 0]], offset)
            self._host.disk.killed_in_write()
            raise ProcessKilled(f"pwritev {self.path.name}")
        super().pwritev(buffers, offset)

    def fdatasync(self) -> None:
        self._host.disk.check("fdatasync", self.path)
        self._host.synced(self.path)

    def truncate(self, size: int) -> None:
        self._host.disk.check("truncate", self.path)
        super().truncate(size)


class BrokerFiles:
    """Those of all hosts of a run."""

    def __init__(self) -> None:
        shm = Path("/dev/shm")
        self.folder = Path(
            tempfile.mkdtemp(prefix="dledger-sim-", dir=shm if shm.is_dir() else None)
        )
        self.hosts: list[HostFiles] = []

    def host(self, name: str, disk: SimDisk, rng: Rng, counts: SeedCounts) -> HostFiles:
        """Of one more host."""
        self.hosts.append(HostFiles(self.folder / name, disk, rng, counts))
        return self.hosts[-1]

    def end(self) -> None:
        """All is removed."""
        for host in self.hosts:
            host.let_go()
        shutil.rmtree(self.folder, ignore_errors=True)


def attach(
    server: NodeServer, host: HostFiles, queued: Queued, judged: Callable[..., None]
) -> None:
    """Give a node that is made, and not started, its queues and index, and check them and the
    entries that it applies.

    ``judged`` gets each check and its arguments.
    """
    parts, store, name = server.parts, server.store, str(server.node.node_id)
    application, proposals = parts.application, parts.proposals
    assert isinstance(application, DLedgerCommitLog)
    opened: Callable[[Dispatched], None] = lambda files: judged(queued.opened, name, files)  # noqa: E731
    wall_ms = parts.ready_loop.environment.wall_ms
    files = SmallDispatched(host.root, wall_ms, opened, HostDisk(host))
    host.use(files)
    application.reput.files = files
    on_applied = proposals.applied

    def watched_applied(entry: Entry, result: Any) -> None:
        on_applied(entry, result)
        judged(queued.committed, entry)

    queued.watch_begin(name, lambda: store.begin_index)
    proposals.applied = watched_applied  # type: ignore[method-assign]
