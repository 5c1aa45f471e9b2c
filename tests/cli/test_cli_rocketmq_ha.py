"""``dledger rocketmq follow`` and ``serve-ha`` as processes."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dledger.errors import ConfigError, PathError, UnknownOption
from dledger.rocketmq.format.message import Message
from dledger.rocketmq.store.message_store import MessageStore
from tests.cli.commands import carried_out, program

FILE = 1 << 16
SETTINGS = (
    f"--set mappedFileSizeCommitLog={FILE} --set mappedFileSizeConsumeQueue=2000 "
    "--set maxHashSlotNum=64 --set maxIndexNum=400"
)
SMALL = {"file_size": FILE, "units_in_file": 100, "index_slots": 64, "index_units": 400}


@contextlib.contextmanager
def running(words: str) -> Iterator[subprocess.Popen[str]]:
    """The command, which is killed at the end if it still runs."""
    command, pipe = program(f"rocketmq {words} {SETTINGS}"), subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def address_of(process: subprocess.Popen[str]) -> str:
    """Where it listens, which the first line that it prints says."""
    assert process.stdout is not None
    return process.stdout.readline().split()[2].rstrip(",")


def said(process: subprocess.Popen[str], text: str) -> None:
    """Return once it has said this on standard error."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"it never said {text!r}")


def eventually(condition: Callable[[], object]) -> None:
    for _ in range(3_000):
        if condition():
            return
        threading.Event().wait(0.02)
    raise AssertionError("waited in vain")


def log_of(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").glob("0*[0-9]")))


@pytest.fixture
def master(tmp_path: Path) -> Path:
    """A store with one file of messages."""
    with MessageStore(tmp_path / "master", **SMALL) as store:  # type: ignore[arg-type]
        for n in range(300):
            store.log.put_messages([Message("orders", f"{n}".encode() * 9, f"KEYS\x01k{n}")])
    return tmp_path / "master"


def test_chain_of_slaves_that_are_killed_ends_with_the_masters_store(
    master: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with running(f"serve-ha --store {master} --listen 127.0.0.1:0") as serving:
        address = address_of(serving)
        with running(f"follow {address} --store {first} --listen 127.0.0.1:0") as following:
            through = address_of(following)
            eventually(lambda: (first / "commitlog").exists() and log_of(first) == log_of(master))
            for _ in range(2):
                with running(f"follow {through} --store {second}") as last:
                    eventually((second / "commitlog").exists)
                    last.kill()
            with running(f"follow {through} --store {second}") as last:
                said(last, " follows ")
                eventually(lambda: log_of(second) == log_of(master))
                last.send_signal(signal.SIGTERM)
                assert last.wait(60) == 0
            following.send_signal(signal.SIGINT)
            assert following.wait(60) == 0
    with MessageStore(second, **SMALL) as store:  # type: ignore[arg-type]
        found = [m.body for n in range(300) for m in store.messages_with_key("orders", f"k{n}")]
        assert found == [f"{n}".encode() * 9 for n in range(300)]
    assert not (first / "abort").exists()


def test_follow_of_another_masters_log_ends_with_what_is_wrong(
    master: Path, tmp_path: Path
) -> None:
    with MessageStore(tmp_path / "slave", **SMALL) as store:  # type: ignore[arg-type]
        store.log.put_messages([Message("other", b"x" * 9_000)] * 7)
    with (
        running(f"serve-ha --store {master} --listen 127.0.0.1:0") as serving,
        running(f"follow {address_of(serving)} --store {tmp_path}/slave") as following,
    ):
        said(serving, "behind the end of this log")
        said(following, "closed the connection unanswered")
        following.send_signal(signal.SIGTERM)
        assert following.wait(60) == 0


@pytest.mark.parametrize(
    ("words", "error", "why"),
    [
        ("follow nowhere", ConfigError, "write host:port"),
        ("follow h:1 --listen h", ConfigError, "write host:port"),
        ("follow h:1 --set maxIndexNumm=1", UnknownOption, "did you mean 'maxIndexNum'"),
        ("follow h:1 --set haTransferBatchSize=1", UnknownOption, "unknown setting"),
        ("follow h:1 --set maxIndexNum=none", ConfigError, "cannot be its value"),
        ("follow h:1 --set maxIndexNum", ConfigError, "write name=value"),
        ("serve-ha --listen 127.0.0.1:0", PathError, "no commitlog in it"),
    ],
)
def test_follow_and_serve_ha_refuse_what_cannot_be(
    tmp_path: Path, words: str, error: type[Exception], why: str
) -> None:
    root = tmp_path / "store"
    with pytest.raises(error, match=re.escape(why)):
        carried_out(f"rocketmq {words} --store {root}")
    assert not root.exists()
