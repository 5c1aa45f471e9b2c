"""``python -m verification.judges``: does Porcupine agree with our own checker, and with what
clients were told?"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from dledger.errors import ConfigError
from dledger.net import run
from dledger.testing.checkers.history import Operation
from dledger.testing.checkers.linearizability import check_linearizable
from dledger.testing.checkers.notation import parse, show
from verification.judges.histories import broken, sound
from verification.judges.judge import Judgement, judge
from verification.result import result, save
from verification.sim.rng import Rng

CHAOS_FAULTS: Final = (
    "kill_leader",
    "isolate_leader",
    "power_cut",
    "power_cut_all",
    "lost_answers",
    "hand_over",
)
SHOWN: Final = 5
"""Problems of a kind that are told."""
TORN: Final = """
w 0-9 txn a/0#1 x @t/0 -> 0
w 0-9 txn a/0#1 y @t/1 -> 0
r 1-2 end @t/0 -> 1
r 4-5 end @t/1 -> 0
"""
"""A transaction of which one part is seen, and later another one is not: each partition by itself
has an order."""


def small(count: int, first: int) -> dict[str, list[Operation]]:
    """Half of them sound, half of them with a lie."""
    return {f"{first + at}": (broken if at % 2 else sound)(Rng(first + at)) for at in range(count)}


def disagreements(
    histories: Mapping[str, list[Operation]], judged: Mapping[str, Judgement]
) -> Iterator[str]:
    """Where the two checkers differ, in words."""
    for name, history in histories.items():
        own = check_linearizable(history) is None
        if judged[name].linearizable is not own:
            yield (
                f"history {name}: Porcupine says {judged[name].linearizable}, we say {own}:\n"
                f"{show(history)}"
            )


def simulated(seed: int) -> list[Operation]:
    """The history of a seed's clients, without retention, so that every record can be read. Unread
    records that retention takes may have been written in any order, for which the search has no
    end."""
    from verification.sim.run import run_seed

    kept: list[Operation] = []
    run_seed(seed, retention=False, told=kept.extend)
    return kept


def of_chaos(seconds: float, seed: int) -> list[Operation]:
    """The history of the clients of three real nodes during faults."""
    from verification.chaos.run import run_part
    from verification.chaos.schedule import named_faults, schedule

    kept: list[Operation] = []

    def keep(history: list[Operation]) -> list[Operation]:
        kept.extend(history)
        return history

    with tempfile.TemporaryDirectory(prefix="dledger-judges-") as path:
        plan = schedule(seed, named_faults(CHAOS_FAULTS))
        run(run_part(Path(path, "run"), 3, seconds, plan, seed, lambda text: None, keep))
    return kept


def refusals(judged: Mapping[str, Judgement]) -> Iterator[str]:
    """Histories that must have an order and have none. A search that gave up decides nothing: where
    retention took hundreds of records before a read, their writes may stand in any order. More than
    a tenth of such searches is a problem."""
    for name, found in judged.items():
        if found.linearizable is False:
            yield f"{name}: is not linearizable, {found.operations} operations"
    undecided = [name for name, found in judged.items() if found.linearizable is None]
    if 10 * len(undecided) > len(judged):
        yield (
            f"{len(undecided)} of {len(judged)} were not decided in time: "
            f"{', '.join(undecided[:SHOWN])}"
        )


def campaign(asked: argparse.Namespace) -> dict[str, Any]:
    """Everything; see `verification.result`."""
    begun = time.monotonic()
    histories = small(asked.histories, asked.first)
    judged = judge(asked.program, histories)
    problems = list(disagreements(histories, judged))[:SHOWN]
    if judge(asked.program, {"torn": parse(TORN)})["torn"].linearizable is not False:
        problems.append("Porcupine sees no torn transaction")
    seeds = range(asked.first, asked.first + asked.seeds)
    with ProcessPoolExecutor(asked.jobs) as pool:
        real = {
            f"simulated seed {s}": found
            for s, found in zip(seeds, pool.map(simulated, seeds), strict=True)
        }
    if asked.seconds:
        real[f"chaos of seed {asked.first}"] = of_chaos(asked.seconds, asked.first)
    found = judge(asked.program, real)
    problems += list(refusals(found))[:SHOWN]
    return result(
        "judges",
        command=f"make judges HISTORIES={asked.histories} SEEDS={asked.seeds} "
        f"SECONDS={asked.seconds:g}",
        ok=not problems,
        figures={
            "small histories": len(judged),
            "of them linearizable": sum(one.linearizable is True for one in judged.values()),
            "disagreements": sum(1 for _ in disagreements(histories, judged)),
            "simulated seeds": asked.seeds,
            "seconds of chaos": asked.seconds,
            "not decided in time": sum(one.linearizable is None for one in found.values()),
            "operations of these two": sum(one.operations for one in found.values()),
            "seconds": round(time.monotonic() - begun),
        },
        faults={},
        problems=problems,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """0 when all agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, required=True, help="porcupine/, built")
    parser.add_argument(
        "--histories", type=int, default=4000, help="small ones, for both checkers (%(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=20, help="of the simulator (%(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=30, help="of chaos, 0 for none (%(default)s)"
    )
    parser.add_argument(
        "--first", type=int, default=1, help="number that everything is drawn from (%(default)s)"
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="processes at the same time (%(default)s)"
    )
    parser.add_argument("--json", type=Path, help="write the result there")
    asked = parser.parse_args(argv)
    try:
        found = campaign(asked)
    except ConfigError as error:
        sys.stderr.write(f"judges: {error}\n")
        return 2
    for text in found["problems"]:
        sys.stdout.write(f"PROBLEM: {text}\n")
    sys.stdout.write(
        ", ".join(f"{count} {name}" for name, count in found["figures"].items()) + "\n"
    )
    if asked.json is not None:
        save(found, asked.json)
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
