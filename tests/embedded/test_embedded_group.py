"""A group in a directory, with real processes: it survives kills, restarts, moves and company."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dledger import Client, EmbeddedGroup, EmbeddedNode, Role
from dledger.embedded import connect_path
from dledger.embedded.home import Home
from dledger.embedded.ports import free_ports
from dledger.embedded.probe import wait_for_leader
from dledger.embedded.process import PidScope, ProcessId, spawn_python
from dledger.errors import (
    ConfigError,
    DLedgerError,
    ForkedClient,
    PathError,
    PortInUse,
    StorageError,
    Unavailable,
    WrongGroup,
)
from dledger.net.address import split_address
from dledger.net.secret import read_secret
from dledger.types import NodeId
from tests.cli.commands import program, serving
from tests.embedded import reads
from tests.embedded.conftest import SMALL

pytestmark = pytest.mark.cluster
Until = Callable[..., None]


@pytest.fixture
def group(log_path: Path) -> Iterator[EmbeddedGroup]:
    """A group of three in ``log_path``."""
    with EmbeddedGroup(log_path, **SMALL) as running:
        yield running


@pytest.fixture
def single(log_path: Path) -> Iterator[EmbeddedGroup]:
    """A group of one in ``log_path``."""
    with EmbeddedGroup(log_path, replicas=1, **SMALL) as running:
        yield running


def append(servers: str, *values: str) -> None:
    with Client(servers) as client:
        client.create_topic("t", if_absent=True)
        for value in values:
            client.append("t", value.encode())


def values(servers: str) -> list[str]:
    with Client(servers) as client:
        return [value.decode() for value in reads.values(client)]


def running(path: Path) -> list[str]:
    home = Home(path)
    file = home.read()
    return [node for node in file.local if home.node(node).running] if file else []


def application(script: str, *arguments: str) -> subprocess.Popen[str]:
    """Another program; it prints a line when it is where the test wants it, and goes on when it
    gets one."""
    imports = (
        "import sys\nfrom dledger import Client, EmbeddedGroup\nfrom dledger.embedded "
        "import connect_path\n"
    )
    command = [sys.executable, "-c", imports + textwrap.dedent(script), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line_of(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


def go_on(program: subprocess.Popen[str]) -> None:
    out, _ = program.communicate("\n", timeout=60)
    assert program.returncode == 0, out


HOLD = """
    group = EmbeddedGroup(sys.argv[1])
    print(group.bootstrap_servers, flush=True)
    sys.stdin.readline()
    group.stop()
"""


def test_group_goes_on_without_its_leader_and_takes_it_back(log_path: Path, until: Until) -> None:
    with EmbeddedGroup(log_path, replicas=3, **SMALL) as group:
        append(group.bootstrap_servers, "a")
        first = group.leader
        assert group.nodes[first].role is Role.LEADER
        group.kill(first)
        assert group.nodes[first].pid is None
        append(group.bootstrap_servers, "b")
        assert group.leader != first
        group.restart(first)
        until(lambda: group.nodes[first].role is Role.FOLLOWER, f"{first} to follow")
        append(group.bootstrap_servers, "c")
        assert values(group.bootstrap_servers) == ["a", "b", "c"]
    assert running(log_path) == []


def test_group_that_was_killed_comes_back_with_all_that_was_acknowledged(log_path: Path) -> None:
    """kill -9 of everything, then the same command again: the same addresses, the same records."""
    group = EmbeddedGroup(log_path, **SMALL)
    servers = group.bootstrap_servers
    append(servers, "a", "b")
    for node in group.nodes:
        group.kill(node)
    with pytest.raises(Unavailable, match="nodes that do not run: n0, n1, n2"):
        _ = group.leader
    with EmbeddedGroup(log_path, **SMALL) as again:
        assert again.bootstrap_servers == servers
        assert values(servers) == ["a", "b"]


def test_group_of_one_whose_disk_lost_committed_entries_names_the_way_out(
    log_path: Path, tmp_path: Path
) -> None:
    lost = ("data", "index", "mark")
    directory, kept = log_path / "n0", tmp_path / "kept"
    kept.mkdir()
    for value in ("kept", "lost", "lost too"):
        with EmbeddedGroup(log_path, replicas=1, **SMALL) as group:
            append(group.bootstrap_servers, value)
        if value == "kept":
            for name in lost:
                subprocess.run(["cp", "-a", directory / name, kept / name], check=True)
    for name in lost:
        subprocess.run(["rm", "-r", directory / name], check=True)
        subprocess.run(["cp", "-a", kept / name, directory / name], check=True)
    with pytest.raises(
        DLedgerError,
        match=r"disk has lost them, and the group has no other voter.*--accept-loss \d+",
    ):
        EmbeddedGroup(log_path, replicas=1, **SMALL)


def test_missing_node_is_started_by_whoever_comes_next(
    log_path: Path, group: EmbeddedGroup
) -> None:
    group.kill("n1")
    assert connect_path(log_path) == group.bootstrap_servers
    assert group.nodes["n1"].pid is not None  # type: ignore[index]


def test_node_killed_just_as_group_is_joined_is_started_too(
    log_path: Path, group: EmbeddedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL of all nodes, and the next start before the kernel has ended the last of them."""
    group.kill("n0")
    held = [NodeId("n1")]

    def elected(*args: Any) -> NodeId | None:
        while held:  # it held its lock when the group was joined, and is gone now
            group.kill(held.pop())
        return wait_for_leader(*args)

    monkeypatch.setattr("dledger.embedded.group.wait_for_leader", elected)
    group.start()
    assert running(log_path) == ["n0", "n1", "n2"]


