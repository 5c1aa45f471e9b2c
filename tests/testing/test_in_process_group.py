"""The group within a test's own process, and the plugin for pytest that has one as a fixture."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dledger import EmbeddedGroup
from dledger.errors import ConfigError, ForkedClient, Unavailable, UnknownOption
from dledger.testing import InProcessGroup
from dledger.types import Role
from tests.embedded.reads import values


@pytest.mark.parametrize("replicas", [1, 3])
def test_group_takes_records_and_gives_them_back(replicas: int) -> None:
    with InProcessGroup(replicas) as group, group.client() as client:
        assert list(group.nodes) == [f"n{number}" for number in range(replicas)]
        assert group.nodes[group.leader].role is Role.LEADER
        client.create_topic("t")
        client.append("t", [b"a", b"b"])
        assert values(client) == [b"a", b"b"]


def test_group_goes_on_without_its_leader_which_comes_back() -> None:
    with InProcessGroup() as group, group.client() as client:
        client.create_topic("t")
        client.append("t", [b"a"])
        former = group.leader
        group.kill(former)
        group.kill(former)  # it is dead already
        assert group.nodes[former].pid is None
        client.append("t", [b"b"])
        assert group.leader != former
        group.restart(former)
        group.restart(group.leader)
        client.append("t", [b"c"])
        assert values(client) == [b"a", b"b", b"c"]
        assert {node.pid for node in group.nodes.values()} == {os.getpid()}


def test_group_without_a_majority_says_so() -> None:
    with InProcessGroup() as group:
        group.kill("n0")
        group.kill("n1")
        with pytest.raises(Unavailable, match="n0, n1"):
            group.leader  # noqa: B018 - it is asked for
        group.restart("n1")
        assert group.leader in {"n1", "n2"}


def test_records_in_a_directory_of_the_callers_outlive_the_group(tmp_path: Path) -> None:
    for number in range(3):
        with InProcessGroup(directory=tmp_path) as group, group.client() as client:
            if not number:
                client.create_topic("t")
            client.append("t", [b"%d" % number])
            assert values(client) == [b"0", b"1", b"2"][: number + 1]


def test_group_in_memory_keeps_records_without_a_file() -> None:
    with InProcessGroup(1) as group, group.client() as client:
        client.create_topic("t")
        client.append("t", [b"a"])
        assert group.directory is None
        group.kill("n0")
        group.restart("n0")
        assert values(client) == [b"a"]
        assert not Path("/in-memory").exists()


def test_group_on_disk_syncs_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    sync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(fd), sync(fd)))
    with InProcessGroup(1, directory=tmp_path) as group, group.client() as client:
        client.create_topic("t")
        before = len(synced)
        client.append("t", [b"a"])
        assert len(synced) > before
        assert (tmp_path / "n0" / "data").is_dir()


def test_nothing_is_left_of_a_group() -> None:
    before = set(threading.enumerate())
    group = InProcessGroup()
    group.stop()
    group.stop()
    assert {thread.name for thread in set(threading.enumerate()) - before} <= {"dledger-producers"}
    with pytest.raises(Unavailable, match="has ended"):
        group.leader  # noqa: B018 - it is asked for


def test_settings_are_those_of_groups_and_nodes() -> None:
    with InProcessGroup(1, retention_bytes=1 << 20, max_topics=1) as group:
        client = group.client(request_timeout_ms=5000)
        client.create_topic("t")
        with pytest.raises(Exception, match="max_topics"):
            client.create_topic("u")
    with pytest.raises(UnknownOption, match="retention_byte"):
        InProcessGroup(1, retention_byte=1)
    with pytest.raises(ConfigError, match="the group decides"):
        InProcessGroup(1, port=1)
    with pytest.raises(ConfigError, match="replicas"):
        InProcessGroup(2)
    with InProcessGroup(1) as group, pytest.raises(ConfigError, match="no node 'n7'"):
        group.kill("n7")


def test_forked_child_leaves_the_group_alone() -> None:
    with InProcessGroup(1) as group:
        child = os.fork()
        if not child:
            code = 1
            try:
                group.stop()
                group.leader  # noqa: B018 - it is asked for
            except ForkedClient:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with group.client() as client:
            client.create_topic("t")


def test_what_users_test_with_has_the_names_of_an_embedded_group() -> None:
    """A test may take one for the other."""
    for name in ("bootstrap_servers", "leader", "nodes", "kill", "restart", "stop"):
        assert hasattr(EmbeddedGroup, name)
        assert hasattr(InProcessGroup, name)


PLUGIN = 'pytest_plugins = ["dledger.testing.pytest_plugin"]'


def pytest_prints(directory: Path, test: str) -> str:
    """What a run of pytest prints of a module that has the plugin."""
    (directory / "conftest.py").write_text(PLUGIN)
    (directory / "test_orders.py").write_text("import pytest\n\n" + test)
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "--strict-markers",
        f"--basetemp={directory / 'tmp'}",
    ]
    command = [sys.executable, "-m", "pytest", *options, "test_orders.py"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    return done.stdout


def test_plugin_has_a_group_for_each_test(tmp_path: Path) -> None:
    printed = pytest_prints(
        tmp_path,
        '@pytest.mark.parametrize("time", [1, 2])\n'
        "def test_orders(dledger_group, time):\n"
        "    assert len(dledger_group.nodes) == 3\n"
        "    assert dledger_group.directory is None\n"
        "    with dledger_group.client() as client:\n"
        '        client.create_topic("orders")  # there is none of the test before\n'
        '        client.append("orders", [b"one"])\n',
    )
    assert "2 passed" in printed, printed


def test_mark_says_how_the_group_of_a_test_is(tmp_path: Path) -> None:
    """Marks of the module and of the test hold together; the nearest one counts."""
    printed = pytest_prints(
        tmp_path,
        "pytestmark = pytest.mark.dledger_group(replicas=1, max_topics=7)\n\n"
        "def of(group):\n"
        "    return group._config.max_topics, len(group.nodes), group.directory\n\n"
        "def test_module(dledger_group):\n"
        "    assert of(dledger_group) == (7, 1, None)\n\n"
        "@pytest.mark.dledger_group(on_disk=True, max_topics=8)\n"
        "def test_nearest(dledger_group, tmp_path):\n"
        '    assert of(dledger_group) == (8, 1, tmp_path / "dledger")\n'
        '    assert (tmp_path / "dledger" / "n0").is_dir()\n',
    )
    assert "2 passed" in printed, printed


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ("3", "@pytest.mark.dledger_group(replicas=3, on_disk=False, **settings)"),
        ("replica=1", "did you mean 'replicas'"),
        ("max_topic=1", "did you mean 'max_topics'"),
    ],
)
def test_mark_that_cannot_be_says_what_can(tmp_path: Path, values: str, error: str) -> None:
    printed = pytest_prints(
        tmp_path, f"@pytest.mark.dledger_group({values})\ndef test_orders(dledger_group): ..."
    )
    assert error in printed, printed


def test_whoever_checks_a_history_loads_no_node() -> None:
    script = (
        "import sys, dledger.testing.checkers, dledger.testing.pytest_plugin; "
        "print(*sorted(m for m in sys.modules if m.startswith(('dledger.', 'pyarrow'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[1] for name in done.stdout.split() if name.startswith("dledger.")}
    assert not {"node", "raft", "storage", "client", "net"} & loaded
    assert "pyarrow" not in done.stdout
