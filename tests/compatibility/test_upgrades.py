"""Nodes and clients of the release before, as its wheel in a virtual environment of its own, with
those of this one. ``make upgrades ROUNDS=10`` rolls a group forth and back so often."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dledger import Client
from dledger.cli.main import main
from dledger.embedded.ports import free_ports
from dledger.release import FIRST_RELEASES, GROUP_VERSION
from tests.compatibility.client_round import play
from tests.compatibility.rolling_copy import ALL, RUNS

pytestmark = pytest.mark.cluster
NEW = Path(sys.executable)
CAMPAIGN = "DLEDGER_UPGRADES" in os.environ
ROUNDS = int(os.environ.get("DLEDGER_UPGRADES", "1"))
PATIENCE_S = 120
SPARK_S = 300
SMALL = ("segment_bytes=16777216", "index_file_bytes=1048576")
NODES = ("n0", "n1", "n2")


class Group:
    """Three nodes, each a process of either release."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports = free_ports("127.0.0.1", len(NODES))
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        self.bootstrap = ",".join(self.addresses)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = os.environ | {"DLEDGER_USER_DIRECTORY": str(folder / "user")}

    def spawn(self, node: str, python: Path, **options: Any) -> subprocess.Popen[bytes]:
        """A process of this node by that interpreter."""
        peers = ";".join(f"{n}-{where}" for n, where in zip(NODES, self.addresses, strict=True))
        command = [str(python), "-m", "dledger", "serve", "--self-id", node, "--peers", peers]
        command += ["--dir", str(self.folder / node)]
        for setting in SMALL:
            command += ["--set", setting]
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, **options)

    def start(self, python: Path, *nodes: str) -> None:
        for node in nodes or NODES:
            with (self.folder / f"{node}.log").open("ab") as log:
                self.running[node] = self.spawn(node, python, stderr=log.fileno())

    def stop(self, node: str) -> None:
        process = self.running.pop(node)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()

    def roll(self, python: Path) -> None:
        """Each node in turn goes on with that interpreter, behind the others' catching up."""
        for node in NODES:
            self.stop(node)
            self.start(python, node)
            self.catch_up(node)

    def catch_up(self, node: str) -> None:
        """Wait until a node has all that the leader had committed at a look."""
        with self.client() as client:
            _until(lambda: "role" in client.status()[node])
            goal = max(state.get("committed_index", -1) for state in client.status().values())
            _until(lambda: client.status()[node].get("applied_index", -1) >= goal)

    def client(self) -> Client:
        return Client(self.bootstrap, request_timeout_ms=PATIENCE_S * 1000)

    def versions(self) -> dict[str, int]:
        with self.client() as client:
            states = client.status()
        return {
            node: state.get("group_version", {}).get("active", 0) for node, state in states.items()
        }

    def cli(self, words: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, f"upgrade {words}", env=self.environment)
        return done.exit_code, done.output


def _until(holds: Callable[[], bool]) -> None:
    ended = threading.Event()
    for _ in range(PATIENCE_S * 20):
        if holds():
            return
        ended.wait(0.05)
    raise AssertionError("not within patience")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    try:
        yield made
    finally:
        made.end()


@contextmanager
def appending(group: Group, topic: str, acknowledged: list[bytes]) -> Iterator[None]:
    """Appends one value after the other while the block runs; each is acknowledged, or the block
    fails at its end. The list gets those that were."""
    failed: list[BaseException] = []
    ends = threading.Event()

    def run() -> None:
        try:
            with group.client() as client:
                while not ends.is_set():
                    value = b"%d" % len(acknowledged)
                    client.append(topic, value, partition=0)
                    acknowledged.append(value)
        except BaseException as error:  # told where the block ends
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
    assert not failed, failed


@contextmanager
def copying(group: Group, python: Path, *, to_the_end: bool = False) -> Iterator[None]:
    """Spark of the release of that interpreter copies topic t to topic copy while the block runs;
    goes on from its checkpoint behind an earlier one. ``to_the_end``: until all is copied. Only in
    ``make upgrades``: Spark takes half a minute."""
    if not CAMPAIGN:
        yield
        return
    program = Path(__file__).with_name("rolling_copy.py")
    command = [str(python), str(program), group.bootstrap, "t", "copy", "checkpoint"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        (group.folder / "spark.log").open("ab") as log,
        subprocess.Popen(
            command,
            cwd=group.folder,
            env=group.environment | {"PYSPARK_PYTHON": str(python)},
            stderr=log,
            **pipes,
        ) as process,
    ):
        give_up = threading.Timer(SPARK_S, process.kill)
        try:
            assert process.stdout is not None
            give_up.start()
            assert process.stdout.readline().strip() == RUNS, _end_of(log.name)
            give_up.cancel()
            yield
            process.communicate(ALL if to_the_end else "", timeout=SPARK_S)
        finally:
            give_up.cancel()
            process.kill()
    assert process.returncode == 0, _end_of(log.name)


