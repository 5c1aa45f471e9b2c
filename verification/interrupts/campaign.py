"""Rounds of both clients against one real group, and their findings."""

from __future__ import annotations

import faulthandler
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from dledger.embedded import EmbeddedGroup
from verification.interrupts.kinds import KINDS
from verification.interrupts.round import Round, Servers, Turns, stored
from verification.result import result

HANG_S: Final = 120.0
"""A round that takes longer than this hangs: the stacks of all threads are shown, and the process
ends."""
PROBLEMS: Final = 20


def run(folder: Path, interrupts: int, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Interrupt and cancel calls until that many are reached, or something is wrong.

    Args:
        folder: for the groups' files.
        interrupts: exceptions of signal handlers and cancellations, together.
        seed: of the order of calls and the points of interrupts; threads and the group itself run
            as they run.
    """
    problems: list[str] = []
    asked: Counter[str] = Counter()
    fired: Counter[str] = Counter()
    rounds = records = seconds = 0
    turns = {kind: Turns.start() for kind in KINDS}
    with (
        EmbeddedGroup(folder / "topics", replicas=1) as group,
        EmbeddedGroup(folder / "messages", replicas=1, commit_log="rocketmq") as broker,
    ):
        servers = Servers(group.bootstrap_servers, broker.bootstrap_servers)
        while sum(fired.values()) < interrupts and not problems:
            topic, kind = f"round-{seed}-{rounds}", KINDS[rounds % 2]
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            dice = Random(f"{seed} {rounds}")
            played = kind(dice)
            one = Round(servers, topic, dice=dice, kind=played, turns=turns[kind])
            played.run(one.run())
            ender = played.ender
            there = stored(servers.topics, topic, one.book)
            one.book.check(there)
            one.messages.check(servers.messages)
            problems += [
                f"round {rounds}: {problem}"
                for problem in one.book.problems + ender.problems + one.messages.book.problems
            ]
            asked.update({kind.prefix + name: count for name, count in ender.asked.items()})
            fired.update({kind.prefix + name: count for name, count in ender.fired.items()})
            rounds += 1
            records += sum(map(len, there.values()))
            seconds += ender.seconds
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
        calls=dict(sorted(asked.items())),
        problems=problems[:PROBLEMS],
    )
