"""Places of backups that fail, are full, read-only, lose files or bytes, and backups beside one
another."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest

from dledger.backup.chunks import chunk_path
from dledger.backup.new_directories import SUFFIX
from dledger.backup.repository import STALE_S, Repository, Sign
from dledger.backup.restore_mark import MARK
from dledger.backup.target import LocalTarget, open_target
from dledger.backup.verifying import verify_backups
from dledger.client import Client
from dledger.errors import ConfigError, CorruptStore, PathError, Unavailable
from dledger.testing import InProcessGroup
from tests.backup.conftest import SMALL, FailingTarget, at, back_up, fill, restore, restored, state

pytestmark = pytest.mark.usefixtures("small_chunks")


def test_backup_that_fails_at_any_call_is_none_and_the_next_one_is(
    lone: Client, tmp_path: Path
) -> None:
    """What was written by then is not written again."""
    whole = FailingTarget(LocalTarget(str(tmp_path / "whole")))
    due = back_up(lone, whole).written
    saved = 0
    for fails_at in range(whole.calls):
        place = LocalTarget(str(tmp_path / f"{fails_at}"))
        failing = FailingTarget(place, fails_at)
        with pytest.raises(PathError, match="the place fails"):
            back_up(lone, failing)
        before = at(place).names()
        assert len(before) <= 1
        assert not before or not list(verify_backups(place, at(place).manifests()[0]))
        kept = sum(at(place).chunks().values())
        report = back_up(lone, place)
        assert report.written == due - kept
        saved += kept
        assert not list(verify_backups(place, [report.manifest]))
    assert saved > due


def test_restore_that_fails_at_any_read_leaves_nothing(lone: Client, tmp_path: Path) -> None:
    place = LocalTarget(str(tmp_path / "place"))
    back_up(lone, place)
    counting = FailingTarget(place)
    restore(counting, tmp_path / "whole", nodes=1)
    for fails_at in range(counting.calls):
        with pytest.raises(PathError, match="the place fails"):
            restore(FailingTarget(place, fails_at), tmp_path / "new", nodes=1)
        assert not list((tmp_path / "new").glob("*"))
    restore(place, tmp_path / "new", nodes=1)
    with restored(tmp_path / "new", 1) as new:
        assert state(new.client()) == state(lone)


@pytest.mark.parametrize("call", ["rename", "mkdir", "unlink"])
def test_restore_whose_disk_fails_leaves_all_directories_or_none(
    lone: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    place = LocalTarget(str(tmp_path / "place"))
    back_up(lone, place)
    real = getattr(Path, call)
    for fails_at in range(1, 4):
        calls = [0]

        def fail(
            path: Path, *args: object, calls: list[int] = calls, at: int = fails_at, **more: object
        ) -> object:
            if SUFFIX in path.name or path.name == MARK:
                calls[0] += 1
                if calls[0] == at:
                    raise OSError(errno.ENOSPC, "no room")
            return real(path, *args, **more)

        monkeypatch.setattr(Path, call, fail)
        with pytest.raises(PathError, match="no room"):
            restore(place, tmp_path / "new")
        monkeypatch.setattr(Path, call, real)
        assert not list((tmp_path / "new").glob("*"))
    restore(place, tmp_path / "new")


def test_flipped_byte_or_lost_file_is_named_and_never_restored(
    lone: Client, place: Path, tmp_path: Path
) -> None:
    manifest = back_up(lone, place).manifest
    repository = at(place)
    for name in manifest.chunks:
        path = place / chunk_path(name)
        data = path.read_bytes()
        for wrong in (data[:-1] + bytes([data[-1] ^ 1]), data[:-1], None):
            path.unlink() if wrong is None else path.write_bytes(wrong)
            ((file, _),) = verify_backups(repository.target, [manifest])
            assert file == chunk_path(name)
            with pytest.raises((CorruptStore, PathError), match=name):
                restore(place, tmp_path / "new", nodes=1)
            assert not list((tmp_path / "new").glob("*"))
            path.write_bytes(data)
    assert not list(verify_backups(repository.target, [manifest]))


def test_manifest_with_a_flipped_byte_is_no_backup(
    lone: Client, place: Path, tmp_path: Path
) -> None:
    manifest = back_up(lone, place).manifest
    path = place / manifest.path
    data = path.read_bytes()
    for at_byte in (0, len(data) // 2, len(data) - 1):
        wrong = bytearray(data)
        wrong[at_byte] ^= 4
        path.write_bytes(wrong)
        with pytest.raises(CorruptStore, match=f"{manifest.name}.json is damaged"):
            restore(place, tmp_path / "new", nodes=1)
        report = back_up(lone, place, keep=1)
        assert report.dropped == 0
        assert "nobody knows which chunks" in report.note
        (place / report.manifest.path).unlink()
    path.write_bytes(data)
    restore(place, tmp_path / "new", nodes=1)


def test_place_that_loses_files_has_no_backup(lone: Client, place: Path) -> None:
    losing = FailingTarget(LocalTarget(str(place)), loses="chunks/")
    with pytest.raises(CorruptStore, match=r"this place loses files\. No backup was made"):
        back_up(lone, losing)
    assert not at(place).names()
    whole = back_up(lone, place).manifest
    (place / chunk_path(whole.log[0].name)).unlink()
    (place / chunk_path(whole.log[-1].name)).write_bytes(b"short")
    again = back_up(lone, place).manifest
    assert again.log == whole.log
    assert not list(verify_backups(at(place).target, [whole, again]))


@pytest.mark.parametrize(
    ("code", "way_out"),
    [
        (errno.ENOSPC, "there is no room: make some"),
        (errno.EROFS, "it is read-only: name another place"),
        (errno.EACCES, "this user may not"),
    ],
)
def test_full_or_read_only_place_is_named_with_the_way_out(
    lone: Client, place: Path, monkeypatch: pytest.MonkeyPatch, code: int, way_out: str
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(code, "no")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(PathError, match=f"{place}.*{way_out}"):
        back_up(lone, place)
    assert not [one for one in place.rglob("*") if one.is_file()], "no rest of a file stays"


def test_backups_in_memory_of_fsspec(lone: Client, tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}/backups"
    manifest = back_up(lone, url).manifest
    assert back_up(lone, url).manifest.log == manifest.log
    assert not list(verify_backups(open_target(url), at(url).manifests()[0]))
    restore(url, tmp_path / "new", nodes=1)
    with restored(tmp_path / "new", 1) as new:
        assert state(new.client()) == state(lone)
    back_up(lone, url, keep=1)
    assert len(at(url).names()) == 1
    fsspec.filesystem("memory").rm(f"/{tmp_path.name}", recursive=True)
    assert not at(url).names()
    with pytest.raises(ConfigError, match="there is no backup at"):
        at(url).newest()


def test_file_urls_and_unknown_ones(lone: Client, place: Path) -> None:
    back_up(lone, f"file://{place}")
    assert len(at(place).names()) == 1
    with pytest.raises(ConfigError, match="nosuch://x"):
        open_target("nosuch://x")


def test_two_backups_at_once_do_no_harm(filled: Client, group: InProcessGroup, place: Path) -> None:
    """Each of them drops old ones, as far as no other one is under way."""
    back_up(filled, place)

    def run(_: int) -> None:
        with Client(group.bootstrap_servers) as client:
            for _ in range(4):
                back_up(client, place, keep=1)

    with ThreadPoolExecutor(3) as pool:
        writing = pool.submit(lambda: [fill(filled, turn) for turn in range(1, 4)])
        list(pool.map(run, range(2)))
        writing.result()
    repository = at(place)
    sound, wrong = repository.manifests()
    assert sound
    assert not wrong
    assert not list(verify_backups(repository.target, sound))
    last = back_up(filled, place, keep=1)
    assert repository.names() == [last.manifest.name]
    assert repository.chunks() == last.manifest.chunks
    assert not repository.signs()


def test_old_backups_stay_while_another_one_is_under_way(filled: Client, place: Path) -> None:
    repository = at(place)
    first = back_up(filled, place).manifest
    other = repository.begin("")
    report = back_up(filled, place, keep=1)
    assert (report.dropped, len(repository.names())) == (0, 2)
    assert "another backup is under way" in report.note
    other.time_s -= STALE_S  # it was killed
    repository.target.write(other.path, other.encode())
    report = back_up(filled, place, keep=1)
    assert report.dropped == 2
    assert first.name not in repository.names()
    assert not list(verify_backups(repository.target, [report.manifest]))


def test_backup_waits_while_another_one_drops_chunks(place: Path) -> None:
    now = [0.0]
    repository = Repository(
        open_target(str(place)), lambda: now[0], lambda s: now.__setitem__(0, now[0] + s)
    )
    sign = Sign("other", 250.0, drops=True)
    repository.target.write(sign.path, sign.encode())
    with pytest.raises(Unavailable, match="has been dropping old ones"):
        repository.begin("")
    assert [one.id for one in repository.signs()] == ["other"]
    sign.time_s = now[0] - STALE_S + 10
    repository.target.write(sign.path, sign.encode())
    repository.begin("")  # it counts as killed by then
    assert now[0] < 400


def test_signs_of_killed_backups_are_used_and_removed(lone: Client, place: Path) -> None:
    failing = FailingTarget(LocalTarget(str(place)), loses="manifests/")
    with pytest.raises(CorruptStore, match=r"manifests/.* this place loses files\. No backup was"):
        back_up(lone, failing)
    for one in (place / "running").glob("*"):
        one.unlink()
    (place / "running").mkdir(exist_ok=True)
    (place / "running" / "x.json").write_text("half a fi")
    report = back_up(lone, place)
    assert report.written == 0
    assert at(place).chunks()
    assert [one.name for one in (place / "running").iterdir()] == ["x.json"], "it may be alive"


def test_restored_group_is_small_as_the_old_one(lone: Client, place: Path, tmp_path: Path) -> None:
    """Files have the sizes that the old group's had."""
    back_up(lone, place)
    report = restore(place, tmp_path / "new", nodes=1)
    assert (report.segment_bytes, report.index_file_bytes) == (
        SMALL["segment_bytes"],
        SMALL["index_file_bytes"],
    )
