"""Ctrl-C: nothing is left behind, and the command says how far it got."""

from __future__ import annotations

import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from dledger.cli.interruption import interruption
from dledger.testing import InProcessGroup
from tests.cli.commands import program

pytestmark = pytest.mark.usefixtures("named_log")


def start(words: str, **pipes: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(program(words), stderr=subprocess.PIPE, **pipes)


def interrupted(running: subprocess.Popen[bytes]) -> str:
    """What it says; it must end as one that was interrupted."""
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    return said.decode()


def test_append_says_what_is_appended(log: InProcessGroup) -> None:
    client = log.client()
    info = client.create_topic("stopped")
    with start("append stopped", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        running.stdin.write(b"one\ntwo\nrest")
        running.stdin.flush()
        while client.end_offsets(info.name) != {0: 2}:
            client.end_offsets(info.name, newer_than={0: 1}, wait_ms=1000)
        said = interrupted(running)
    assert said == "dledger: interrupted: 2 records are appended: stopped[0] offsets 0..1\n"
    assert client.end_offsets(info.name) == {0: 2}


def test_tail_that_follows_says_where_to_go_on(log: InProcessGroup, tmp_path: Path) -> None:
    client = log.client()
    for partitions in (1, 2):
        name = f"followed-{partitions}"
        client.create_topic(name, partitions)
        client.append(name, [b"one", b"two"], partition=0)
        with start(f"tail {name} -f", stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == b"one\n"
            assert running.stdout.readline() == b"two\n"
            said = interrupted(running)
        assert "interrupted: 2 records (next offset by partition: 0: 2) are printed\n" in said


def test_file_of_tail_is_whole_or_not_there(
    log: InProcessGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that follows keeps what it has; another one is not made."""
    client = log.client()
    client.create_topic("filed")
    client.append("filed", [b"one", b"two"])
    for options, made in (("-f", True), ("", False)):
        path = tmp_path / f"out{made}.csv"
        with start(f"tail filed {options} -O {path}", stdout=subprocess.PIPE) as running:
            if made:
                wait_for_bytes(path.with_name(path.name + ".partial"))
                said = interrupted(running)
                assert f"2 records (next offset by partition: 0: 2) are in {path}\n" in said
            else:
                running.wait(60)
    whole = (tmp_path / "outTrue.csv").read_text()
    assert whole == (tmp_path / "outFalse.csv").read_text()
    assert len(list(tmp_path.iterdir())) == 2


def wait_for_bytes(path: Path) -> None:
    """Until a file is there and not empty."""
    ready = threading.Event()
    for _ in range(3000):
        if path.exists() and path.stat().st_size:
            return
        ready.wait(0.01)
    pytest.fail(f"{path} stays empty")


def test_second_interrupt_ends_what_the_first_one_let_go_on() -> None:
    with interruption() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with interruption() as stop, pytest.raises(KeyboardInterrupt), stop.allowed():
        signal.raise_signal(signal.SIGINT)
    with interruption() as stop:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), stop.allowed():
            pytest.fail("it was asked for before")