def test_path_of_killed_node_that_still_has_its_lock_gets_node_again(
    log_path: Path, single: EmbeddedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    single.kill("n0")
    lock = (log_path / "n0" / "node.pid").open("rb")
    fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel has not ended all of its threads
    clock = SimpleNamespace(
        time=time.time, monotonic=time.monotonic, sleep=lambda seconds: lock.close()
    )
    monkeypatch.setattr("dledger.embedded.home.time", clock)
    connect_path(log_path)
    monkeypatch.undo()
    lock.close()
    assert running(log_path) == ["n0"]


class Spawned:
    """Processes of nodes as they are made; the first ``kills`` of them are killed at once.

    Attributes:
        pids: of all.
    """

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.kills = 0
        self.module = ""
        self.before: Callable[[], object] = lambda: None
        """Called before the first one is made."""

    def __call__(self, module: str, arguments: list[str], stdout: int, log_file: Path) -> int:
        if not self.pids:
            self.before()
        pid = spawn_python(self.module or module, arguments, stdout, log_file)
        if len(self.pids) < self.kills:
            os.kill(pid, signal.SIGKILL)
        self.pids.append(pid)
        return pid


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> Spawned:
    made = Spawned()
    monkeypatch.setattr("dledger.embedded.spawning.spawn_python", made)
    return made


def test_node_that_is_killed_while_it_starts_is_started_again(
    log_path: Path, spawned: Spawned
) -> None:
    spawned.kills = 1
    with EmbeddedGroup(log_path, replicas=1, **SMALL) as group:
        assert [info.pid for info in group.nodes.values()] == spawned.pids[1:]
        assert len(spawned.pids) == 2


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_node_killed_during_start_is_noticed_despite_a_forked_child(
    log_path: Path, spawned: Spawned
) -> None:
    """With the end of the pipe that the node has, it would be waited for as long as a node may need
    to start."""
    children: list[int] = []

    def fork() -> None:
        child = os.fork()
        if not child:
            signal.alarm(300)
            signal.pause()
        children.append(child)

    spawned.kills, spawned.before = 1, fork
    try:
        with EmbeddedGroup(log_path, replicas=1, **SMALL):
            assert len(spawned.pids) == 2
    finally:
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)


def test_node_that_is_killed_each_time_it_starts_is_no_error_of_its_store(
    log_path: Path, spawned: Spawned
) -> None:
    spawned.kills = 99
    said = r"node n0 of .* was killed \(SIGKILL\) before it served, twice"
    with pytest.raises(Unavailable, match=said):
        EmbeddedGroup(log_path, replicas=1, **SMALL)
    assert len(spawned.pids) == 2


def test_node_that_ends_by_itself_before_it_serves_is_started_once(
    log_path: Path, spawned: Spawned
) -> None:
    spawned.module = "dledger.embedded.no_such_module"
    said = r"ended before it served; its log ends with: .*no_such_module"
    with pytest.raises(StorageError, match=said):
        EmbeddedGroup(log_path, replicas=1, **SMALL)
    assert len(spawned.pids) == 1


