"""The commands as a shell gives them, in this process and as a process of its own; and damage."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from dledger.cli.main import main

SMALL = {"segment_bytes": 16 << 20, "index_file_bytes": 1 << 20}
"""Settings of files that cost a test little disk."""


def run(words: str, text: str | bytes = b"") -> Result:
    """``dledger`` with these words."""
    return CliRunner().invoke(main, words, input=text)


def out(words: str, text: str | bytes = b"") -> str:
    """The output of a command that does what it shall."""
    result = run(words, text)
    assert result.exit_code == 0, result.output
    return result.stdout


def raw(words: str, text: str | bytes = b"") -> bytes:
    """As `out`, in bytes."""
    result = run(words, text)
    assert result.exit_code == 0, result.output
    return result.stdout_bytes


def refusal(words: str, text: str | bytes = b"") -> str:
    """The error of a command: one line on stderr, exit code 2, never a traceback."""
    result = run(words, text)
    assert result.exit_code == 2, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.stderr.startswith("dledger: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def attempt(words: str) -> Result:
    """``dledger`` with these words; an error is the exception of the result."""
    return CliRunner().invoke(main, words, standalone_mode=False)


def carried_out(words: str) -> Result:
    """As `attempt`, but that an error is raised."""
    done = attempt(words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def program(words: str) -> list[str]:
    """The command line of ``dledger`` as a process."""
    return [sys.executable, "-m", "dledger", *shlex.split(words)]


def process(words: str) -> subprocess.CompletedProcess[str]:
    """``dledger`` as a process, when it has ended."""
    return subprocess.run(program(words), capture_output=True, text=True, check=False)


def refused(words: str) -> str:
    """The last line that a process says which does not start."""
    done = process(words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("dledger: ")
    return last


def serving(peers: str, node_id: str, directory: object, options: str = "") -> str:
    """The words of a node with small files."""
    small = " ".join(f"--set {name}={value}" for name, value in SMALL.items())
    return f"serve --self-id {node_id} --peers {peers} --dir {directory} {small} {options}"


def flip(path: Path, at: int, bits: int = 1) -> None:
    """Change a byte of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)
