"""Every byte of every file changed, one at a time: found, named, mended from a sound copy, and
never served.

The files of these stores: one that was stopped; one whose process died with a part of the log not
synced yet; one that has taken over another node's state, and one that waits to do so. A changed
byte is met by ``verify``, by the next start, by reads, and by readers of a store that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Final

from dledger.errors import CorruptEntry, CorruptStore
from dledger.node.checkpoints import Checkpoints
from dledger.protocol.messages.entry import Entry
from dledger.storage.background import BackgroundState
from dledger.storage.file_store import FileStore
from dledger.storage.log.index import UNIT_SIZE
from dledger.storage.meta.snapshots import SNAPSHOTS, SnapshotFiles
from dledger.storage.offline.verify import verify_store
from dledger.storage.opening import open_settings
from dledger.storage.recovery.snapshot_install import INSTALL_SUFFIX
from dledger.types import Index
from verification.disk.memory_disk import MemoryDisk
from verification.disk_states.checking import check_started, repair_all
from verification.disk_states.images import GONE, Image, kind_of, places
from verification.disk_states.promise import (
    Promise,
    check_catalog,
    entry_bytes,
    require,
    require_entry,
)

MAX_FINDINGS: Final = 20


@dataclass(slots=True)
class FlipCounts:
    """The outcomes of the changed bytes of one kind."""

    flips: int = 0
    found_by_verify: int = 0
    found_at_start: int = 0
    """Said by the recovery report, or by the log of the node that restored its catalog."""
    found_by_read: int = 0
    repaired: int = 0
    """Put back from a peer's copy, after which every byte verifies."""
    rebuilt: int = 0
    """Written again from the other copy or from the data, or cut because it was never acknowledged:
    every byte verifies."""
    reported: int = 0
    """Named by file and place, and still there: no reader uses it, or its owner has to rebuild
    it."""
    unread: int = 0
    """Of units of the index in front of the first kept entry: no reader uses them, and no check can
    find the change."""
    live: int = 0
    """Changed under a running store, and found by its readers or read round."""


@dataclass(slots=True)
class FlipTally:
    """All kinds."""

    kinds: dict[str, FlipCounts] = field(default_factory=dict)
    served_wrong_or_lost: int = 0
    findings: list[str] = field(default_factory=list)

    def kind(self, name: str) -> FlipCounts:
        """The counts of one kind."""
        return self.kinds.setdefault(name, FlipCounts())

    def found(self, text: str) -> None:
        """Something is wrong."""
        self.served_wrong_or_lost += 1
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(text)


def mask_of(offset: int) -> int:
    """Which bits are changed: one of the eight, or all."""
    return 0xFF if offset % 9 == 8 else 1 << offset % 9


def flip_cold(image: Image, path: Path, offset: int, tally: FlipTally) -> None:
    """Change a byte under a store that does not run, then verify, start, read, mend and verify
    again."""
    kind, owner = kind_of(image, path, offset)
    counts = tally.kind(kind)
    counts.flips += 1
    where = f"{image.name}, {kind}, {path.name} at {offset}"
    try:
        disk = image.disk(path, offset, mask_of(offset))
        said = verify_store(image.settings.directory, disk)["problems"]
        named = [problem for problem in said if problem["reason"] not in image.known]
        if kind != GONE:
            require(
                any(problem["file"] == str(path) for problem in named),
                f"verify does not name the file: {named}",
            )
            counts.found_by_verify += 1
        if owner is not None and owner <= image.promise.durable:
            require(
                any(problem["index"] == owner for problem in named),
                f"verify does not name entry {owner}: {named}",
            )
        _start_and_mend(image, disk, path, kind, owner, counts)
    except Exception as error:
        tally.found(f"{where}: {type(error).__name__}: {error}")


def _start_and_mend(
    image: Image, disk: MemoryDisk, path: Path, kind: str, owner: Index | None, counts: FlipCounts
) -> None:
    settings, damaged = image.settings, frozenset(() if owner is None else (owner,))
    store = open_settings(settings, disk, BackgroundState.MANUAL)
    promise = check_started(store, replace(image.promise, damaged=damaged))
    require(
        store.membership == image.membership,
        f"it is {store.membership} now, not {image.membership}",
    )
    report = store.recovery
    said = [*report.faulty, *report.cut, *report.notes, *report.rebuilt]
    counts.found_at_start += bool(said)
    if owner is not None and owner <= store.end.position.index:
        require(
            _must_refuse(store, image.promise.logs[0][owner]),
            f"the changed entry {owner} was served",
        )
        counts.found_by_read += 1
        repair_all(store, promise)
        check_started(store, replace(promise, damaged=frozenset()), started=False)
    if path.parent.name == "index":
        # a unit is checked, and written again, when it is read
        for entry in promise.logs[0][store.begin_index :]:
            require_entry(store, entry, f"wrong entry {entry.index}")
    _check_catalog(image, disk, store, promise, counts, path)
    store.close()
    disk.reboot(power=True)
    store = open_settings(settings, disk, BackgroundState.MANUAL)
    require(not store.recovery.faulty, f"still faulty: {store.recovery.faulty}")
    check_started(store, replace(promise, damaged=frozenset()))
    store.close()
    left = verify_store(settings.directory, disk)["problems"]
    now = path.with_name(path.name.removesuffix(INSTALL_SUFFIX))
    require(all(problem["file"] == str(now) for problem in left), f"left in other files: {left}")
    if left:
        require(owner is None, f"entry {owner} is repaired, and verify still finds {left}")
        counts.reported += 1
    elif owner is not None and owner in {entry.index for entry in promise.logs[0]}:
        counts.repaired += 1
    elif kind == GONE:
        counts.unread += 1
    else:
        counts.rebuilt += 1


