"""Rounds of both clients against one real group, and their findings."""

from __future__ import annotations

import asyncio
import faulthandler
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from dledger.embedded import EmbeddedGroup
from dledger.net.loop import loop_factory
from verification.interrupts.blocking import Round, Servers, stored
from verification.interrupts.book import Book
from verification.interrupts.calls import OTHERS
from verification.interrupts.cancelling import AsyncRound, Canceller
from verification.interrupts.inject import Injector
from verification.interrupts.messages import Messages
from verification.result import result

HANG_S: Final = 120.0
"""A round that takes longer than this hangs: the stacks of all threads are shown, and the process
ends."""
PROBLEMS: Final = 20


class RoundOutcome(NamedTuple):
    """Of a round.

    Attributes:
        asked, fired: calls and interrupts, by the name of the call.
        seconds: interrupts while another one was handled.
    """

    book: Book
    messages: Messages
    asked: Counter[str]
    fired: Counter[str]
    seconds: int


class ClientKind:
    """A client, and its kind of round."""

    def __init__(
        self, prefix: str, play: Callable[[Servers, str, Random, Iterator[str]], RoundOutcome]
    ) -> None:
        self.prefix = prefix
        self.round = play
        self.others = cycle(OTHERS)


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
    kinds = (ClientKind("asyncio ", _cancelled), ClientKind("", _interrupted))
    with (
        EmbeddedGroup(folder / "topics", replicas=1) as group,
        EmbeddedGroup(folder / "messages", replicas=1, commit_log="rocketmq") as broker,
    ):
        servers = Servers(group.bootstrap_servers, broker.bootstrap_servers)
        while sum(fired.values()) < interrupts and not problems:
            topic, kind = f"round-{seed}-{rounds}", kinds[rounds % 2]
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            one = kind.round(servers, topic, Random(f"{seed} {rounds}"), kind.others)
            there = stored(servers.topics, topic, one.book)
            one.book.check(there)
            one.messages.check(servers.messages)
            problems += [
                f"round {rounds}: {problem}"
                for problem in one.book.problems + one.messages.book.problems
            ]
            asked.update({kind.prefix + name: count for name, count in one.asked.items()})
            fired.update({kind.prefix + name: count for name, count in one.fired.items()})
            rounds, records, seconds = (
                rounds + 1,
                records + sum(map(len, there.values())),
                seconds + one.seconds,
            )
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


def _interrupted(servers: Servers, topic: str, dice: Random, others: Iterator[str]) -> RoundOutcome:
    with Injector(dice) as injector:
        one = Round(servers, topic, dice, injector, others)
        one.run()
    one.book.problems += injector.problems
    return RoundOutcome(one.book, one.messages, injector.asked, injector.fired, injector.seconds)


def _cancelled(servers: Servers, topic: str, dice: Random, others: Iterator[str]) -> RoundOutcome:
    canceller = Canceller(dice)

    async def work() -> AsyncRound:
        one = AsyncRound(servers, topic, dice, canceller, others)
        await one.run()
        return one

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        one = runner.run(work())
    return RoundOutcome(one.book, one.messages, canceller.asked, canceller.fired, canceller.seconds)
