"""``python -m dledger.testing.interrupts``: green and exit code 0, or red and 1."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dledger.testing.interrupts.campaign import run
from dledger.testing.result import end


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; the exit code. Files stay where they are when it is red."""
    parser = argparse.ArgumentParser(prog="python -m dledger.testing.interrupts", description=__doc__)
    parser.add_argument("--interrupts", type=int, default=20_000, help="interrupts and cancellations (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of calls and points (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    wanted = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="dledger-interrupts-"))
    found = run(folder, wanted.interrupts, wanted.seed, say)
    for name, count in found["faults"].items():
        say(f"{count:>9} {name}")
    return end(found, folder, wanted.json, say)


if __name__ == "__main__":
    sys.exit(main())
