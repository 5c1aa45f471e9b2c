"""``python -m dledger.testing.forks``: green and exit code 0, or red and 1."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dledger.testing.forks.campaign import run
from dledger.testing.result import end


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; the exit code. Files stay where they are when it is red."""
    parser = argparse.ArgumentParser(prog="python -m dledger.testing.forks", description=__doc__)
    parser.add_argument("--forks", type=int, default=2000, help="forks (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of what children do, and when (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    wanted = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="dledger-forks-"))
    found = run(folder, wanted.forks, wanted.seed, say)
    for name, count in found["faults"].items():
        say(f"{count:>9} {name}")
    return end(found, folder, wanted.json, say)


if __name__ == "__main__":
    sys.exit(main())