def test_joining_a_running_group_starts_nothing(log_path: Path, single: EmbeddedGroup) -> None:
    pids = [info.pid for info in single.nodes.values()]
    for _ in range(3):
        assert connect_path(log_path) == single.bootstrap_servers
    assert [info.pid for info in single.nodes.values()] == pids


def test_two_applications_have_one_group_and_the_second_goes_on_alone(log_path: Path) -> None:
    with application(HOLD, str(log_path)) as first, application(HOLD, str(log_path)) as second:
        servers = line_of(first)
        assert line_of(second) == servers
        append(servers, "a")
        go_on(first)
        append(servers, "b")
        assert values(servers) == ["a", "b"]
        go_on(second)
    assert running(log_path) == []


def test_groups_of_one_process_count_as_two(log_path: Path) -> None:
    first, second = EmbeddedGroup(log_path, replicas=1, **SMALL), EmbeddedGroup(log_path)
    first.stop()
    assert running(log_path) == ["n0"]
    second.stop()
    assert running(log_path) == []


def test_application_that_is_killed_at_its_start_leaves_nothing_in_the_way(
    log_path: Path, until: Until
) -> None:
    """Its half-started nodes are taken over, or die; nobody has to remove anything."""
    script = "connect_path(sys.argv[1], segment_bytes=16 << 20, index_file_bytes=1 << 20)"
    with application(script, str(log_path)) as killed:
        until(lambda: any(log_path.glob("n*/node.log")), "its first process")
        killed.kill()
    with EmbeddedGroup(log_path, **SMALL) as group:
        append(group.bootstrap_servers, "a")
        assert values(group.bootstrap_servers) == ["a"]
        pids = {info.pid for info in group.nodes.values()}
        assert len(pids) == 3
        assert None not in pids


def test_port_that_somebody_else_took_is_replaced(log_path: Path) -> None:
    group = EmbeddedGroup(log_path, **SMALL)
    append(group.bootstrap_servers, "a")
    taken = group.nodes["n0"].address  # type: ignore[index]
    group.kill("n0")
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(split_address(taken))
        thief.listen()
        group.start()
        assert group.nodes["n0"].address != taken  # type: ignore[index]
        append(group.bootstrap_servers, "b")
    group.kill(group.leader)  # the others know the new address, or there would be no quorum
    append(group.bootstrap_servers, "c")
    assert values(group.bootstrap_servers) == ["a", "b", "c"]
    group.stop()


def test_moved_directory_is_the_same_group(log_path: Path) -> None:
    with EmbeddedGroup(log_path, **SMALL) as group:
        append(group.bootstrap_servers, "a")
    moved = log_path.with_name("moved")
    log_path.rename(moved)
    with EmbeddedGroup(moved) as group:
        append(group.bootstrap_servers, "b")
        assert values(group.bootstrap_servers) == ["a", "b"]


def test_directory_moved_under_running_nodes_ends_them(log_path: Path, until: Until) -> None:
    """They would write their next file to a path that is gone; the new path starts them again."""
    group = EmbeddedGroup(log_path, **SMALL)
    append(group.bootstrap_servers, "a")
    pids = {info.pid for info in group.nodes.values()}
    moved = log_path.with_name("moved")
    log_path.rename(moved)
    with EmbeddedGroup(moved) as again:
        assert not pids & {info.pid for info in again.nodes.values()}
        assert values(again.bootstrap_servers) == ["a"]


def group_of_a_deleted_directory(log_path: Path, until: Until) -> EmbeddedGroup:
    """Its node has ended by itself."""
    group = EmbeddedGroup(log_path, replicas=1, **SMALL)
    process = Home(log_path).node(NodeId("n0")).process
    assert process is not None
    shutil.rmtree(log_path)
    until(lambda: not process.alive, "the node to end")
    return group


def test_deleted_directory_ends_its_nodes(log_path: Path, until: Until) -> None:
    group_of_a_deleted_directory(log_path, until).stop()


def test_group_in_recreated_directory_is_ended_only_by_its_own_holder(
    log_path: Path, until: Until
) -> None:
    first = group_of_a_deleted_directory(log_path, until)
    second = EmbeddedGroup(log_path, replicas=1, **SMALL)
    second.stop()
    assert running(log_path) == []
    second.start()
    first.stop()
    assert running(log_path) == ["n0"]
    second.stop()
    assert running(log_path) == []


