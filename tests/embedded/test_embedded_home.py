"""The directory of an embedded group: what is written survives, and locks die with their
process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from dledger.embedded.groupfile import GroupFile, User
from dledger.embedded.home import FAILED_FILE, FAILED_S, PID_FILE, Home, PidFile
from dledger.embedded.process import PidScope, ProcessId
from dledger.embedded.start import drop_node, retire_nodes
from dledger.errors import ConfigError, PathError, Unavailable
from dledger.net.secret import read_secret
from dledger.types import NodeId
from tests.killed_names import Names

N0, N1, N2 = NodeId("n0"), NodeId("n1"), NodeId("n2")


def group_file(**changes: object) -> GroupFile:
    file = GroupFile(
        group="g",
        members=(N0, N1, N2),
        addresses={N0: "127.0.0.1:1", N1: "127.0.0.1:2", N2: "127.0.0.1:3"},
        local=(N0, N1, N2),
        settings={"segment_bytes": 1 << 24},
        users=(User(ProcessId.of(os.getpid()), holds=True),),
        place="1:2",
    )
    return replace(file, **changes)  # type: ignore[arg-type]


@contextmanager
def holder(path: Path, hold: str) -> Iterator[subprocess.Popen[str]]:
    """Another program, which holds something of the directory until it is killed."""
    script = (
        "import sys\nfrom dledger.embedded.home import Home, PidFile\n"
        f"home = Home(sys.argv[1])\n{hold}\nprint('held', flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "held\n"
        yield program


def test_group_file_reads_back_what_was_written(home: Home) -> None:
    assert home.read() is None
    home.write(group_file())
    assert home.read() == group_file()
    assert group_file().bootstrap_servers == "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    assert b'"format": 1,' in group_file().encode(), "what older releases read, too"


def test_group_file_of_other_members_is_not_read_by_an_older_release(home: Home) -> None:
    """It would start the nodes with a list that the group never had."""
    n3, n4 = NodeId("n3"), NodeId("n4")
    grown = group_file().with_node(n3, "127.0.0.1:4")
    assert (grown.members[-1], grown.local[-1], grown.joining) == (n3, n3, (n3,))
    assert grown.joined(n3).joining == ()
    moving = grown.with_member(n4, "a:5")
    assert moving.elsewhere == (n4,)
    for file in (grown, moving, moving.without_node(n3), replace(grown, leaving=(n3,))):
        assert file.founding == group_file().members
        assert b'"format": 2,' in file.encode()
        home.write(file)
        assert home.read() == file
    assert moving.without_node(n3).without_node(n4).addresses == group_file().addresses


def test_group_file_that_is_damaged_is_an_error_and_not_an_empty_group(home: Home) -> None:
    """Starting a new group beside old stores would lose them; so it never happens by itself."""
    home.group_file.write_text("{half")
    with pytest.raises(ConfigError, match="damaged"):
        home.read()


def test_group_file_of_a_newer_format_is_refused(home: Home) -> None:
    home.group_file.write_bytes(group_file().encode().replace(b'"format": 1', b'"format": 3'))
    with pytest.raises(ConfigError, match="upgrade"):
        home.read()


def test_dead_users_are_forgotten_when_one_joins() -> None:
    """A reused pid is another process: its start time differs."""
    me = ProcessId.of(os.getpid())
    reused = replace(me, started=me.started + "0")
    elsewhere = replace(me, host=PidScope("elsewhere", "", ""))
    file = group_file(users=(User(reused, True), User(elsewhere, True)))
    assert file.live_users() == ()
    joined = file.with_user(User(me, False))
    assert joined.users == (User(me, False),)
    assert joined.with_user(User(me, False)).users == (User(me, False),)


def test_path_that_is_a_file_names_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PathError, match="is a file; name a directory"):
        Home(tmp_path / "file").create()
    with pytest.raises(PathError, match="a part of it is a file"):
        Home(tmp_path / "file" / "log").create()


def test_path_without_the_right_to_write_is_a_path_error(tmp_path: Path) -> None:
    """Run as a user without rights, because root may do everything."""
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    script = (
        "import os, sys\n"
        "from dledger.embedded.home import Home\n"
        "from dledger.errors import PathError\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "try: Home(sys.argv[1]).create()\n"
        "except PathError as error: print(error)\n"
    )
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    done = subprocess.run(
        [sys.executable, "-c", script, str(locked / "log")],
        capture_output=True,
        text=True,
        check=False,
    )
    if "Permission denied" in done.stderr and "Traceback" in done.stderr:
        pytest.skip("the other user may not even read this checkout")
    assert "this user may not; change the permissions" in done.stdout


def test_lock_is_held_by_one_and_dies_with_it(home: Home, tmp_path: Path) -> None:
    """A process that holds the lock and is killed leaves nothing behind that anybody has to clean
    up."""
    with holder(tmp_path, "lock = home.lock(); lock.__enter__()") as other:
        with pytest.raises(Unavailable, match="starting or ending"), home.lock(timeout_s=0):
            pass
        other.kill()
        other.wait()
        with home.lock(timeout_s=0):
            pass


def test_lock_is_held_by_one_of_two_in_one_program(tmp_path: Path) -> None:
    with (
        Home(tmp_path).lock(),
        pytest.raises(Unavailable, match="starting or ending"),
        Home(tmp_path).lock(timeout_s=0),
    ):
        pass


def test_a_node_s_directory_that_was_open_to_others_is_closed_to_them(home: Home) -> None:
    home.node_directory(N0).mkdir()
    home.node_directory(N0).chmod(0o755)
    home.make_node_directory(N0)
    assert home.node_directory(N0).stat().st_mode & 0o777 == 0o700


def test_node_runs_exactly_while_its_pid_file_is_locked(home: Home, tmp_path: Path) -> None:
    assert not home.node(N0).running
    with holder(tmp_path, "assert PidFile(home, 'n0').acquire(0)") as node:
        state = home.node(N0)
        assert state.running
        assert state.process is not None
        assert state.process.pid == node.pid
        assert state.process.alive
        assert not PidFile(home, N0).acquire(0, living_s=0)
        node.kill()
        node.wait()
        assert not home.node(N0).running
        assert PidFile(home, N0).acquire(0)


def test_pid_file_says_when_its_node_ends(home: Home) -> None:
    pid_file = PidFile(home, N0)
    assert pid_file.acquire(0)
    pid_file.write(ending=True)
    assert home.node(N0).ending
    pid_file.clear()
    assert home.node(N0).process is None


def test_place_is_the_directory_whatever_its_name(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.mkdir()
    place = Home(first).place()
    (tmp_path / "link").symlink_to(first)
    assert Home(tmp_path / "link").place() == place
    first.rename(tmp_path / "second")
    assert Home(tmp_path / "second").place() == place
    assert Home(first).place() == ""


@pytest.mark.parametrize(
    ("age_s", "lately"), [(0, True), (FAILED_S + 5, False), (-FAILED_S - 5, False)]
)
def test_failed_start_counts_for_a_limited_time(home: Home, age_s: float, lately: bool) -> None:
    """A clock that was ahead at the failure does not make it count longer."""
    home.node_directory(N0).mkdir(parents=True)
    home.note_start(N0, failed=True)
    when = time.time() - age_s
    os.utime(home.node_directory(N0) / FAILED_FILE, (when, when))
    assert home.failed_lately(N0) is lately


def test_a_node_is_gone_when_its_lock_is_and_not_before(home: Home) -> None:
    """A killed process can look like a zombie while threads of it still hold files and the port."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        process = ProcessId.of(ended.pid)
    held = PidFile(home, N0)
    assert held.acquire(0)
    name = json.dumps({**asdict(process), "home": str(home), "ending": False})
    (home.node_directory(N0) / PID_FILE).write_text(name)
    assert not process.alive
    assert not home.wait_gone(N0, process, 0.02)


