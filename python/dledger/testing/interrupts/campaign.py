"""Rounds of both clients against one real group, and what they found."""

from __future__ import annotations

import asyncio
import faulthandler
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from dledger.embedded import EmbeddedGroup
from dledger.net.loop import loop_factory
from dledger.testing.interrupts.blocking import Round, stored
from dledger.testing.interrupts.cancelling import AsyncRound, Canceller
from dledger.testing.interrupts.inject import Injector
from dledger.testing.result import result

HANG_S: Final = 120.0
"""A round that takes longer than this hangs: the stacks of all threads are shown, and the process ends."""
PROBLEMS: Final = 20


def run(folder: Path, interrupts: int, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Interrupt and cancel calls until that many are reached, or something is wrong.

    Args:
        folder: for the group's files.
        interrupts: exceptions of signal handlers and cancellations, together.
        seed: of the order of calls and the points of interrupts; threads and the group itself run as they run.
    """
    problems: list[str] = []
    fired: Counter[str] = Counter()
    rounds = records = seconds = 0
    with EmbeddedGroup(folder, replicas=1) as group:
        while sum(fired.values()) < interrupts and not problems:
            dice = Random(f"{seed} {rounds}")
            topic = f"round-{seed}-{rounds}"
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            one = _round if rounds % 2 else _async_round
            found, hits, second, stored = one(group.bootstrap_servers, topic, dice)
            problems += [f"round {rounds}: {problem}" for problem in found]
            fired.update(hits)
            rounds, records, seconds = rounds + 1, records + stored, seconds + second
            if not rounds % 100:
                say(f"{rounds} rounds, {sum(fired.values())} interrupts and cancellations")
        faulthandler.cancel_dump_traceback_later()
    figures = {
        "rounds": rounds,
        "interrupts and cancellations": sum(fired.values()),
        "of them while another one was handled": seconds,
        "stored records": records,
        "problems": len(problems),
    }
    return result(
        "interrupts",
        command=f"make interrupts INTERRUPTS={interrupts} SEED={seed}",
        ok=not problems,
        figures=figures,
        faults=dict(sorted(fired.items())),
        problems=problems[:PROBLEMS],
    )


def _round(servers: str, topic: str, dice: Random) -> tuple[list[str], Counter[str], int, int]:
    with Injector(dice) as injector:
        one = Round(servers, topic, dice, injector)
        one.run()
    there = stored(servers, topic)
    one.book.check(there)
    return [*injector.problems, *one.book.problems], injector.fired, injector.seconds, _count(there)


def _async_round(servers: str, topic: str, dice: Random) -> tuple[list[str], Counter[str], int, int]:
    canceller = Canceller(dice)

    async def work() -> AsyncRound:
        one = AsyncRound(servers, topic, dice, canceller)
        await one.run()
        return one

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        one = runner.run(work())
    there = stored(servers, topic)
    one.book.check(there)
    fired = Counter({f"asyncio {name}": count for name, count in canceller.fired.items()})
    return one.book.problems, fired, canceller.seconds, _count(there)


def _count(there: dict[int, list[bytes]]) -> int:
    return sum(map(len, there.values()))
