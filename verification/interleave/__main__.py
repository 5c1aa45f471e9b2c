"""``python -m verification.interleave``: interleave the threads that share a store, and crash
them anywhere."""

from __future__ import annotations

import argparse
import gc
import logging
import sys
from pathlib import Path

from dledger.errors import DLedgerError
from verification.interleave.campaign import ALL, campaign, exhaust, named
from verification.interleave.scenarios import Scenario
from verification.interleave.schedule import bench
from verification.interleave.shrink import story
from verification.result import save


def main(arguments: list[str] | None = None) -> int:
    """0: everything held; 1: something did not; 2: it cannot be run so."""
    parser = argparse.ArgumentParser(prog="python -m verification.interleave", description=__doc__)
    parser.add_argument(
        "--schedules", type=int, default=20_000, help="over all scenarios (%(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, help="the first one (1); with --scenario: only that one, step by step"
    )
    parser.add_argument("--scenario", help="only this one")
    parser.add_argument(
        "--exhaustive",
        type=int,
        metavar="PREEMPTIONS",
        help="instead, every schedule of the tiny scenarios with no more preemptions",
    )
    parser.add_argument("--json", type=Path, help="write the result to this file")
    asked = parser.parse_args(arguments)
    chosen: tuple[Scenario, ...] = ALL
    if asked.scenario is not None:
        try:
            chosen = (named(asked.scenario),)
        except KeyError:
            names = ", ".join(scenario.name for scenario in ALL)
            parser.error(f"{asked.scenario!r} is not one scenario; there are {names}")
    logging.disable(logging.ERROR)  # what a node says of damaged files is expected here
    gc.freeze()
    try:
        return _run(asked, chosen)
    except DLedgerError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    finally:
        logging.disable(logging.NOTSET)


def _run(asked: argparse.Namespace, chosen: tuple[Scenario, ...]) -> int:
    if asked.exhaustive is not None:
        return 0 if exhaust(asked.exhaustive, sys.stdout) else 1
    if asked.scenario is not None and asked.seed is not None:
        with bench() as runner:
            found = runner.run_seed(chosen[0], asked.seed, traced=True)
        sys.stdout.write(f"{story(found)}\n{found.problem or 'everything held'}\n")
        return 1 if found.problem else 0
    done = campaign(asked.schedules, 1 if asked.seed is None else asked.seed, sys.stdout, chosen)
    if asked.json is not None:
        save(done, asked.json)
    return 0 if done["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
