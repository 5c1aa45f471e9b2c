"""``python -m verification.strangers``: green and exit code 0, or red and 1; 2 where it cannot
be tried here."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dledger.errors import ConfigError
from verification.result import end, say
from verification.strangers.campaign import ALL, SMALL, Campaign, Sizes
from verification.strangers.users import OtherUser, as_two_users, check_stranger


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; the exit code. Files stay where they are when it is red."""
    parser = argparse.ArgumentParser(prog="python -m verification.strangers", description=__doc__)
    parser.add_argument(
        "--small", action="store_true", help="a little of everything, and no times judged"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    parser.add_argument(
        "--only", default=",".join(ALL), metavar="NAME,...", help="of " + ", ".join(ALL)
    )
    # pipes: this process is the owner's
    parser.add_argument("--intruder", default="", help=argparse.SUPPRESS)
    wanted = parser.parse_args(argv)
    try:
        if not wanted.intruder:
            same = ["--only", wanted.only, *(["--small"] if wanted.small else [])]
            return as_two_users(same, wanted.json)
        return _as_owner(wanted)
    except ConfigError as error:
        say(f"strangers: {error}")
        return 2


def _as_owner(wanted: argparse.Namespace) -> int:
    told, ask = map(int, wanted.intruder.split(","))
    intrude = OtherUser(told, ask)
    folder = Path(tempfile.mkdtemp(prefix="dledger-strangers-"))
    stranger = check_stranger(folder / "mine", intrude)
    sizes = SMALL if wanted.small else Sizes()
    only, timed = wanted.only.split(","), not wanted.small
    found = Campaign(
        folder, sizes, say, only, timed=timed, intrude=intrude, stranger=stranger
    ).run()
    return end(found, folder, wanted.json, say)


if __name__ == "__main__":
    sys.exit(main())
