"""Every byte of every file changed, one at a time: found, named, mended from a sound copy, and never served.

The files of two stores: one that was stopped, and one whose process died with a part of the log not synced yet. A
changed byte is met by ``verify``, by the next start, by reads, and by readers of a store that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import Final

from dledger.errors import CorruptEntry, CorruptStore
from dledger.messages.command import CreateTopic
from dledger.messages.entry import HEADER_SIZE, MIN_BLANK_SIZE, Entry
from dledger.server.checkpoint import Checkpoints
from dledger.store.file_store import FileStore, open_settings
from dledger.store.keeper import Keeping
from dledger.store.logindex import UNIT_SIZE
from dledger.store.memory_disk import MemoryDisk
from dledger.store.open_parts import StoreSettings
from dledger.store.segments import file_name
from dledger.store.verify import verify_store
from dledger.testing.disk_states.checking import check_started, repair_all
from dledger.testing.disk_states.life import Life
from dledger.testing.disk_states.model import State
from dledger.testing.disk_states.promise import (
    Promise,
    check_catalog,
    entry_bytes,
    require,
)
from dledger.testing.disk_states.recording import RecordingDisk
from dledger.testing.disk_states.scenarios import PAGE, batch, command, settings_of
from dledger.types import Index

SETTINGS: Final = settings_of(4 * PAGE, PAGE)
SIZES: Final = (3000, 30, 5200, 200, 2700, 1500, 5, 4000)
MAX_FINDINGS: Final = 20


@dataclass(frozen=True, slots=True)
class Image:
    """The files of one store, sound, and what its node was promised."""

    name: str
    state: State
    promise: Promise
    boots: int = 1
    """2: the system was started anew since the files were written."""
    settings: StoreSettings = SETTINGS

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(len, self.state.files.values()))

    @property
    def end_pos(self) -> int:
        """Where the log ends."""
        return self.promise.logs[0][-1].end_pos

    def disk(self, path: Path, offset: int, mask: int) -> MemoryDisk:
        """Its disk with one byte changed."""
        disk = self.state.disk(self.boots)
        disk.flip(path, offset, mask)
        return disk


@dataclass(slots=True)
class Counts:
    """What became of the changed bytes of one kind."""

    flips: int = 0
    found_by_verify: int = 0
    found_at_start: int = 0
    """Said by the recovery report, or by the log of the node that restored its catalog."""
    found_by_read: int = 0
    repaired: int = 0
    """Put back from a peer's copy, after which every byte verifies."""
    rebuilt: int = 0
    """Written again from the other copy, from the data, or cut as what nobody was told of: every byte verifies."""
    reported: int = 0
    """Named by file and place, and still there: nothing reads it, or its owner has to rebuild it."""
    live: int = 0
    """Changed under a running store, and found by its readers or read round."""


@dataclass(slots=True)
class FlipTally:
    """All kinds."""

    kinds: dict[str, Counts] = field(default_factory=dict)
    served_wrong_or_lost: int = 0
    findings: list[str] = field(default_factory=list)

    def kind(self, name: str) -> Counts:
        """The counts of one kind."""
        return self.kinds.setdefault(name, Counts())

    def found(self, text: str) -> None:
        """Something is wrong."""
        self.served_wrong_or_lost += 1
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(text)


def images() -> list[Image]:
    """A store that was stopped, one whose process died, and that one after a restart of the system."""
    killed = _image("killed", stop=False)
    return [_image("stopped", stop=True), killed, replace(killed, name="restarted", boots=2)]


def _image(name: str, stop: bool) -> Image:
    disk = RecordingDisk(MemoryDisk())
    life = Life(SETTINGS, disk)
    life.open()
    life.open_catalog()
    life.save(1, "n1")
    life.append_bodies([command(CreateTopic(name="a", log_id="1")), command(CreateTopic(name="b", log_id="2"))])
    for turn in range(4):
        if turn == 2:
            life.save(2, "n2")
        life.append_bodies([batch(1 + at % 2, at + 1, size) for at, size in enumerate(SIZES)])
        life.sync()
        life.commit(len(life.log) - 3)
        life.checkpoint()
        life.keep()
    life.save(3, "n0")
    life.append([250, 1200])
    if stop:
        life.close()
    inner = disk.inner
    files = {path: bytes(inode.written) for path, inode in inner.names.items()}
    return Image(name, State(files, frozenset(inner.directories)), life.promise)


