"""Which states of the disk a crash may leave, after a number of recorded operations.

The rules, all of them weaker than what ext4, XFS, Btrfs or ZFS promise:

- A file's blocks and length: see `PendingFile`. A sync of the file settles both.
- Names (made, renamed, removed; of files and of directories) are durable once their directory was
  synced. Of the changes since then any subset may be, a rename being there as a whole or not at
  all. A name says nothing about the bytes, and the bytes nothing about the name.
- A killed process loses nothing that was written, but the system may go down later, and then all of
  the above holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import chain
from math import prod
from pathlib import Path
from typing import Final

from verification.disk.memory_disk import MemoryDisk
from verification.disk.memory_inode import SECTOR, Inode
from verification.disk_states.pending import PendingFile
from verification.disk_states.recording import STEP, Op, OperationType
from verification.sim.rng import Rng

DIRECTORY: Final = -1
"""In the place of a file's number."""
MAX_SUBSETS_OF: Final = 10
"""Changes of names at one time of which every subset is looked at."""


@dataclass(frozen=True, slots=True)
class Rename:
    """A change of names that no sync of their directory covers. ``target`` None: removed; equal to
    ``path``: made."""

    path: Path
    target: Path | None
    file: int


@dataclass(frozen=True, slots=True)
class Pick:
    """One state: which changes of names are there, and of each file with a name which length and
    which blocks."""

    names: tuple[int, ...]
    files: tuple[tuple[int, int, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class State:
    """The files of a disk after a crash."""

    files: dict[Path, bytes]
    directories: frozenset[Path]

    def digest(self) -> int:
        """64 bits that tell it from others."""
        found = blake2b(digest_size=8)
        for path in sorted(self.directories):
            found.update(str(path).encode() + b"/")
        for path in sorted(self.files):
            found.update(str(path).encode() + b"\0" + len(self.files[path]).to_bytes(8, "big"))
            found.update(self.files[path])
        return int.from_bytes(found.digest(), "big")

    def disk(self, boots: int) -> MemoryDisk:
        """A disk that holds this state, with an empty cache."""
        disk = MemoryDisk(first_step=STEP)
        self.fill(disk, boots)
        return disk

    def fill(self, disk: MemoryDisk, boots: int) -> None:
        """Put it on an empty disk."""
        for path, content in self.files.items():
            disk.names[path] = Inode(bytearray(content), bytearray(content), mtime_ms=disk.now_ms)
        disk.durable_names = dict(disk.names)
        disk.directories = set(self.directories)
        disk.boots = boots


class Model:
    """Cache and disk after the operations so far."""

    def __init__(self, grain: int = SECTOR, state: State | None = None) -> None:
        """
        Args:
            grain: bytes that reach the disk as one, or not.
            state: the files before the first operation; None: an empty root directory.
        """
        self.grain = grain
        self.names: dict[Path, int] = {}
        self.files: list[PendingFile] = []
        self.pending: list[Rename] = []
        for path in sorted(state.directories) if state else ():
            self.names[path] = DIRECTORY
        for path, content in sorted(state.files.items()) if state else ():
            self.names[path] = len(self.files)
            file = PendingFile(grain)
            file.cache, file.durable, file.lengths = bytearray(content), content, [len(content)]
            self.files.append(file)
        self.durable_names = dict(self.names)
        self._reached: dict[tuple[int, ...], dict[Path, int]] = {}
        """Results of `_named` since the last change of names."""

    def apply(self, op: Op) -> None:
        """One more operation was carried out."""
        self._reached.clear()
        if op.kind in {OperationType.MKDIR, OperationType.CREATE}:
            if op.kind is OperationType.CREATE:
                self.files.append(PendingFile(self.grain))
            self._rename(Rename(op.path, op.path, op.file))
        elif op.kind is OperationType.RENAME:
            self._rename(Rename(op.path, op.target, op.file))
        elif op.kind is OperationType.UNLINK:
            self._rename(Rename(op.path, None, op.file))
        elif op.kind is OperationType.SYNC_DIR:
            for change in [change for change in self.pending if change.path.parent == op.path]:
                _apply(self.durable_names, change)
                self.pending.remove(change)
        elif op.kind is OperationType.WRITE:
            self.files[op.file].write(op.offset, op.data)
        elif op.kind is OperationType.RESIZE:
            self.files[op.file].resize(op.offset)
        elif op.kind is OperationType.SYNC:
            self.files[op.file].sync()
        else:
            self.files[op.file].rot(op.offset, op.data[0])

    def _rename(self, change: Rename) -> None:
        _apply(self.names, change)
        self.pending.append(change)

    def killed(self, boots: int) -> MemoryDisk:
        """The process is gone, the system is not: all written bytes are there, synced or not."""
        disk = MemoryDisk(first_step=STEP)
        inodes: dict[int, Inode] = {}
        for path, number in chain(self.names.items(), self.durable_names.items()):
            if number == DIRECTORY:
                disk.directories.add(path)
            elif number not in inodes:
                inodes[number] = _inode(self.files[number], disk.now_ms)
        disk.names = {
            path: inodes[number] for path, number in self.names.items() if number != DIRECTORY
        }
        disk.durable_names = {
            p: inodes[number] for p, number in self.durable_names.items() if number != DIRECTORY
        }
        disk.pending_names = [
            (change.path, change.target, inodes.get(change.file))
            for change in self.pending
            if change.file != DIRECTORY
        ]
        disk.boots = boots
        return disk

    def legal(self) -> int:
        """How many states a power cut may leave now; two of them may hold the same."""
        return sum(
            prod(self._ways(file) for file in self._in_doubt(self._named(kept)))
            for kept in self._subsets()
        )

    def states(self, limit: int, dice: Rng) -> Iterator[State]:
        """All of them if there are no more than ``limit``; else those at the edges (nothing,
        everything, all but one and only one of the things that are in doubt) and as many drawn ones
        as fit."""
        total = self.legal()
        picks: Iterator[Pick] = (self._pick(number) for number in range(total))
        if total > limit:
            edges = list(self._edges())
            step = max(1, -(-len(edges) // (limit // 2 or 1)))
            chosen = edges[::step]
            picks = chain(
                chosen, (self._pick(dice.below(total)) for _ in range(limit - len(chosen)))
            )
        for pick in picks:
            yield self._state(pick)

    def _subsets(self) -> list[tuple[int, ...]]:
        """Which of the changes of names may have come to the disk."""
        count = len(self.pending)
        if count <= MAX_SUBSETS_OF:
            return [tuple(n for n in range(count) if mask >> n & 1) for mask in range(1 << count)]
        everything = tuple(range(count))
        firsts = [everything[:n] for n in range(count + 1)]
        return (
            firsts
            + [everything[:n] + everything[n + 1 :] for n in range(count - 1)]
            + [(n,) for n in everything]
        )

    def _named(self, kept: tuple[int, ...]) -> dict[Path, int]:
        """The names that can be reached when those changes came to the disk."""
        reached = self._reached.get(kept)
        if reached is None:
            names = dict(self.durable_names)
            for number in kept:
                _apply(names, self.pending[number])
            reached = self._reached[kept] = {
                path: file
                for path, file in names.items()
                if all(names.get(above) == DIRECTORY for above in _above(path))
            }
        return reached

    def _in_doubt(self, names: dict[Path, int]) -> list[int]:
        return sorted(
            {file for file in names.values() if file != DIRECTORY and not self.files[file].settled}
        )

    def _ways(self, file: int) -> int:
        found = self.files[file]
        return sum(
            prod(len(contents) for _, contents in found.choices(length))
            for length in range(len(found.lengths))
        )

    def _pick(self, number: int) -> Pick:
        """The state with that number in [0, legal())."""
        for kept in self._subsets():
            doubtful = self._in_doubt(self._named(kept))
            ways = [self._ways(file) for file in doubtful]
            if number < prod(ways):
                files = []
                for file, count in zip(doubtful, ways, strict=True):
                    number, own = divmod(number, count)
                    files.append(self._pick_of(file, own))
                return Pick(kept, tuple(files))
            number -= prod(ways)
        raise IndexError(number)

    def _pick_of(self, file: int, number: int) -> tuple[int, int, tuple[int, ...]]:
        found = self.files[file]
        for length in range(len(found.lengths)):
            sizes = [len(contents) for _, contents in found.choices(length)]
            if number < prod(sizes):
                versions = []
                for size in sizes:
                    number, own = divmod(number, size)
                    versions.append(own)
                return file, length, tuple(versions)
            number -= prod(sizes)
        raise IndexError(number)

    def _edges(self) -> Iterator[Pick]:
        everything = tuple(range(len(self.pending)))
        subsets = [everything, (), *(everything[:n] for n in range(1, len(everything)))]
        for kept in subsets:
            doubtful = self._in_doubt(self._named(kept))
            for newest in (False, True):
                yield self._uniform(kept, doubtful, newest, newest)
                yield self._uniform(kept, doubtful, newest, not newest)
                base = self._uniform(kept, doubtful, True, newest)
                for at, (file, length, versions) in enumerate(base.files):
                    sizes = [len(contents) for _, contents in self.files[file].choices(length)]
                    for block, size in enumerate(sizes):
                        other = 0 if newest else size - 1
                        changed = (file, length, (*versions[:block], other, *versions[block + 1 :]))
                        yield Pick(kept, (*base.files[:at], changed, *base.files[at + 1 :]))

    def _uniform(
        self, kept: tuple[int, ...], files: list[int], new_lengths: bool, new_blocks: bool
    ) -> Pick:
        picked = []
        for file in files:
            length = len(self.files[file].lengths) - 1 if new_lengths else 0
            sizes = [len(contents) for _, contents in self.files[file].choices(length)]
            picked.append((file, length, tuple(size - 1 if new_blocks else 0 for size in sizes)))
        return Pick(kept, tuple(picked))

    def _state(self, pick: Pick) -> State:
        contents: dict[int, bytes] = {}
        for file, length, versions in pick.files:
            choices = self.files[file].choices(length)
            blocks = [
                (block, options[own])
                for (block, options), own in zip(choices, versions, strict=True)
            ]
            contents[file] = self.files[file].content(length, blocks)
        names = self._named(pick.names)
        return State(
            {
                path: contents[file] if file in contents else self.files[file].durable
                for path, file in names.items()
                if file != DIRECTORY
            },
            frozenset(path for path, file in names.items() if file == DIRECTORY),
        )


@cache
def _above(path: Path) -> tuple[Path, ...]:
    """The directories that a name lies in, but for the root."""
    return tuple(above for above in path.parents if above != above.parent)


def _apply(names: dict[Path, int], change: Rename) -> None:
    names.pop(change.path, None)
    if change.target is not None:
        names[change.target] = change.file


def _inode(file: PendingFile, now_ms: int) -> Inode:
    inode = Inode(bytearray(file.cache), bytearray(file.durable), mtime_ms=now_ms)
    for low in range(0, len(inode.written), SECTOR):
        if inode.written[low : low + SECTOR] != inode.durable[low : low + SECTOR]:
            inode.dirty.add(low // SECTOR)
            inode.coverage.wrote(inode.coverage.writing(low, low + SECTOR))
    inode.resized = len(inode.written) != len(inode.durable)
    return inode