def in_fork(does: Callable[[], object]) -> bool:
    """Whether a forked child comes to the end of this."""
    pid = os.fork()
    if not pid:
        try:
            does()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_group_is_ended_by_its_holding_process_and_by_no_forked_child(log_path: Path) -> None:
    with EmbeddedGroup(log_path, replicas=1, **SMALL) as group:

        def child() -> None:
            group.stop(force=True)
            with pytest.raises(ForkedClient):
                group.start()
            with EmbeddedGroup(log_path):  # its own, and ended with the group's going on
                pass

        assert in_fork(child)
        assert running(log_path) == ["n0"]
    assert running(log_path) == []


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_node_of_an_application_is_ended_by_no_forked_child(log_path: Path) -> None:
    address = f"127.0.0.1:{free_ports('127.0.0.1', 1)[0]}"
    with EmbeddedNode(log_path, f"n0-{address}", "n0", **SMALL) as node:

        def child() -> None:
            with pytest.raises(ForkedClient), node:
                node.start()
            node.stop()

        assert in_fork(child)
        assert running(log_path) == ["n0"]
    assert running(log_path) == []


def test_path_that_becomes_another_directory_ends_its_nodes(
    tmp_path: Path, log_path: Path, until: Until
) -> None:
    """A new disk mounted over the path, a link that is turned: what they write would not be found
    again."""
    for name in ("first", "second"):
        (tmp_path / name / "n0").mkdir(parents=True)
    log_path.symlink_to(tmp_path / "first")
    EmbeddedGroup(log_path, replicas=1, **SMALL)
    (tmp_path / "turned").symlink_to(tmp_path / "second")
    (tmp_path / "turned").replace(log_path)
    until(lambda: running(tmp_path / "first") == [], "the node to end")
    assert "moved or deleted" in (tmp_path / "first" / "n0" / "node.log").read_text()


def test_copy_runs_beside_its_original(log_path: Path) -> None:
    """A copied directory is another group on other ports, also while the original does not run: its
    nodes could otherwise be taken for the original's when that starts again."""
    with EmbeddedGroup(log_path, **SMALL) as group:
        append(group.bootstrap_servers, "a")
        ports = set(group.bootstrap_servers.split(","))
    copy = log_path.with_name("copy")
    shutil.copytree(log_path, copy)
    with EmbeddedGroup(copy) as copied, EmbeddedGroup(log_path) as group:
        assert not ports & set(copied.bootstrap_servers.split(","))
        assert ports == set(group.bootstrap_servers.split(","))
        append(copied.bootstrap_servers, "b")
        assert values(group.bootstrap_servers) == ["a"]
        assert values(copied.bootstrap_servers) == ["a", "b"]


def test_group_ends_when_nobody_uses_it_and_nobody_is_left(log_path: Path, until: Until) -> None:
    script = """
        small = dict(segment_bytes=16 << 20, index_file_bytes=1 << 20)
        servers = connect_path(sys.argv[1], idle_timeout_ms=300, **small)
        client = Client(servers)
        client.create_topic("t")
        client.append("t", b"a")
        print(servers, flush=True)
        sys.stdin.readline()
    """
    with application(script, str(log_path)) as only:
        line_of(only)
        unused = Home(log_path).unused_s
        until(lambda: unused() > 1.5, "the group to be idle for five times its timeout")
        assert len(running(log_path)) == 3  # its application still lives
        go_on(only)
    until(lambda: running(log_path) == [], "the nodes to end")
    with EmbeddedGroup(log_path) as group:
        assert values(group.bootstrap_servers) == ["a"]


def test_two_replicas_are_not_better_than_one(log_path: Path) -> None:
    with pytest.raises(ConfigError, match="1, 3, 5 or 7"):
        EmbeddedGroup(log_path, replicas=2)
    assert not log_path.exists()


def test_other_replicas_than_the_group_has_are_refused(
    log_path: Path, single: EmbeddedGroup
) -> None:
    with pytest.raises(ConfigError, match="1 replicas, not 3"):
        connect_path(log_path, replicas=3)
    connect_path(log_path, replicas=1)
    connect_path(log_path)


def test_group_is_not_made_where_none_is_wanted(log_path: Path) -> None:
    with pytest.raises(PathError, match="no group in this directory"):
        connect_path(log_path, create=False)
    assert not log_path.exists()


def test_full_disk_is_named_before_anything_starts(log_path: Path) -> None:
    with pytest.raises(PathError, match="the disk is full"):
        EmbeddedGroup(log_path, replicas=1, disk_reserve_bytes=1 << 60)


