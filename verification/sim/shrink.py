"""A failing seed made smaller: fewer kinds of faults, then less time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from verification.sim.outcome import SeedOutcome
from verification.sim.run import run_seed

STEP_MS = 250


def shrink(
    seed: int, without: tuple[str, ...], tell: Callable[[str], None], **wanted: Any
) -> SeedOutcome:
    """The run of the seed with the least faults and in the least time that still breaks the same
    invariant; ``wanted`` is for `run_seed`.

    Every try is a whole run, so a fault that is left out changes all later events: the last failure
    may be another way to the same broken promise.
    """
    run = partial(run_seed, seed, verbose=True, **wanted)
    best = run(without=without)
    if best.violation is None:
        tell(f"seed {seed} does not fail")
        return best
    broken = best.violation.invariant
    for kind in best.config["faults"]:
        tried = run(without=(*without, kind))
        if tried.violation is not None and tried.violation.invariant == broken:
            best, without = tried, (*without, kind)
            tell(f"fails without {kind}: {tried.violation}")
    low, high = 0, best.config["safety_ms"]
    while high - low > STEP_MS:
        middle = (low + high) // 2
        tried = run(without=without, safety_ms=middle)
        if tried.violation is not None and tried.violation.invariant == broken:
            best, high = tried, middle
            tell(f"fails with {middle} ms of faults: {tried.violation}")
        else:
            low = middle
    tell(
        f"seed {seed}, faults {', '.join(best.config['faults']) or 'none'}, "
        f"{best.config['safety_ms']} ms"
    )
    return best
