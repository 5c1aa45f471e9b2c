"""Backups and restores of a group under load that are killed, or whose places fail, and the
judgement over each that is accepted."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

from dledger.client import Client
from dledger.embedded import EmbeddedGroup
from verification.backups import places
from verification.backups.backing_up import back_up, back_up_twice
from verification.backups.load import PARTITIONS, WRITERS, History, Writer
from verification.backups.program import ENDS
from verification.backups.restoring import restore
from verification.backups.world import SMALL, World, kill_nodes
from verification.result import result

KILLS_OF_A_GROUP: Final = 20
"""Then comes another group at another place, so that none grows for ever."""
PROBLEMS: Final = 20
STEPS: Final[dict[Callable[[World], None], int]] = {back_up: 5, back_up_twice: 1, restore: 4}
"""With how often each is drawn."""


def run(
    folder: Path,
    wanted: int,
    seed: int,
    say: Callable[[str], None],
    steps: dict[Callable[[World], None], int] = STEPS,
) -> dict[str, Any]:
    """So many kills of backups and restores, or fewer when there is a problem.

    Args:
        folder: for the groups, their backups and what is restored.
        seed: of what fails, and when.
        steps: as `STEPS`.
    """
    dice, faults, figures, problems = Random(seed), Counter[str](), Counter[str](), list[str]()
    begun, number = time.monotonic(), 0
    while _kills(faults) < wanted and not problems:
        number += 1
        enough = min(wanted, _kills(faults) + KILLS_OF_A_GROUP)
        problems += _one_group(
            folder / f"{number}", enough, steps, dice=dice, faults=faults, figures=figures
        )
        say(f"{_kills(faults)} kills, {figures['judged restores']} restored groups")
    return result(
        "backups",
        command=f"make backups KILLS={wanted} SEED={seed}",
        ok=not problems,
        figures={
            "kills": _kills(faults),
            "seconds": round(time.monotonic() - begun),
            **dict(sorted(figures.items())),
            "problems": len(problems),
        },
        faults={fault: count for fault, count in sorted(faults.items()) if count},
        problems=problems[:PROBLEMS],
    )


def _kills(faults: Counter[str]) -> int:
    """Of commands: kills of nodes come beside them."""
    return sum(
        count
        for fault, count in faults.items()
        if fault.endswith((" killed", places.DIES, ENDS)) and not fault.startswith("node")
    )


def _one_group(
    folder: Path,
    enough: int,
    steps: dict[Callable[[World], None], int],
    *,
    dice: Random,
    faults: Counter[str],
    figures: Counter[str],
) -> list[str]:
    folder.mkdir()
    with ExitStack() as stack:
        group = stack.enter_context(EmbeddedGroup(folder / "group", replicas=3, **SMALL))
        client = stack.enter_context(Client(group.bootstrap_servers, request_timeout_ms=60_000))
        writers = [
            Writer(group.bootstrap_servers, f"w{number}", dice.randrange(1 << 30))
            for number in range(WRITERS)
        ]
        for writer in writers:
            client.create_topic(writer.name, PARTITIONS)
            writer.start()
            stack.callback(writer.finish)
        world = World(folder, group, History(client, writers), dice, faults, figures)
        stack.callback(world.programs.end)
        world.backup()
        while _kills(faults) < enough and not world.problems:
            (step,) = dice.choices([*steps], [*steps.values()])
            killed = kill_nodes(world) if dice.random() < 0.3 else None
            step(world)
            if killed is not None:
                killed.join()
            world.problems += [writer.problem for writer in writers if writer.problem]
        figures["records"] += sum(
            len(values) for w in writers for call in w.calls for values in call.values.values()
        )
    if not world.problems:
        shutil.rmtree(folder)
    return world.problems
