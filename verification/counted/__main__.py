"""``python -m verification.counted``: green and exit code 0, or red and 1."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dledger.errors import ConfigError
from verification.counted.campaign import run
from verification.result import end, say


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; the exit code. Files stay where they are when it is red."""
    parser = argparse.ArgumentParser(prog="python -m verification.counted", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="how long the load lasts (%(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    wanted = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="dledger-counted-"))
    try:
        found = run(folder, wanted.minutes, say)
    except ConfigError as error:
        shutil.rmtree(folder)
        say(f"counted-bench: {error}")
        return 2
    for row in found["table"]:
        say("  ".join(f"{cell:>9}" for cell in row))
    return end(found, folder, wanted.json, say)


if __name__ == "__main__":
    sys.exit(main())