def _end_of(log: str) -> str:
    return Path(log).read_text()[-3000:]


def test_group_rolls_forth_and_back_and_is_upgraded(old: Path, group: Group) -> None:
    """No append fails and none is lost, and a Spark stream copies each record once, while the nodes
    change their release, and Spark too, until the new version is active; then an old node says what
    to install, and its files stay."""
    group.start(old)
    with group.client() as client:
        client.create_topic("t")
        client.create_topic("copy")
        client.append("t", b"0")
    rolls = [NEW, old] * ROUNDS + [NEW]
    acknowledged = [b"0"]
    with copying(group, old), appending(group, "t", acknowledged):
        for python in rolls[:ROUNDS]:
            group.roll(python)
            assert set(group.versions().values()) == {0}
    with copying(group, NEW, to_the_end=True), appending(group, "t", acknowledged):
        for python in rolls[ROUNDS:]:
            group.roll(python)
            assert set(group.versions().values()) == {0}
        assert group.cli(f"--check {group.bootstrap}")[0] == 0
        assert set(group.versions().values()) == {0}
        code, said = group.cli(group.bootstrap)
        assert (code, f"version {GROUP_VERSION} is active now" in said) == (0, True), said
        _until(lambda: set(group.versions().values()) == {GROUP_VERSION})
        assert group.cli(group.bootstrap)[0] == 0
        old_node_is_refused(old, group)
    with group.client() as client:
        for topic in ("t", "copy") if CAMPAIGN else ("t",):
            assert client.table(topic).column("value").to_pylist() == acknowledged
    restarts = len(rolls) * len(NODES)
    print(f"{restarts} restarts, {len(acknowledged)} appends: 0 failed, 0 lost, copied once")  # noqa: T201


def old_node_is_refused(old: Path, group: Group) -> None:
    """An old node does not start on the files of an upgraded one, says what to install, and changes
    none of them."""
    group.stop("n2")
    before = files(group.folder / "n2")
    process = group.spawn("n2", old, stderr=subprocess.PIPE)
    words = process.communicate(timeout=PATIENCE_S)[1].decode()
    assert process.returncode == 2
    assert f"install dledger {FIRST_RELEASES[GROUP_VERSION]} or newer" in words
    assert files(group.folder / "n2") == before
    group.start(NEW, "n2")
    group.catch_up("n2")


def files(directory: Path) -> dict[str, bytes]:
    """The content of a node's files by name."""
    found = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def test_old_node_in_a_group_keeps_the_version_down(old: Path, group: Group) -> None:
    """A group that is founded with one is of version 0, and says which node keeps it there."""
    group.start(NEW, "n0", "n1")
    group.start(old, "n2")
    with group.client() as client:
        client.create_topic("t")
        assert client.append("t", b"x").end == 1
        client.transfer("n0")
    group.catch_up("n2")
    assert set(group.versions().values()) == {0}
    code, said = group.cli(f"--check {group.bootstrap}")
    assert code == 1
    assert "n2 runs dledger" in said
    assert "install dledger" in said
    code, said = group.cli(group.bootstrap)
    assert (code, "n2 runs dledger" in said) == (2, True), said
    assert set(group.versions().values()) == {0}


def test_clients_of_either_release_use_nodes_of_the_other(old: Path, group: Group) -> None:
    """The basic round sees the same with all four pairs."""
    rounds = []
    for number, nodes in enumerate((old, NEW)):
        group.folder = group.folder / "again"
        group.folder.mkdir()
        group.start(nodes)
        rounds.append(play(group.bootstrap, f"new-{number}"))
        script = Path(__file__).with_name("client_round.py")
        command = [str(old), str(script), group.bootstrap, f"old-{number}"]
        done = subprocess.run(command, capture_output=True, text=True, env=group.environment)
        assert done.returncode == 0, done.stderr
        rounds.append(json.loads(done.stdout))
        group.end()
        group.running.clear()
    assert rounds == [rounds[0]] * 4
    assert len(rounds[0]["read"]) == 24
