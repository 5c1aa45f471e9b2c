"""What backups and restores that were killed leave behind, and places that keep half of it."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from dledger.backup import new_directories, target
from dledger.backup.cut import plan_restore
from dledger.backup.manifest import LogChunk
from dledger.backup.repository import TORN_S, Repository
from dledger.backup.restore_mark import MARK
from dledger.backup.restoring import RestoreJob
from dledger.backup.target import LocalTarget
from dledger.client import Client
from dledger.config import GroupConfig
from dledger.embedded.group import read_group
from dledger.errors import CorruptStore, PathError
from tests.backup.conftest import SMALL, FailingTarget, at, back_up, restore, restored, state
from tests.killed_names import Killed, Names

pytestmark = pytest.mark.usefixtures("small_chunks")


def test_rest_of_a_killed_restore_is_removed_by_the_next_one(
    lone: Client, place: Path, tmp_path: Path
) -> None:
    back_up(lone, place)
    rest = tmp_path / "new" / ("n0" + new_directories.SUFFIX)
    rest.mkdir(parents=True)
    (rest / MARK).touch()
    (rest / "data").mkdir()
    restore(place, tmp_path / "new", nodes=1)
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["n0"]
    with pytest.raises(PathError, match=r"has something in it.*Nothing was changed"):
        restore(place, tmp_path / "new", nodes=3)
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["n0"]


def test_restore_killed_between_names_is_no_group_and_is_made_anew(
    lone: Client, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes of directories that have their names do not start before all of them have."""
    back_up(lone, place)
    real = Path.rename

    class Killed(BaseException):
        """As SIGKILL, after which nothing is cleared away."""

    def rename(path: Path, target: Path) -> Path:
        if path.name.startswith("n1"):
            raise Killed
        return real(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(Killed):
        restore(place, tmp_path / "new")
    monkeypatch.setattr(Path, "rename", real)
    assert (tmp_path / "new" / "n0" / "data").exists()
    with pytest.raises(PathError, match=r"n0 is of a restore that was killed.* run the same"):
        restored(tmp_path / "new").__enter__()
    (tmp_path / "new" / "n1").mkdir()
    (tmp_path / "new" / "n1" / "mine").touch()
    with pytest.raises(PathError, match=r"n1 has something in it.*n0 is of a restore that was"):
        restore(place, tmp_path / "new")
    assert (tmp_path / "new" / "n0" / "data").exists(), "nothing was changed"
    (tmp_path / "new" / "n1" / "mine").unlink()
    restore(place, tmp_path / "new")
    with restored(tmp_path / "new") as new:
        assert state(new.client()) == state(lone)


def killed_between_two_marks(place: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore of three nodes, of which one has its mark."""
    names = Names(monkeypatch)
    names.before_unlink = lambda path: names.kill_in(0) if path == new / "n1" / MARK else None
    assert names.killed(-1, lambda: restore(place, new))
    names.before_unlink = lambda path: None
    assert [name for name in ("n0", "n1", "n2") if (new / name / MARK).exists()] == ["n2"]


def test_restore_killed_between_two_marks_is_ended_by_the_same_command(
    lone: Client, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of the nodes may have begun by then, and may have appended."""
    back_up(lone, place)
    new = tmp_path / "new"
    killed_between_two_marks(place, new, monkeypatch)
    (new / "n0" / "begun").touch()
    report = restore(place, new)
    assert (report.group, report.members) == ("test", ("n0", "n1", "n2"))
    assert (new / "n0" / "begun").exists()
    with restored(new) as group:
        assert state(group.client()) == state(lone)
        found = group.client().status().values()
        assert {one["group_id"] for one in found} == {report.group_id}


def test_restore_killed_between_two_marks_is_no_other_one(
    lone: Client, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(lone, place)
    new = tmp_path / "new"
    killed_between_two_marks(place, new, monkeypatch)
    with pytest.raises(PathError, match=r"had made the group test there.* and it is complete now"):
        restore(place, new, 3)
    with pytest.raises(PathError, match=r"has something in it.*Nothing was changed"):
        restore(place, new)
    with restored(new) as group:
        assert state(group.client()) == state(lone)


def test_rest_of_a_restore_has_its_mark_until_all_else_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the removal may be killed, too, and no half of a node is taken for one."""
    target = tmp_path / "n0"
    (target / "data").mkdir(parents=True)
    (target / MARK).touch()
    removed: list[str] = []
    real = shutil.rmtree

    def rmtree(path: Path, **more: bool) -> None:
        removed.append(path.name)
        assert (target / MARK).exists()
        real(path, **more)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    (tmp_path / ("n0" + new_directories.SUFFIX)).mkdir()  # killed before it had its mark
    with new_directories.staged(target) as (fresh,):
        (fresh / "data").mkdir()
    assert removed == ["data"]
    assert [one.name for one in target.iterdir()] == ["data"]


def test_sign_that_is_damaged_counts_as_alive_for_a_day(lone: Client, place: Path) -> None:
    """Its chunks are not believed: a flipped digit would become part of the next manifest."""
    now_s = [2_000_000_000.0]
    repository = Repository(LocalTarget(str(place)), lambda: now_s[0], lambda seconds: None)
    sign = repository.begin("")
    sign.log.append(LogChunk("0" * 64, 1, 0, 0, 0, 0, 0))
    repository.say(sign)
    path = place / sign.path
    path.write_bytes(path.read_bytes().replace(b"2000000000", b"2000000001", 1))
    assert [(one.id, one.log) for one in repository.signs()] == [(sign.id, [])]
    for torn in (path.read_bytes()[:20], b""):
        path.write_bytes(torn)
        for later_s, alive in ((TORN_S - 1, True), (TORN_S + 1, False)):
            now_s[0] = 2_000_000_000.0 + later_s
            (found,) = repository.signs()
            assert repository.is_alive(found) == alive
    repository.tidy()
    assert not repository.signs()


def test_sign_that_is_being_written_is_read_again(place: Path) -> None:
    target = LocalTarget(str(place))
    repository = Repository(target)
    sign = repository.begin("group")
    whole = (place / sign.path).read_bytes()
    (place / sign.path).write_bytes(whole[:10])
    repository.sleep = lambda seconds: (place / sign.path).write_bytes(whole) and None
    assert repository.signs() == [sign]


def test_rests_of_files_of_killed_backups_are_removed(lone: Client, place: Path) -> None:
    back_up(lone, place)
    old, fresh = (place / "chunks" / f"{name}{target.PART}" for name in ("old", "fresh"))
    for one in (old, fresh):
        one.write_bytes(b"half")
    os.utime(old, (0, 0))
    back_up(lone, place)
    assert not old.exists()
    assert fresh.exists(), "another backup may be writing it"


def test_manifest_that_the_place_changes_is_no_backup(lone: Client, place: Path) -> None:
    class Flipping(FailingTarget):
        def write(self, name: str, data: bytes) -> None:
            super().write(name, data[:-1] + b" " if name.startswith("manifests") else data)

    with pytest.raises(CorruptStore, match=r"other bytes are there.*No backup was made"):
        back_up(lone, Flipping(LocalTarget(str(place))))
    assert not at(place).names()


def test_file_that_was_not_written_to_its_end_is_removed(tmp_path: Path) -> None:
    """File systems of fsspec may write in place: a full one leaves half a file."""

    class Full(LocalFileSystem):  # type: ignore[misc]
        def pipe_file(self, path: str, value: bytes, **more: object) -> None:
            super().pipe_file(path, value[:2], **more)
            raise OSError(errno.ENOSPC, "no room")

    full = target.FsspecTarget("full://x", Full(), root=str(tmp_path))
    with pytest.raises(PathError, match="there is no room: make some"):
        full.write("manifests/x.json", b"data")
    assert not full.sizes("manifests")


def test_path_group_of_small_files_starts_with_bodies_that_fit(
    lone: Client, place: Path, tmp_path: Path
) -> None:
    back_up(lone, place)
    repository = at(place)
    plan = plan_restore(repository, repository.newest(), repository.newest().index, ())
    report = RestoreJob(repository.target, plan).to_path(tmp_path / "new", 1)
    settings = read_group(tmp_path / "new")[1].settings
    assert settings["segment_bytes"] == SMALL["segment_bytes"]
    GroupConfig(members=report.members, **settings)


def killed_at_the_mark(
    lone: Client, place: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> RestoreJob:
    """A restore into the path ``new`` that was killed in front of the removal of its mark, the last
    thing that it does."""
    back_up(lone, place)
    repository, names = at(place), Names(monkeypatch)
    plan = plan_restore(repository, repository.newest(), repository.newest().index, ())
    job = RestoreJob(repository.target, plan)

    def kill(path: Path) -> None:
        if path == new / MARK:
            raise Killed

    names.before_unlink = kill
    assert names.killed(-1, lambda: job.to_path(new, 3))
    names.before_unlink = lambda path: None
    assert (new / MARK).exists()
    return RestoreJob(repository.target, plan)


def test_restore_of_a_path_killed_at_its_mark_is_ended_by_same_command(
    lone: Client, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group may have been used by then: nothing of it is made anew."""
    new = tmp_path / "new"
    again = killed_at_the_mark(lone, place, new, monkeypatch)
    made = read_group(new)[1]
    report = again.to_path(new, 3)
    assert (report.group, report.members) == (made.group, made.members)
    assert read_group(new)[1] == made
    assert not (new / MARK).exists()
    with pytest.raises(PathError, match=r"has something in it.*Nothing was changed"):
        again.to_path(new, 3)


def test_restore_of_a_path_killed_at_its_mark_is_no_other_one(
    lone: Client, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new"
    again = killed_at_the_mark(lone, place, new, monkeypatch)
    made = read_group(new)[1]
    with pytest.raises(PathError, match=r"had made the group .* and it is complete now"):
        again.to_path(new, 1)
    assert read_group(new)[1] == made
