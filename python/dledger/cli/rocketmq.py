"""``dledger rocketmq``: what lies in a RocketMQ store, read from its files alone."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from dledger.cli.common import print_json
from dledger.errors import PathError
from dledger.rocketmq.scan import Kind, Piece, scan

NAME_DIGITS: Final = 20


@click.group()
def rocketmq() -> None:
    """Look into a RocketMQ store; nothing in it is changed."""


@rocketmq.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
def verify(directory: Path) -> None:
    """Check every message in the commit log of the store in DIR and print what was found as JSON.

    DIR is a store's root, or a folder with commit log files. Exit code 1 when something is damaged.
    """
    files = commit_log_files(directory)
    report: dict[str, Any] = {"ok": True, "files": [], "messages": 0, "damage": []}
    for path in files:
        counts = dict.fromkeys(Kind, 0)
        for piece in pieces_of(path):
            counts[piece.kind] += 1
            if piece.kind is Kind.DAMAGE:
                report["damage"].append(
                    {"file": str(path), "start": piece.start, "end": piece.end, "reason": piece.reason}
                )
        messages = counts[Kind.MESSAGE] + counts[Kind.ENTRY]
        report["files"].append({"file": str(path), "messages": messages, "damage": counts[Kind.DAMAGE]})
        report["messages"] += messages
    report["ok"] = not report["damage"]
    print_json(report)
    if not report["ok"]:
        sys.exit(1)


def commit_log_files(directory: Path) -> list[Path]:
    """Commit log files of a store, those of a plain commit log before those of DLedger mode, by their offsets.

    Raises:
        PathError: it is no folder, or there are none in it.
    """
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "does not exist"
        raise PathError(f"{directory} {what}; name the root of a RocketMQ store, or its commitlog folder")
    folders = [directory, directory / "commitlog", *sorted(directory.glob("dledger-*/data"))]
    files = [path for folder in folders if folder.is_dir() for path in folder.iterdir() if is_log_name(path.name)]
    if not files:
        raise PathError(f"no commit log files in {directory}; they are in commitlog or dledger-<id>/data of a store")
    return sorted(files, key=lambda path: (path.parent, path.name))


def is_log_name(name: str) -> bool:
    """Whether this is 20 ASCII digits: the offset of a file's first byte."""
    return len(name) == NAME_DIGITS and name.isascii() and name.isdigit()


def pieces_of(path: Path) -> Iterator[Piece]:
    """All pieces of a file, which is mapped and not read at once."""
    if not path.stat().st_size:
        return
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    yield from scan(memoryview(data), int(path.name))