def test_node_that_does_not_exist_is_named_with_those_that_do(single: EmbeddedGroup) -> None:
    with pytest.raises(ConfigError, match="it has n0"):
        single.kill("n1")


def test_other_host_on_the_same_directory_is_refused(log_path: Path, single: EmbeddedGroup) -> None:
    """Its node holds the lock (one kernel, two containers), or gives signs of life (a network file
    system)."""
    pid_file = log_path / "n0" / "node.pid"
    content = pid_file.read_text()
    elsewhere = json.loads(content)
    elsewhere["host"] = {"name": "other-box", "boot": "other", "space": ""}
    try:
        pid_file.write_text(json.dumps(elsewhere))
        with pytest.raises(PathError, match="host 'other-box'"):
            connect_path(log_path)
    finally:
        pid_file.write_text(content)


def left_by(host: str, path: Path) -> str:
    """What another host writes into a node.pid; it does not hold the lock here."""
    process = replace(ProcessId.of(os.getpid()), host=PidScope(host, host, ""))
    return json.dumps({**asdict(process), "home": str(path), "ending": False})


def test_host_with_unseen_lock_is_refused_for_its_signs_of_life(log_path: Path) -> None:
    """A network file system without locks between hosts: node.pid is touched all the time."""
    with EmbeddedGroup(log_path, replicas=1, **SMALL):
        pass
    pid_file = log_path / "n0" / "node.pid"
    pid_file.write_text(left_by("other-box", log_path))
    ended = threading.Event()

    def live() -> None:
        while not ended.wait(0.2):
            os.utime(pid_file)

    other = threading.Thread(target=live)
    other.start()
    try:
        with pytest.raises(PathError, match="host 'other-box'"):
            connect_path(log_path)
    finally:
        ended.set()
        other.join()


def test_host_that_died_is_taken_over_from(log_path: Path) -> None:
    """No lock, no sign of life: what a crashed machine leaves on a shared disk, or this one before
    its reboot."""
    with EmbeddedGroup(log_path, **SMALL) as group:
        append(group.bootstrap_servers, "a")
    for node in ("n0", "n1", "n2"):
        (log_path / node / "node.pid").write_text(left_by("dead-box", log_path))
    with EmbeddedGroup(log_path) as group:
        assert values(group.bootstrap_servers) == ["a"]


def test_store_of_another_group_keeps_its_node_from_starting(
    tmp_path: Path, log_path: Path
) -> None:
    other = tmp_path / "other"
    with EmbeddedGroup(log_path, replicas=1, **SMALL), EmbeddedGroup(other, replicas=1, **SMALL):
        pass
    shutil.rmtree(log_path / "n0")
    shutil.copytree(other / "n0", log_path / "n0")
    with pytest.raises(WrongGroup, match="n0"):
        EmbeddedGroup(log_path)


def test_nodes_load_neither_arrow_nor_spark(single: EmbeddedGroup) -> None:
    """A node forwards bytes; what it does not load it neither waits for nor holds in memory."""
    append(single.bootstrap_servers, "a")
    maps = Path(f"/proc/{single.nodes['n0'].pid}/maps").read_text()  # type: ignore[index]
    assert "pyarrow" not in maps
    assert "numpy" not in maps


def test_embedded_node_takes_the_lead_of_a_group_that_runs_elsewhere(
    tmp_path: Path, until: Until
) -> None:
    ports = free_ports("127.0.0.1", 3)
    peers = ";".join(f"n{i}-127.0.0.1:{port}" for i, port in enumerate(ports))
    others = [
        subprocess.Popen(
            program(serving(peers, f"n{i}", tmp_path / f"served{i}")), stderr=subprocess.DEVNULL
        )
        for i in (1, 2)
    ]
    try:
        with EmbeddedNode(tmp_path / "own", peers, "n0", **SMALL) as node:
            assert node.wait_for_leader() in {"n0", "n1", "n2"}
            append(node.bootstrap_servers, "a")
            until(lambda: node.role is Role.LEADER, "the embedded node to lead")
            append(node.bootstrap_servers, "b")
        assert values(node.bootstrap_servers) == ["a", "b"]  # the others go on without it
        assert running(tmp_path / "own") == []
    finally:
        for other in others:
            other.send_signal(signal.SIGTERM)
        assert [other.wait(30) for other in others] == [0, 0]


