"""A failing seed made smaller: fewer kinds of faults, then less time."""

from __future__ import annotations

from collections.abc import Callable

from verification.sim.outcome import SeedOutcome
from verification.sim.run import run_seed

STEP_MS = 250


def shrink(
    seed: int,
    without: tuple[str, ...],
    tell: Callable[[str], None],
    also: tuple[str, ...] = (),
    commit_log: str = "",
) -> SeedOutcome:
    """The run of the seed with the least faults and in the least time that still breaks the same
    invariant.

    Every try is a whole run, so a fault that is left out changes all later events: the last failure
    may be another way to the same broken promise.
    """
    best = run_seed(seed, without=without, also=also, commit_log=commit_log, verbose=True)
    if best.violation is None:
        tell(f"seed {seed} does not fail")
        return best
    wanted = best.violation.invariant
    for kind in best.config["faults"]:
        tried = run_seed(
            seed, without=(*without, kind), also=also, commit_log=commit_log, verbose=True
        )
        if tried.violation is not None and tried.violation.invariant == wanted:
            best, without = tried, (*without, kind)
            tell(f"fails without {kind}: {tried.violation}")
    low, high = 0, best.config["safety_ms"]
    while high - low > STEP_MS:
        middle = (low + high) // 2
        tried = run_seed(
            seed, without=without, also=also, commit_log=commit_log, safety_ms=middle, verbose=True
        )
        if tried.violation is not None and tried.violation.invariant == wanted:
            best, high = tried, middle
            tell(f"fails with {middle} ms of faults: {tried.violation}")
        else:
            low = middle
    tell(
        f"seed {seed}, faults {', '.join(best.config['faults']) or 'none'}, "
        f"{best.config['safety_ms']} ms"
    )
    return best
