"""``dledger verify`` and ``dledger dump``: a stopped node's files, read directly."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from dledger.cli.common import PATH, print_json
from dledger.errors import PathError

_directory = click.argument("directory", metavar="DIR", type=PATH)


@click.command()
@_directory
def verify(directory: Path) -> None:
    """Check every byte of the node's store in DIR and print what was found as JSON; exit code 1
    when it is damaged.

    Stop the node first. DIR is one node's directory, e.g. /data/log/n0 of an embedded group.
    """
    check_directory(directory)
    from dledger.storage.offline.verify import verify_store

    report = verify_store(directory)
    print_json(report)
    if not report["ok"]:
        sys.exit(1)


@click.command()
@_directory
def dump(directory: Path) -> None:
    """Print one JSON line per entry of the node's store in DIR: index, term, pos, size, kind, body
    CRC."""
    check_directory(directory)
    from dledger.storage.offline.dump import dump_store

    for entry in dump_store(directory):
        sys.stdout.write(json.dumps(entry) + "\n")


def check_directory(directory: Path) -> None:
    """Refuse a directory that is no node's, with a word on its kind.

    Raises:
        PathError: nothing there, a file, or a whole group.
    """
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "does not exist"
        raise PathError(f"{directory} {what}; name the directory of a node's store")
    if (directory / "group.json").exists():
        nodes = sorted(str(path.parent) for path in directory.glob("*/node.pid"))
        raise PathError(f"{directory} holds a group; name one of its nodes: {', '.join(nodes)}")
