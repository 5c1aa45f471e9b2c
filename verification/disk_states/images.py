"""Stores whose bytes are changed, as they lie on their disks, and the kind of each of these
bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dledger.protocol.messages.entry import HEADER_SIZE, MIN_BLANK_SIZE
from dledger.protocol.messages.membership import Membership
from dledger.raft.roles.snapshot_install import InstallMode
from dledger.storage.disk.file_names import file_name
from dledger.storage.log.index import UNIT_SIZE
from dledger.storage.meta.hard_state import STATE_FILE
from dledger.storage.meta.members import MEMBERS_FILE
from dledger.storage.meta.recovery_point import MARK_FILE
from dledger.storage.offline.verify import verify_store
from dledger.storage.recovery.open_files import StoreSettings
from dledger.storage.recovery.snapshot_install import INSTALL_FILE, INSTALL_SUFFIX
from dledger.types import Index, NodeId
from verification.disk.memory_disk import MemoryDisk
from verification.disk_states.giver import Giver
from verification.disk_states.life import StoreLife
from verification.disk_states.model import State
from verification.disk_states.promise import Promise
from verification.disk_states.recording import RecordingDisk
from verification.disk_states.scenarios import PAGE, PAGES, SMALL, TOPIC_A, TOPIC_B, batch

SETTINGS: Final = replace(PAGES, index_file_bytes=PAGE)
SIZES: Final = (3000, 30, 5200, 200, 2700, 1500, 5, 4000)
GONE: Final = "index: unit of an entry that is gone"
RECORDS: Final = {
    STATE_FILE: "hard state and identity",
    MARK_FILE: "mark",
    MEMBERS_FILE: "members",
    INSTALL_FILE: "install record",
}
KINDS_OF_STATE: Final = {
    "data": "state that waits: log",
    "index": "",
    "tables": "state that waits: table",
    "snapshot": "state that waits: snapshot",
}
"""Of the files that wait, by the directory that they are in; an index has none."""


@dataclass(frozen=True, slots=True)
class Image:
    """The files of one store, sound, and the promise to its node."""

    name: str
    state: State
    promise: Promise
    membership: Membership
    boots: int = 1
    """2: the system was started anew since the files were written."""
    settings: StoreSettings = SETTINGS
    waits: bool = False
    """The next start puts another state, whose files are there, in the place of this one."""
    known: tuple[str, ...] = ()
    """The problems that `verify` reports of it while it is sound."""

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


def images() -> list[Image]:
    """A store that was stopped, one whose process died, and that one after a restart of the system;
    one that has taken over a state, and one that waits to."""
    killed = _image("killed", stop=False)
    restarted = replace(killed, name="restarted", boots=2)
    return [
        _image("stopped", stop=True),
        killed,
        restarted,
        _image_of_state(waits=False),
        _image_of_state(waits=True),
    ]


def _image(name: str, stop: bool) -> Image:
    life = StoreLife(SETTINGS, RecordingDisk())
    life.begin("n1", catalog=True)
    life.store.save_membership(
        Membership(life.store.membership.incarnation, Index(0), ((NodeId("n1"), 5),))
    )
    life.append_bodies([TOPIC_A, TOPIC_B])
    for turn in range(4):
        if turn == 2:
            life.save(2, "n2")
        life.append_bodies([batch(1 + at % 2, at + 1, size) for at, size in enumerate(SIZES)])
        life.sum_up(2)
        life.keep()
    life.save(3, "n0")
    life.append([250, 1200])
    membership = life.store.membership
    if stop:
        life.close()
    return Image(name, _state(life), life.promise, membership)


def _image_of_state(waits: bool) -> Image:
    """Another node's state in the place of a small store's, or beside it."""
    life = StoreLife(SMALL, RecordingDisk())
    life.begin("n1", catalog=True)
    life.append_bodies([TOPIC_A, batch(1, 2, 300), batch(1, 1, 200)])
    life.sum_up(1)
    giver = Giver(SMALL.segment_bytes, life.log)
    giver.append(1, [batch(1, 1 + at % 3, 150 + 90 * (at % 5)) for at in range(12)])
    first = giver.first_after(len(life.log))
    if waits:
        life.fetch(giver, first, InstallMode.REPLACE)
    else:
        life.take_over(giver, first, InstallMode.REPLACE)
        life.follow()
        life.commit(len(life.log) - 2)
    membership = life.store.membership
    if not waits:
        life.close()
    state = _state(life)
    known = tuple(
        problem["reason"] for problem in verify_store(SMALL.directory, state.disk(1))["problems"]
    )
    name = "waits for a state" if waits else "has taken over a state"
    return Image(name, state, life.promise, membership, 1, SMALL, waits, known)


def _state(life: StoreLife) -> State:
    """The state that a running system shows."""
    files = {path: bytes(inode.written) for path, inode in life.disk.names.items()}
    return State(files, frozenset(life.disk.directories))


def kind_of(image: Image, path: Path, offset: int) -> tuple[str, Index | None]:
    """The kind of a byte, and the entry that it is part of."""
    where = path.parent.name
    if image.waits and where in KINDS_OF_STATE:
        if not path.name.endswith(INSTALL_SUFFIX):
            return "files that a state takes the place of", None
        entry = image.promise.logs[0][-1]
        return KINDS_OF_STATE[
            where
        ], entry.index if where == "data" and offset < entry.size else None
    if where == "data":
        return _kind_in_log(image, int(path.name) + offset)
    if where == "index":
        index = (int(path.name) + offset) // UNIT_SIZE
        if index < image.promise.begins[0]:
            return GONE, None
        return ("index: unit" if index < len(image.promise.logs[0]) else "index: free space"), None
    if where == "snapshot":
        newest = path.name == file_name(image.promise.checkpoint)
        return ("snapshot: newest" if newest else "snapshot: the one before"), None
    if where == "tables":
        return ("table: header" if offset < 64 else "table: rows"), None
    return RECORDS[path.name], None


def _kind_in_log(image: Image, pos: int) -> tuple[str, Index | None]:
    for entry in image.promise.logs[0]:
        if entry.pos <= pos < entry.end_pos:
            return ("data: header" if pos < entry.pos + HEADER_SIZE else "data: body"), entry.index
    if pos >= image.end_pos:
        return "data: free space", None
    ends = [entry.end_pos for entry in image.promise.logs[0] if entry.end_pos <= pos]
    return ("data: padding's header" if pos < max(ends) + MIN_BLANK_SIZE else "data: padding"), None


def places(image: Image) -> list[tuple[Path, int]]:
    """Every byte of every file."""
    return [
        (path, offset)
        for path in sorted(image.state.files)
        for offset in range(len(image.state.files[path]))
    ]
