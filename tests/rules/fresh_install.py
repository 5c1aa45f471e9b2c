"""A wheel in new virtual environments, one for each Python on this machine that it is for: what a
new user does first, twice in a row, and the seconds that it takes.

``make interpreters`` runs it. The dependencies come from pip's cache or an index.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

OLDEST = 11
NEWEST = 20
ASK = "import sys; print(*sys.version_info[:3], sys.implementation.name, sys.executable)"
SNIPPET = """\
from dledger import Client, EmbeddedGroup

with EmbeddedGroup({path!r}) as group, Client(group.bootstrap_servers) as client:
    client.create_topic("orders", if_absent=True)
    client.append("orders", [b"one", b"two"])
    for batch in client.read("orders", 0, 0):
        print(batch.num_rows)
"""
CONSUMER = """\
from itertools import islice
from dledger import Client

with Client({path!r}) as client:
    with client.consumer("billing", ["orders"], auto_offset_reset="earliest") as consumer:
        for record in islice(consumer, 2):
            print(record.value)
        consumer.commit()
"""
NOT_THERE = """\
from importlib.util import find_spec
print([name for name in ("pyspark", "numpy", "pandas") if find_spec(name)])
"""


def interpreters(environ: Mapping[str, str], home: Path) -> dict[tuple[int, int], str]:
    """The newest CPython of each minor version from 3.11 on: of those on PATH, and of pyenv's and
    uv's."""
    found: dict[tuple[int, int], tuple[tuple[int, ...], str]] = {}
    roots = (
        Path(environ.get("PYENV_ROOT", home / ".pyenv")) / "versions",
        home / ".local/share/uv/python",
    )
    for minor in range(OLDEST, NEWEST):
        name = f"python3.{minor}"
        places = [shutil.which(name, path=environ.get("PATH", "")), sys.executable]
        places += [str(path) for root in roots for path in root.glob(f"*/bin/{name}")]
        for place in filter(None, places):
            done = subprocess.run([place, "-c", ASK], capture_output=True, text=True, check=False)
            if done.returncode:  # a shim of a version that is not there
                continue
            major, small, patch, kind, executable = done.stdout.split()
            version = int(major), int(small), int(patch)
            if kind == "cpython" and version[1] == minor:
                found[version[:2]] = max(found.get(version[:2], ((), "")), (version, executable))
    return {version: executable for version, (_, executable) in sorted(found.items())}


def steps(python: str, wheel: Path, place: Path) -> Iterator[tuple[str, list[str], bytes, bytes]]:
    """What is done, how, with which input, and the end of its output."""
    own = str(place / "venv" / "bin" / "python")
    command = str(place / "venv" / "bin" / "dledger")
    log = str(place / "log")
    yield "venv", [python, "-m", "venv", str(place / "venv")], b"", b""
    yield "pip install", [own, "-m", "pip", "install", "--quiet", str(wheel)], b"", b""
    yield "no pyspark, no numpy", [own, "-c", NOT_THERE], b"", b"[]\n"
    yield "--version", [command, "--version"], b"", b" compiled functions\n"
    for _ in range(2):
        yield "Client", [own, "-c", SNIPPET.format(path=log)], b"", b"\n"
        yield "consumer", [own, "-c", CONSUMER.format(path=log)], b"", b"b'one'\nb'two'\n"
        yield "append", [command, "append", "lines", "-b", log], b"a\nb\n", b""
        yield "tail", [command, "tail", "lines", "-b", log, "--from", "earliest"], b"", b"a\nb\n"
    stop = f"from dledger import EmbeddedGroup; EmbeddedGroup({log!r}).stop(force=True)"
    yield "stop", [own, "-c", stop], b"", b""


def run(python: str, wheel: Path) -> str:
    """The seconds of each step.

    Raises:
        AssertionError: a step failed, or did not print what it should.
    """
    took = []
    with TemporaryDirectory() as place:
        environ = {**os.environ, "DLEDGER_USER_DIRECTORY": f"{place}/user"}
        environ.pop("PYTHONPATH", None)
        for name, command, lines, ends in steps(python, wheel, Path(place)):
            start = time.monotonic()
            done = subprocess.run(
                command, cwd=place, env=environ, input=lines, capture_output=True, check=False
            )
            took.append(f"{name} {time.monotonic() - start:.1f}")
            said = (done.stdout + done.stderr).decode()
            assert not done.returncode, f"{name}: {said}"
            assert b"Traceback" not in done.stderr, f"{name}: {said}"
            assert done.stdout.endswith(ends), f"{name}: {said}"
    return ", ".join(took)


def main(wheel: str) -> int:
    found = interpreters(os.environ, Path.home())
    for minor in range(OLDEST, max(minor for _, minor in found) + 1):
        if (3, minor) not in found:
            print(f"Python 3.{minor}: not on this machine")  # noqa: T201
    failed = 0
    for (major, minor), python in found.items():
        try:
            said = "seconds: " + run(python, Path(wheel).resolve())
        except AssertionError as error:
            said, failed = f"failed: {error}", failed + 1
        print(f"Python {major}.{minor} ({python}): {said}", flush=True)  # noqa: T201
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
