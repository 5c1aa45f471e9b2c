"""python tests/rocketmq/guided_fuzz.py INPUTS: the same parsers, with inputs that atheris makes to
reach new branches.

Each parser has a process of its own, because libFuzzer ends it; exit code 1 and the input's file
name where one fails. ``make fuzz`` installs atheris where there is a wheel of it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["dledger.rocketmq"]):
    from tests.rocketmq import parsers

from dledger.errors import FormatError

MAX_BYTES = 2048
SLOW_S = 10


def one_parser(name: str, options: list[str]) -> None:
    """Never returns: libFuzzer ends the process."""
    parser = getattr(parsers, name)

    def one(data: bytes) -> None:
        with contextlib.suppress(FormatError):
            parser(data)

    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


def all_parsers(inputs: int) -> int:
    """The number of parsers that failed."""
    each, failed = -(-inputs // len(parsers.PARSERS)), 0
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch)
        for number, seed in enumerate(parsers.SEEDS):
            (corpus / str(number)).write_bytes(seed)
        for parser in parsers.PARSERS:
            options = [
                f"-runs={each}",
                f"-max_len={MAX_BYTES}",
                f"-timeout={SLOW_S}",
                "-seed=1",
                str(corpus),
            ]
            command = [sys.executable, __file__, parser.__name__, *options]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            words = done.stderr.splitlines()
            runs = [line for line in words if line.startswith("Done ")]
            if done.returncode or not runs:
                failed += 1
                print(f"{parser.__name__}: FAILED", *words[-40:], sep="\n")  # noqa: T201
            else:
                print(f"{parser.__name__}: {runs[0]}")  # noqa: T201
    return failed


if __name__ == "__main__":
    if sys.argv[1].isdecimal():
        sys.exit(bool(all_parsers(int(sys.argv[1]))))
    one_parser(sys.argv[1], sys.argv[2:])
