"""One planted bug against the simulator, in a process of its own: seeds until one of them is red.

``python -m dledger.testing.mutants.hunt NAME --seeds 500`` prints one line of JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import signal
import sys
import time
from dataclasses import asdict, dataclass
from typing import Final

from dledger.testing.mutants.plant import plant
from dledger.testing.mutants.registry import named

SEED_S: Final = 60
"""A seed that takes longer than this runs in circles, which is a find too."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """How it went. ``caught_by`` is an invariant or the name of an error; empty when no seed was red."""

    name: str
    seeds: int
    seconds: float
    caught_by: str
    text: str


class _Endless(Exception):
    """The seed took too long."""


def _too_long(*_: object) -> None:
    raise _Endless(f"no end within {SEED_S} s")


def hunt(name: str, first: int, seeds: int) -> Hunt:
    """Plant the bug and look for it, from the first seed on."""
    plant(named(name))
    begun = time.monotonic()
    signal.signal(signal.SIGALRM, _too_long)
    gc.disable()
    for done, seed in enumerate(range(first, first + seeds), 1):
        signal.alarm(SEED_S)
        try:
            caught, text = _run(seed)
        finally:
            signal.alarm(0)
        gc.collect()
        if caught:
            return Hunt(name, done, round(time.monotonic() - begun, 1), caught, f"seed {seed}: {text}"[:400])
    return Hunt(name, seeds, round(time.monotonic() - begun, 1), "", "")


def _run(seed: int) -> tuple[str, str]:
    """What a seed came to: ("", "") when everything held."""
    from dledger.testing.sim.run import run_seed

    try:
        outcome = run_seed(seed)
    except Exception as error:
        return type(error).__name__, str(error)
    violation = outcome.violation
    return ("", "") if violation is None else (violation.invariant, violation.text)


def main() -> None:
    """One line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=500)
    asked = parser.parse_args()
    sys.stdout.write(json.dumps(asdict(hunt(asked.name, asked.first, asked.seeds))) + "\n")


if __name__ == "__main__":
    main()
