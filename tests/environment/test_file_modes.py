"""What nodes, groups and commands write is for their user alone, whatever the umask is."""

from __future__ import annotations

import logging
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger import Client, EmbeddedGroup
from dledger.cli.settings.config_file import config_path, write_config
from dledger.embedded.ports import free_ports
from dledger.errors import PathError
from dledger.net.user_directory import note_group
from dledger.rocketmq.store.message_store import MessageStore
from dledger.storage.disk.disk import RealDisk
from dledger.storage.disk.modes import OWNER, UNIX_GROUP, Modes, restrict
from dledger.storage.opening import open_settings
from dledger.storage.recovery.open_files import StoreSettings
from dledger.types import NodeId
from tests.cli.commands import SMALL, program, serving

PRIVATE = Modes(0o600, 0o700)


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def loose(root: Path, modes: Modes = PRIVATE) -> dict[str, str]:
    """The files and directories of a tree, itself among them, that allow more than these modes."""
    found = {}
    for path in (root, *root.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        allowed = modes.directory if path.is_dir() else modes.file
        if not path.is_symlink() and mode & ~allowed:
            found[str(path.relative_to(root))] = f"{mode:04o}"
    return found


def open_up(root: Path) -> None:
    """As a release before 0.2 left its files."""
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def start_store(directory: Path, disk: RealDisk) -> None:
    settings = StoreSettings(
        directory=directory, node_id=NodeId("n0"), segment_bytes=1 << 20, index_file_bytes=3200
    )
    open_settings(settings, disk).close()


@pytest.mark.cluster
def test_node_under_umask_0_leaves_nothing_that_others_may_use(tmp_path: Path) -> None:
    (port,) = free_ports("127.0.0.1", 1)
    words = serving(f"n0-127.0.0.1:{port}", "n0", tmp_path / "new" / "n0")
    free = ["sh", "-c", 'umask 0 && exec "$@"', "sh", *program(words)]
    with subprocess.Popen(free) as running:
        try:
            with Client(f"127.0.0.1:{port}") as client:
                client.create_topic("t", 3)
                client.append("t", [b"x"] * 100)
        finally:
            running.send_signal(signal.SIGTERM)
    assert running.returncode == 0
    files = {path.name for path in (tmp_path / "new" / "n0").rglob("*")}
    assert {"data", "index", "snapshot", "tables", "members", "mark", "lock"} <= files
    assert loose(tmp_path / "new") == {}


@pytest.mark.cluster
@pytest.mark.usefixtures("no_umask")
def test_path_group_under_umask_0_leaves_nothing_that_others_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLEDGER_USER_DIRECTORY", str(tmp_path / "user"))
    with (
        EmbeddedGroup(tmp_path / "log", replicas=1, **SMALL) as group,
        Client(group.bootstrap_servers) as client,
    ):
        client.create_topic("t")
        client.append("t", [b"x"] * 100)
    assert loose(tmp_path / "log") == {}
    assert loose(tmp_path / "user") == {}


@pytest.mark.usefixtures("no_umask")
def test_contexts_and_notes_of_groups_are_for_their_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tomlkit

    monkeypatch.setenv("DLEDGER_CONFIG", str(tmp_path / "mine" / "config.toml"))
    monkeypatch.setenv("DLEDGER_USER_DIRECTORY", str(tmp_path / "mine" / "user"))
    for _ in range(2):
        write_config(config_path(), tomlkit.parse("context = 'prod'\n"))
        note_group("orders", tmp_path)
    assert config_path().read_text() == "context = 'prod'\n"
    assert loose(tmp_path / "mine") == {}


def test_files_of_an_older_release_are_restricted_at_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start_store(tmp_path / "n0", RealDisk())
    assert caplog.messages == []
    open_up(tmp_path / "n0")
    with caplog.at_level(logging.WARNING):
        start_store(tmp_path / "n0", RealDisk())
    assert loose(tmp_path / "n0") == {}
    assert len(caplog.messages) == 1
    assert "unix_group_reads" in caplog.messages[0]


def test_store_shared_with_a_unix_group_stays_so(tmp_path: Path) -> None:
    disk = RealDisk(modes=UNIX_GROUP)
    start_store(tmp_path / "n0", disk)
    open_up(tmp_path / "n0")
    start_store(tmp_path / "n0", disk)
    assert loose(tmp_path / "n0", UNIX_GROUP) == {}
    assert stat.S_IMODE((tmp_path / "n0" / "mark").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "n0").stat().st_mode) == 0o750


def test_no_file_that_a_link_leads_to_is_restricted(tmp_path: Path) -> None:
    others, store = tmp_path / "others", tmp_path / "store"
    others.mkdir()
    (others / "file").write_text("")
    store.mkdir()
    (store / "to a file").symlink_to(others / "file")
    (store / "to a folder").symlink_to(others)
    (store / "own").write_text("")
    os.mkfifo(store / "pipe")
    open_up(tmp_path)
    assert restrict(store, OWNER) == 2
    assert set(loose(tmp_path)) == {".", "others", "others/file", "store/pipe"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files that are another user's")
def test_files_of_another_user_are_not_restricted(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("")
    open_up(tmp_path)
    os.chown(tmp_path / "theirs", 54_322, 54_322)
    assert restrict(tmp_path, OWNER) == 1
    assert loose(tmp_path) == {"theirs": "0644"}


@pytest.mark.parametrize("name", ["lock", "hard", "java"])
def test_new_file_is_not_made_where_a_link_leads(tmp_path: Path, name: str) -> None:
    disk, link = RealDisk(), tmp_path / name
    link.symlink_to(tmp_path / "elsewhere")
    make = {
        "lock": lambda: disk.lock(link),
        "hard": lambda: disk.open(link, create=True),
        "java": lambda: disk.lock_first_byte(link, b"lock"),
    }[name]
    with pytest.raises(OSError, match="symbolic link"):
        make()
    assert not (tmp_path / "elsewhere").exists()


def test_lock_of_a_group_is_not_made_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PathError, match="see who put it there"):
        EmbeddedGroup(tmp_path / "log", replicas=1, **SMALL)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.usefixtures("no_umask")
def test_exported_store_has_the_modes_of_the_users_umask(tmp_path: Path) -> None:
    os.umask(0o022)
    MessageStore(tmp_path / "store", file_size=1 << 20).close()
    assert set(loose(tmp_path / "store").values()) == {"0644", "0755"}
