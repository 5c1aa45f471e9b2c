"""``python -m dledger.testing.disk_states crash``: look for what a crash could take away."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dledger.testing.disk_states.campaign import crash_campaign, write_result


def main(arguments: list[str] | None = None) -> int:
    """0: everything held; 1: something did not."""
    parser = argparse.ArgumentParser(prog="python -m dledger.testing.disk_states", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    crash = parts.add_parser("crash", help="start from the states that crashes leave")
    crash.add_argument("--states", type=int, default=50_000, help="distinct states, over all scripts (%(default)s)")
    for part in (crash,):
        part.add_argument("--json", type=Path, help="write the result to this file")
        part.add_argument("--jobs", type=int, default=2, help="processes (%(default)s)")
    chosen = parser.parse_args(arguments)
    result = crash_campaign(chosen.states, chosen.jobs, sys.stdout)
    if chosen.json is not None:
        write_result(result, chosen.json)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
