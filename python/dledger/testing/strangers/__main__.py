"""``python -m dledger.testing.strangers``: green and exit code 0, or red and 1; 2 where it cannot be tried here."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dledger.errors import ConfigError
from dledger.testing.result import save
from dledger.testing.strangers.campaign import ALL, SMALL, Campaign, Sizes


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; the exit code. Files stay where they are when it is red."""
    parser = argparse.ArgumentParser(prog="python -m dledger.testing.strangers", description=__doc__)
    parser.add_argument("--small", action="store_true", help="a little of everything, and no times judged")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    parser.add_argument("--only", default=",".join(ALL), metavar="NAME,...", help="of " + ", ".join(ALL))
    wanted = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="dledger-strangers-"))
    try:
        sizes, only = SMALL if wanted.small else Sizes(), wanted.only.split(",")
        found = Campaign(folder, sizes, say, only, timed=not wanted.small).run()
    except ConfigError as error:
        shutil.rmtree(folder)
        say(f"strangers: {error}")
        return 2
    for name, value in found["figures"].items():
        say(f"{value:,} {name}")
    if wanted.json:
        save(found, wanted.json)
    for problem in found["problems"]:
        say(f"RED: {problem}")
    if found["ok"]:
        shutil.rmtree(folder)
        say("green")
    else:
        say(f"logs and stores are left in {folder}")
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
