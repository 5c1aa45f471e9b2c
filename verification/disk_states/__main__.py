"""Look for what crashes, changed bytes and failing devices could take away from a store."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from verification.disk_states.campaign import crash_campaign, failure_campaign, flip_campaign
from verification.result import save


def main(arguments: list[str] | None = None) -> int:
    """0: everything held; 1: something did not."""
    parser = argparse.ArgumentParser(prog="python -m verification.disk_states", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    crash = parts.add_parser("crash", help="start from the states that crashes leave")
    crash.add_argument(
        "--states", type=int, default=50_000, help="distinct states, over all scripts (%(default)s)"
    )
    flips = parts.add_parser("flips", help="change one byte after the other")
    flips.add_argument(
        "--offsets",
        type=int,
        default=0,
        help="bytes, evenly over all files (%(default)s: every one)",
    )
    errors = parts.add_parser(
        "errors", help="fail one operation after the other with EIO and ENOSPC"
    )
    errors.add_argument(
        "--every", type=int, default=1, help="only each so many-th one (%(default)s)"
    )
    for part in (crash, flips, errors):
        part.add_argument("--json", type=Path, help="write the result to this file")
        part.add_argument("--jobs", type=int, default=2, help="processes (%(default)s)")
    chosen = parser.parse_args(arguments)
    logging.disable(logging.ERROR)  # what a node says of damaged files is expected here
    try:
        if chosen.part == "crash":
            found = crash_campaign(chosen.states, chosen.jobs, sys.stdout)
        elif chosen.part == "flips":
            found = flip_campaign(chosen.offsets, chosen.jobs, sys.stdout)
        else:
            found = failure_campaign(chosen.every, chosen.jobs, sys.stdout)
    finally:
        logging.disable(logging.NOTSET)
    if chosen.json is not None:
        save(found, chosen.json)
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