def test_embedded_node_names_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not one of the peers"):
        EmbeddedNode(tmp_path / "own", "n0-127.0.0.1:7000", "n1")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(PortInUse, match=address):
            EmbeddedNode(tmp_path / "own", f"n0-{address}", "n0", **SMALL)


def test_node_that_cannot_start_does_not_keep_the_others_from_serving(
    tmp_path: Path,
    log_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    until: Until,
) -> None:
    """It says why; a quorum goes on, and `connect_path` does not try it again at every call, but
    after a while."""
    # however long this test takes on a slow machine
    monkeypatch.setattr("dledger.embedded.home.FAILED_S", 3600.0)
    other = tmp_path / "other"
    with EmbeddedGroup(log_path, **SMALL) as group, EmbeddedGroup(other, replicas=1, **SMALL):
        append(group.bootstrap_servers, "a")
    shutil.rmtree(log_path / "n1")
    shutil.copytree(other / "n0", log_path / "n1")
    servers = connect_path(log_path)
    assert "node n1" in caplog.text
    until(lambda: running(log_path) == ["n0", "n2"], "the end of n1, which has said why before")
    assert values(servers) == ["a"]
    caplog.clear()
    assert connect_path(log_path) == servers
    assert not caplog.text
    monkeypatch.setattr("dledger.embedded.home.FAILED_S", 0.0)
    assert connect_path(log_path) == servers
    assert "node n1" in caplog.text
    until(lambda: running(log_path) == ["n0", "n2"], "the end of n1")
    with EmbeddedGroup(log_path) as group:
        with pytest.raises(WrongGroup):
            group.restart("n1")
        append(servers, "b")


STRANGER = """
    from dledger.errors import DLedgerError
    refused = "takes only programs that have its secret"
    for what in (lambda c: c.topics(), lambda c: c.append("t", b"theirs"),
                 lambda c: c.delete_topic("t"), lambda c: next(iter(c.read("t", 0, 0, 1)))):
        try:
            with Client(sys.argv[1]) as client:
                what(client)
            print("done")
        except DLedgerError as error:
            print(type(error).__name__, error.definite, refused in str(error))
"""


def test_program_without_group_secret_cannot_read_append_or_delete(
    group: EmbeddedGroup, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It knows the ports, as every user of the machine may."""
    append(group.bootstrap_servers, "ours")
    with monkeypatch.context() as patch:
        patch.setenv("DLEDGER_USER_DIRECTORY", str(tmp_path / "another user"))
        with application(STRANGER, group.bootstrap_servers) as theirs:
            assert [line_of(theirs) for _ in range(4)] == ["AccessDenied True True"] * 4
    assert values(group.bootstrap_servers) == ["ours"]


def test_any_program_of_the_owner_finds_the_secret_by_the_addresses_alone(
    single: EmbeddedGroup,
) -> None:
    script = """
        with Client(sys.argv[1]) as client:
            client.append("t", b"theirs")
            print("done")
    """
    append(single.bootstrap_servers, "ours")
    with application(script, single.bootstrap_servers) as second:
        assert line_of(second) == "done"
    assert values(single.bootstrap_servers) == ["ours", "theirs"]


def test_what_a_group_keeps_is_for_its_owner_alone(log_path: Path, single: EmbeddedGroup) -> None:
    append(single.bootstrap_servers, "ours")
    modes = {
        one.name: stat.S_IMODE(one.stat().st_mode)
        for one in (log_path, *log_path.iterdir(), *log_path.glob("n0/node.*"))
    }
    assert {name for name, mode in modes.items() if mode & 0o077} == set()
    assert {"secret", "group.json", ".lock", "n0", "node.log", "node.pid"} <= set(modes)


def test_group_of_previous_release_gets_secret_and_modes_at_next_start(
    log_path: Path,
) -> None:
    with EmbeddedGroup(log_path, replicas=1, **SMALL) as group:
        append(group.bootstrap_servers, "before")
    (log_path / "secret").unlink()
    (log_path / "n0" / "secrets").unlink()
    (log_path / ".lock").chmod(0o666)
    (log_path / "n0").chmod(0o755)
    with EmbeddedGroup(log_path, **SMALL) as group:
        assert values(group.bootstrap_servers) == ["before"]
        assert read_secret(log_path / "secret")
        assert stat.S_IMODE((log_path / ".lock").stat().st_mode) == 0o600
        assert stat.S_IMODE((log_path / "n0").stat().st_mode) == 0o700
