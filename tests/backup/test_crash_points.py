"""Kills and power cuts at each operation on names: of a restore's directories, and of a backup's
files."""

from __future__ import annotations

import shutil
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from dledger.backup.new_directories import SUFFIX, staged
from dledger.backup.restore_mark import MARK, finish
from dledger.backup.target import LocalTarget
from dledger.client import Client
from tests.backup.conftest import at as at_place
from tests.backup.conftest import back_up
from tests.killed_names import Names


def restore(*targets: Path) -> None:
    """Two files in each directory, as stores have."""
    if (told := finish(targets)) is not None:
        assert told == {"made": 1}
        return
    with staged(*targets, told=lambda: {"made": 1}) as places:
        for place in places:
            (place / "data").mkdir()
            (place / "state").touch()


def is_whole(target: Path) -> bool:
    return (target / "data").is_dir() and (target / "state").exists()


def test_restore_killed_at_any_step_is_ended_or_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step leaves a directory that a node would start in before all have their names, and the
    same command then makes the group, or brings the restore to its end: where one node may have
    begun, nothing is made anew."""
    names, ended = Names(monkeypatch), 0
    for at in count():
        targets = [tmp_path / str(at) / name for name in ("n0", "n1", "n2")]
        if not names.killed(at, partial(restore, *targets)):
            break
        may_start = [one for one in targets if one.exists() and not (one / MARK).exists()]
        if may_start:
            assert all(map(is_whole, targets))
            (may_start[0] / "begun").touch()
        if len(may_start) < len(targets):
            restore(*targets)
            ended += len(may_start) > 0
        assert not may_start or (may_start[0] / "begun").exists()
        assert {one.name for one in targets[0].parent.iterdir()} == {"n0", "n1", "n2"}
        assert not any((one / MARK).exists() for one in targets)
        assert all(map(is_whole, targets))
    assert at > 30
    assert ended == 4  # killed before a sync or an unlink behind the first one


def test_end_of_a_killed_restore_may_be_killed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(monkeypatch)
    for at in count():
        targets = [tmp_path / str(at) / name for name in ("n0", "n1", "n2")]
        names.before_unlink = lambda path: names.kill_in(0) if path.parent.name == "n1" else None
        assert names.killed(-1, partial(restore, *targets))
        names.before_unlink = lambda path: None
        if not names.killed(at, partial(restore, *targets)):
            break
        if any((one / MARK).exists() for one in targets):
            restore(*targets)
        assert not any((one / MARK).exists() for one in targets)
        assert all(map(is_whole, targets))
    assert at > 5


def test_mark_of_directories_that_are_gone_since_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore is made anew where one of them was removed, or is given others."""
    targets = [tmp_path / name for name in ("n0", "n1")]
    names = Names(monkeypatch)
    names.before_unlink = lambda path: names.kill_in(0)
    assert names.killed(-1, partial(restore, *targets))
    names.before_unlink = lambda path: None
    assert finish([*targets, tmp_path / "n2"]) is None
    assert finish(targets[1:]) is None
    shutil.rmtree(targets[0])
    assert finish(targets) is None
    assert (targets[1] / MARK).exists()
    restore(*targets)
    assert all(map(is_whole, targets))


def test_killed_removal_of_a_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch)
    for at in count():
        target = tmp_path / str(at) / "n0"
        place = target.with_name("n0" + SUFFIX)
        for rest in (target, place):
            (rest / "data").mkdir(parents=True)
            (rest / MARK).touch()
        if not names.killed(at, partial(restore, target)):
            break
        if not is_whole(target) or (target / MARK).exists():
            restore(target)
        assert is_whole(target)
        assert not place.exists()
    assert at > 10


def test_mark_of_a_restore_outlives_what_is_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut takes names in any order: so the mark is on the disk before anything is written
    beside it, and goes when all else is, or is gone, there. In the end nothing may be lost."""
    targets = [tmp_path / "new" / "group" / name for name in ("n0", "n1")]
    targets.append(tmp_path / "another" / "place" / "n2")
    rest = targets[0].with_name("n0" + SUFFIX)
    (rest / "data").mkdir(parents=True)
    (rest / MARK).touch()
    names, marks = Names(monkeypatch), []

    def before_unlink(path: Path) -> None:
        if path.name == MARK:
            marks.append(path.parent)
            assert path.parent not in names.unsynced
            if path.parent in targets:
                assert targets[0].parent not in names.unsynced

    names.before_unlink = before_unlink
    with staged(*targets) as places:
        assert not names.unsynced & set(places)
        (places[0] / "data").mkdir()
    assert marks == [rest, *targets]
    assert not names.unsynced


def test_restore_that_fails_and_is_killed_then_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(monkeypatch)

    def fail(at: int, target: Path) -> None:
        with suppress(ZeroDivisionError), staged(target) as (place,):
            (place / "data").mkdir()
            names.kill_in(at)
            raise ZeroDivisionError

    for at in count():
        target = tmp_path / str(at) / "n0"
        killed = names.killed(-1, partial(fail, at, target))
        restore(target)
        assert is_whole(target)
        if not killed:
            break
    assert at > 2


def test_file_of_a_backup_is_whole_or_not_there_and_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name, and those of the directories above it: also of directories that a backup made which
    was killed before it came to syncing them."""
    names, name = Names(monkeypatch), "chunks/ab/one"
    for at in count():
        root = tmp_path / str(at) / "backups"
        killed = names.killed(at, partial(LocalTarget(str(root)).write, name, b"bytes"))
        found = root / name
        assert not found.exists() or found.read_bytes() == b"bytes"
        again = LocalTarget(str(root))
        for _ in range(2):
            again.write(name, b"other")
            assert not names.unsynced
            assert found.read_bytes() == b"other"
        if not killed:
            break
    assert at > 8


def test_dropped_backup_is_gone_for_good_before_its_chunks(
    filled: Client, place: Path, small_chunks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a power cut brings no backup back whose chunks are gone."""
    back_up(filled, place)
    filled.append("plain", [b"more"] * 100)
    names, gone = Names(monkeypatch), list[str]()

    def before_unlink(path: Path) -> None:
        if path.is_relative_to(place / "chunks"):
            gone.append(path.name)
            assert place / "manifests" not in names.unsynced

    names.before_unlink = before_unlink
    back_up(filled, place, keep=1)
    assert gone, "what the backup that was dropped had alone"
    assert len(at_place(place).names()) == 1