def kind_of(image: Image, path: Path, offset: int) -> tuple[str, Index | None]:
    """What a byte belongs to, and the entry whose it is."""
    where = path.parent.name
    if where == "data":
        pos = int(path.name) + offset
        for entry in image.promise.logs[0]:
            if entry.pos <= pos < entry.end_pos:
                return ("data: header" if pos < entry.pos + HEADER_SIZE else "data: body"), entry.index
        if pos >= image.end_pos:
            return "data: free space", None
        ends = [entry.end_pos for entry in image.promise.logs[0] if entry.end_pos <= pos]
        return ("data: padding's header" if pos < max(ends) + MIN_BLANK_SIZE else "data: padding"), None
    if where == "index":
        index = (int(path.name) + offset) // UNIT_SIZE
        return ("index: unit" if index < len(image.promise.logs[0]) else "index: free space"), None
    if where == "snapshot":
        newest = path.name == file_name(image.promise.checkpoint)
        return ("snapshot: newest" if newest else "snapshot: the one before"), None
    if where == "tables":
        return ("table: header" if offset < 64 else "table: rows"), None
    return ("hard state and identity" if path.name == "state" else "mark"), None


def places(image: Image) -> list[tuple[Path, int]]:
    """Every byte of every file."""
    return list(_places(image))


def _places(image: Image) -> Iterator[tuple[Path, int]]:
    for path in sorted(image.state.files):
        for offset in range(len(image.state.files[path])):
            yield path, offset


def mask_of(offset: int) -> int:
    """Which bits are changed: one of the eight, or all."""
    return 0xFF if offset % 9 == 8 else 1 << offset % 9


def flip_cold(image: Image, path: Path, offset: int, tally: FlipTally) -> None:
    """Change a byte under a store that does not run, then verify, start, read, mend and verify again."""
    kind, owner = kind_of(image, path, offset)
    counts = tally.kind(kind)
    counts.flips += 1
    where = f"{image.name}, {kind}, {path.name} at {offset}"
    try:
        disk = image.disk(path, offset, mask_of(offset))
        named = verify_store(image.settings.directory, disk)["problems"]
        require(any(problem["file"] == str(path) for problem in named), f"verify does not name the file: {named}")
        counts.found_by_verify += 1
        if owner is not None and owner <= image.promise.durable:
            require(any(problem["index"] == owner for problem in named), f"verify does not name entry {owner}: {named}")
        _start_and_mend(image, disk, path, owner, counts)
    except Exception as error:
        tally.found(f"{where}: {type(error).__name__}: {error}")


def _start_and_mend(image: Image, disk: MemoryDisk, path: Path, owner: Index | None, counts: Counts) -> None:
    settings, damaged = image.settings, frozenset(() if owner is None else (owner,))
    store = open_settings(settings, disk, Keeping.MANUAL)
    promise = check_started(store, replace(image.promise, damaged=damaged))
    report = store.recovery
    said = [*report.faulty, *report.cut, *report.notes, *report.rebuilt]
    counts.found_at_start += bool(said)
    if owner is not None and owner <= store.end.position.index:
        require(_must_refuse(store, image.promise.logs[0][owner]), f"the changed entry {owner} was served")
        counts.found_by_read += 1
        repair_all(store, promise)
        check_started(store, replace(promise, damaged=frozenset()), started=False)
    if path.parent.name == "index":
        for entry in promise.logs[0]:  # a unit is checked when its entry is asked for, and written again then
            require(entry_bytes(store.read(entry.index, 1)[0]) == entry_bytes(entry), f"wrong entry {entry.index}")
    _check_catalog(image, disk, store, promise, counts, path)
    store.close()
    disk.reboot(power=True)
    store = open_settings(settings, disk, Keeping.MANUAL)
    require(not store.recovery.faulty, f"still faulty: {store.recovery.faulty}")
    check_started(store, replace(promise, damaged=frozenset()))
    store.close()
    left = verify_store(settings.directory, disk)["problems"]
    require(all(problem["file"] == str(path) for problem in left), f"left in other files: {left}")
    if left:
        require(owner is None, f"entry {owner} is repaired, and verify still finds {left}")
        counts.reported += 1
    elif owner is not None and owner in {entry.index for entry in promise.logs[0]}:
        counts.repaired += 1
    else:
        counts.rebuilt += 1


