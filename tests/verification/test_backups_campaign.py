"""A share of ``make backups``, and whether it finds what it is there for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verification.backups import campaign, places, world
from verification.backups.backing_up import back_up
from verification.backups.restoring import restore
from verification.backups.world import World

pytestmark = pytest.mark.cluster

MANIFEST_FIRST = """
from dledger.backup.chunks import chunk_path, digest
from dledger.backup.copying import ChunkWriter
from dledger.backup.manifest import PlainChunk
from dledger.backup.repository import Repository

later = []

def put(self, make):
    data = make()
    later.append((chunk_path(digest(data)), data))
    return PlainChunk(digest(data), len(data))

def add(self, manifest):
    self.target.write(manifest.path, manifest.encode())
    for name, data in later:
        self.target.write(name, data)

ChunkWriter._put, Repository.add = put, add
"""
NOTHING_LOOKED_FOR = """
from dledger.backup.repository import Repository

Repository.add = lambda self, manifest: self.target.write(manifest.path, manifest.encode())
"""
NO_CHECKSUM = """
from dledger.backup import chunks, reading, verifying

def read(target, name, size):
    return target.read(chunks.chunk_path(name))

chunks.read_chunk = reading.read_chunk = verifying.read_chunk = read
verifying.check_following = reading.check_following = lambda end, entries, size: None
"""
IN_PLACE = """
from contextlib import contextmanager
from dledger.backup import restoring

@contextmanager
def staged(*targets, told=None):
    for one in targets:
        one.mkdir(parents=True)
    yield targets

restoring.staged = staged
"""


@pytest.fixture
def planted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], dict[str, Any]]:
    """Runs a small campaign of one kind of step, with a bug in the commands."""

    def run(bug: str, fault: str) -> dict[str, Any]:
        program = tmp_path / "program.py"
        serve = "from verification.backups import program\n\nprogram.serve()\n"
        program.write_text(bug + serve)
        monkeypatch.setattr(world, "PROGRAM", [sys.executable, str(program)])
        step: Callable[[World], None] = back_up if fault else restore
        monkeypatch.setattr(places, "OF_BACKUPS", (fault,))
        return campaign.run(tmp_path, 40, 1, print, {step: 1})

    return run


def test_share_of_the_campaign_accepts_nothing_partial(tmp_path: Path) -> None:
    found = campaign.run(tmp_path, 4, 2, print)
    assert found["problems"] == []
    assert found["figures"]["kills"] >= 4


@pytest.mark.parametrize(
    ("bug", "fault", "says"),
    [
        (MANIFEST_FIRST, places.DIES, "is partial"),
        (NOTHING_LOOKED_FOR, places.LOSES, "a backup that is"),
        (NO_CHECKSUM, places.FLIPS, "verify says"),
        (IN_PLACE, "", "that no restore has made|may be used|at entry"),
    ],
)
def test_rule_that_is_taken_out_is_missed(
    planted: Callable[[str, str], dict[str, Any]], bug: str, fault: str, says: str
) -> None:
    found = planted(bug, fault)
    assert not found["ok"]
    assert any(word in problem for problem in found["problems"] for word in says.split("|"))