def test_group_file_is_on_disk_before_it_replaces_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    Home(tmp_path).write(group_file())
    assert synced == ["group.json.new", tmp_path.name]


def test_killed_write_of_the_group_file_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, home = Names(monkeypatch), Home(tmp_path)
    old, new = group_file(), replace(group_file(), local=())
    for at in count():
        home.write(old)
        killed = names.killed(at, partial(home.write, new))
        found = home.read()
        assert found in ((old, new) if killed else (new,))
        home.write(new)
        assert home.read() == new
        assert not names.unsynced
        if not killed:
            break
    assert at > 3


def test_killed_secret_is_whole_or_not_there_and_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(monkeypatch)
    for at in count():
        home = Home(tmp_path / str(at))
        home.create()
        killed = names.killed(at, home.make_secret)
        assert killed or home.path not in names.unsynced
        home.make_secret()
        assert read_secret(home.secret_file)
        if not killed:
            break
    assert at > 2


def test_killed_removal_of_a_node_is_brought_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group file names the node until its directory is gone, and no one starts it meanwhile."""
    names = Names(monkeypatch)
    for at in count():
        home = Home(tmp_path / str(at))
        home.create()
        file = replace(group_file(), members=(N0, N1), local=(N0, N1), leaving=(N1,))
        home.write(file)
        (home.path / N1 / "data").mkdir(parents=True)
        killed = names.killed(at, partial(drop_node, home, file, N1))
        found = home.read()
        assert found is not None
        assert N1 in found.leaving or not (home.path / N1).exists()
        assert (home.path / N1 / "data").exists() or N1 not in found.local
        retire_nodes(home, found if N1 not in found.local else found.without_node(N1))
        last = home.read()
        assert last is not None
        assert (last.local, last.leaving) == ((N0,), ())
        assert not (home.path / N1).exists()
        if not killed:
            break
    assert at > 8