def _must_refuse(store: FileStore, entry: Entry) -> bool:
    """Each way of reading gives the right bytes or refuses them. Returns whether the whole entry
    was refused."""
    try:
        body = bytes(store.read_bodies([(entry.index, entry.pos, entry.size)])[0])
        require(body == bytes(entry.body), f"a wrong body of entry {entry.index} was served")
    except CorruptEntry as error:
        require(
            f"entry {entry.index}" in str(error),
            f"the error does not name entry {entry.index}: {error}",
        )
    try:
        served = store.read(entry.index, 1)[0]
    except CorruptEntry as error:
        require(
            f"entry {entry.index} " in str(error),
            f"the error does not name entry {entry.index}: {error}",
        )
        return True
    require(
        entry_bytes(served) == entry_bytes(entry), f"wrong bytes of entry {entry.index} were served"
    )
    return False


def _check_catalog(
    image: Image,
    disk: MemoryDisk,
    store: FileStore,
    promise: Promise,
    counts: FlipCounts,
    path: Path,
) -> None:
    """The catalog is restored from sound files; a read of a damaged row is refused."""
    if path.parent.name not in {"snapshot", "tables"}:
        return
    checkpoints = Checkpoints(image.settings.directory, disk)
    try:
        catalog = checkpoints.restore(store)
        counts.found_at_start += catalog.applied_index < promise.checkpoint
        older = replace(promise, checkpoint=Index(-1))
        check_catalog(catalog, promise.logs[0], older, store.begin_index)
    except CorruptStore as error:
        name = path.name.removesuffix(INSTALL_SUFFIX)
        snapshots = SnapshotFiles(image.settings.directory / SNAPSHOTS, disk)
        snapshots.load()
        said = [str(error), *snapshots.skipped]
        require(any(name in text for text in said), f"nothing names {name}: {said}")
        counts.found_by_read += 1


class Live:
    """A running store, under which bytes change and change back."""

    def __init__(self, image: Image, tally: FlipTally) -> None:
        self._image = image
        self._tally = tally
        self._disk = image.state.disk(image.boots)
        self._store = open_settings(image.settings, self._disk, BackgroundState.MANUAL)
        self._promise = check_started(self._store, image.promise)

    def flip(self, path: Path, offset: int) -> None:
        """Change a byte of data or index, read what it belongs to, and its neighbours; mend it."""
        kind, owner = kind_of(self._image, path, offset)
        log, store = self._promise.logs[0], self._store
        if path.parent.name == "index":
            owner = Index((int(path.name) + offset) // UNIT_SIZE)
        if (
            owner is None
            or not store.begin_index <= owner < len(log)
            or path.parent.name not in {"data", "index"}
        ):
            return
        counts = self._tally.kind(kind)
        self._disk.flip(path, offset, mask_of(offset))
        try:
            for index in range(max(owner - 1, store.begin_index), min(owner + 2, len(log))):
                if index != owner:
                    require_entry(store, log[index], f"wrong bytes of entry {index}")
            refused = _must_refuse(store, log[owner])
            if path.parent.name == "data":
                require(refused, f"the changed entry {owner} was served")
                store.repair(log[owner])
            require_entry(store, log[owner], f"entry {owner} is not mended")
            counts.live += 1
        except Exception as error:
            self._disk.content(path)[offset] = self._image.state.files[path][offset]
            self._tally.found(
                f"running, {kind}, {path.name} at {offset}: {type(error).__name__}: {error}"
            )


def flip_all(image: Image, chosen: list[tuple[Path, int]], live: bool = True) -> FlipTally:
    """Change each of these bytes, one at a time."""
    tally = FlipTally()
    running = Live(image, tally) if live and not image.waits else None
    for path, offset in chosen:
        flip_cold(image, path, offset, tally)
        if running is not None:
            running.flip(path, offset)
        if len(tally.findings) >= MAX_FINDINGS:
            break
    return tally


def shares(image: Image, every: int, parts: int) -> Iterator[list[tuple[Path, int]]]:
    """Each ``every``-th byte, in so many parts that cost about the same."""
    chosen = places(image)[::every]
    for part in range(parts):
        yield chosen[part::parts]


def merged(tallies: Iterable[FlipTally]) -> FlipTally:
    """All of them in one."""
    whole = FlipTally()
    for tally in tallies:
        for name, counts in tally.kinds.items():
            sums = whole.kind(name)
            for each in fields(FlipCounts):
                setattr(sums, each.name, getattr(sums, each.name) + getattr(counts, each.name))
        whole.served_wrong_or_lost += tally.served_wrong_or_lost
        whole.findings += tally.findings
    return whole