def _must_refuse(store: FileStore, entry: Entry) -> bool:
    """Neither way of reading gives changed bytes; whether the whole entry was refused."""
    try:
        body = bytes(store.read_bodies([(entry.index, entry.pos, entry.size)])[0])
        require(body == bytes(entry.body), f"a wrong body of entry {entry.index} was served")
    except CorruptEntry as error:
        require(f"entry {entry.index}" in str(error), f"the error does not name entry {entry.index}: {error}")
    try:
        served = store.read(entry.index, 1)[0]
    except CorruptEntry as error:
        require(f"entry {entry.index} " in str(error), f"the error does not name entry {entry.index}: {error}")
        return True
    require(entry_bytes(served) == entry_bytes(entry), f"wrong bytes of entry {entry.index} were served")
    return False


def _check_catalog(
    image: Image, disk: MemoryDisk, store: FileStore, promise: Promise, counts: Counts, path: Path
) -> None:
    """Restored from what is sound; a damaged row is refused by whoever reads it."""
    if path.parent.name not in {"snapshot", "tables"}:
        return
    checkpoints = Checkpoints(image.settings.directory, disk)
    try:
        catalog = checkpoints.restore(store)
        counts.found_at_start += catalog.applied_index < promise.checkpoint
        older = replace(promise, checkpoint=Index(-1))
        check_catalog(catalog, promise.logs[0], older, store.begin_index)
    except CorruptStore as error:
        require(path.name in str(error), f"the error does not name {path.name}: {error}")
        counts.found_by_read += 1


class Live:
    """A running store, under which bytes change and change back."""

    def __init__(self, image: Image, tally: FlipTally) -> None:
        self._image = image
        self._tally = tally
        self._disk = image.state.disk(image.boots)
        self._store = open_settings(image.settings, self._disk, Keeping.MANUAL)
        self._promise = check_started(self._store, image.promise)

    def flip(self, path: Path, offset: int) -> None:
        """Change a byte of data or index, read what it belongs to, and its neighbours; mend it."""
        kind, owner = kind_of(self._image, path, offset)
        log, store = self._promise.logs[0], self._store
        if path.parent.name == "index":
            owner = Index((int(path.name) + offset) // UNIT_SIZE)
        if owner is None or owner >= len(log) or path.parent.name not in {"data", "index"}:
            return
        counts = self._tally.kind(kind)
        self._disk.flip(path, offset, mask_of(offset))
        try:
            for index in range(max(owner - 1, 0), min(owner + 2, len(log))):
                if index != owner:
                    served = store.read(Index(index), 1)[0]
                    require(entry_bytes(served) == entry_bytes(log[index]), f"wrong bytes of entry {index}")
            refused = _must_refuse(store, log[owner])
            if path.parent.name == "data":
                require(refused, f"the changed entry {owner} was served")
                store.repair(log[owner])
            require(entry_bytes(store.read(owner, 1)[0]) == entry_bytes(log[owner]), f"entry {owner} is not mended")
            counts.live += 1
        except Exception as error:
            self._disk.content(path)[offset] = self._image.state.files[path][offset]
            self._tally.found(f"running, {kind}, {path.name} at {offset}: {type(error).__name__}: {error}")


def flip_all(image: Image, chosen: list[tuple[Path, int]], live: bool = True) -> FlipTally:
    """Change each of these bytes, one at a time."""
    tally = FlipTally()
    running = Live(image, tally) if live else None
    for path, offset in chosen:
        flip_cold(image, path, offset, tally)
        if running is not None:
            running.flip(path, offset)
        if len(tally.findings) >= MAX_FINDINGS:
            break
    return tally


def shares(image: Image, every: int, parts: int) -> Iterator[list[tuple[Path, int]]]:
    """Each ``every``-th byte, in so many parts that cost about the same."""
    chosen = list(islice(_places(image), 0, None, every))
    for part in range(parts):
        yield chosen[part::parts]


def merged(tallies: Iterable[FlipTally]) -> FlipTally:
    """All of them in one."""
    whole = FlipTally()
    for tally in tallies:
        for name, counts in tally.kinds.items():
            sums = whole.kind(name)
            for each in fields(Counts):
                setattr(sums, each.name, getattr(sums, each.name) + getattr(counts, each.name))
        whole.served_wrong_or_lost += tally.served_wrong_or_lost
        whole.findings += tally.findings
    return whole
