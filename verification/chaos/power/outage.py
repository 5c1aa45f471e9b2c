"""The power is gone: of what no sync covers, any part may be there. The rules are those of
`verification.disk_states.model`, but for names: of the changes in one directory the first ones
are there, because a real directory can only be brought back step by step."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from verification.chaos.power.journal import Pending, Record, read_records, replace
from verification.disk_states.pending import PendingFile

GRAINS: Final = (512, 4096)
"""Sizes of a sector and a page: bytes that reach the disk as one."""
MOODS: Final = (0.0, 0.0, 0.0, 0.5, 0.9)
"""How likely a change is there: often none is, which loses most."""


def forget(journal: Path, kept: Path) -> None:
    """The files are others now, and all of them durable: as after a power cut, but for the system's
    start."""
    found = Pending.of(read_records(journal))
    _clear(journal, kept, found.outages)


def cut_power(directory: Path, journal: Path, kept: Path, dice: random.Random, mood: float) -> int:
    """Undo and tear changes that no sync covers. The node's process must be gone.

    Args:
        directory: the node's files.
        journal, kept: those of its `PoweredDisk`.
        mood: one of `MOODS`.

    Returns:
        how many blocks, lengths and names are not as they were written last.
    """
    pending = Pending.of(read_records(journal))
    changes = list(pending.changes.values())
    grain = dice.choice(GRAINS)
    files: dict[int, list[Record]] = {}
    for change in changes:
        if change.known["kind"] in {"write", "resize"}:
            files.setdefault(change.known["inode"], []).append(change)
    undone = 0
    for path in _files_in(directory, kept):
        if mine := files.pop(path.stat().st_ino, None):
            undone += _tear(path, mine, grain, mood, dice)
    undone += _forget_names(changes, kept, mood, dice)
    _clear(journal, kept, pending.outages + 1)
    return undone


def _clear(journal: Path, kept: Path, outages: int) -> None:
    shutil.rmtree(kept, ignore_errors=True)
    replace(journal, Record({"kind": "outage", "count": outages}).pack())


def _files_in(*directories: Path) -> list[Path]:
    return [
        path for directory in directories for path in sorted(directory.rglob("*")) if path.is_file()
    ]


def _tear(
    path: Path, changes: Sequence[Record], grain: int, mood: float, dice: random.Random
) -> int:
    """Give a file one of the contents that it may have."""
    file = as_pending(path.read_bytes(), changes, grain)
    newest = len(file.lengths) - 1
    length = newest if dice.random() < mood else dice.randint(0, newest) if mood else 0
    blocks: list[tuple[int, bytes]] = []
    undone = int(length != newest)
    for block, contents in file.choices(length):
        at = (
            len(contents) - 1
            if dice.random() < mood
            else dice.randrange(len(contents))
            if mood
            else 0
        )
        undone += at != len(contents) - 1
        blocks.append((block, contents[at]))
    path.write_bytes(file.content(length, blocks))
    return undone


def as_pending(content: bytes, changes: Sequence[Record], grain: int) -> PendingFile:
    """A file as the last sync covered it, and each change since; ``content``: its bytes now."""
    written = bytearray(content)
    done: list[tuple[int, bytes | None]] = []
    for change in reversed(changes):
        known = change.known
        if known["kind"] == "write":
            low = known["offset"]
            done.append((low, bytes(written[low : low + known["size"]])))
            written[low : low + len(change.data)] = change.data
            del written[known["before"] :]
        else:
            done.append((known["size"], None))
            _set_length(written, min(known["size"], known["before"]))
            written += change.data
            _set_length(written, known["before"])
    file = PendingFile(grain)
    file.cache, file.durable, file.lengths = written, bytes(written), [len(written)]
    for at, data in reversed(done):
        if data is None:
            file.resize(at)
        else:
            file.write(at, data)
    return file


def _set_length(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


def _forget_names(changes: Sequence[Record], kept: Path, mood: float, dice: random.Random) -> int:
    """Undo the last changes of names in each directory, all of them the latest first."""
    named = [change for change in changes if change.known["kind"] not in {"write", "resize"}]
    counts = Counter(change.known["directory"] for change in named)
    lost = {
        directory: count if not mood else 0 if dice.random() < mood else dice.randint(0, count)
        for directory, count in sorted(counts.items())
    }
    undone = 0
    for change in reversed(named):
        directory = change.known["directory"]
        if lost[directory] > 0:
            lost[directory] -= 1
            undone += _undo_name(change, kept)
    return undone


def _undo_name(change: Record, kept: Path) -> bool:
    """Whether it had been done."""
    known = change.known
    path = Path(known["path"])
    if known["kind"] == "made":
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
        else:
            return False
        return True
    old = kept / known["kept"] if known["kept"] else None
    if known["kind"] == "removed":
        if path.exists() or old is None or not path.parent.exists():
            return False
        os.link(old, path)
        return True
    target = Path(known["target"])
    if not target.exists() or target.stat().st_ino != known["inode"]:
        return False
    target.rename(path)
    if old is not None:
        os.link(old, target)
    return True
