"""Runs of all scripts, over several processes, and their result (`verification.result`)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, fields
from functools import cache
from typing import Any, Final, TextIO, TypeVar

from verification.disk_states.crash import Sweep
from verification.disk_states.failures import FailureSweep, FailureTally
from verification.disk_states.flips import FlipCounts, FlipTally, flip_all, merged, shares
from verification.disk_states.images import Image, images
from verification.disk_states.message_stores import StoreTally, sweep
from verification.disk_states.scenarios import SCENARIOS, Scenario
from verification.disk_states.store_failures import (
    StoreFailureTally,
    sweep_store,
    sweep_upgrade,
)
from verification.disk_states.store_flips import StoreFlipTally, flip_store, store_images
from verification.result import result

SHOWN: Final = 5
"""Findings printed for each part; all that were kept are in the JSON."""
FLIP_PARTS: Final = 4
"""Tasks that each store's bytes are cut into."""
STATES_A_STORE: Final = 2_000
"""For so many states a script of a RocketMQ store is crashed, too."""
FAILING_STORES: Final = range(7)
"""Seeds of scripts of RocketMQ stores on a failing disk; 0 stands for an upgrade."""
MODULE: Final = "python -m verification.disk_states"

Result = dict[str, Any]
Task = TypeVar("Task")
Done = TypeVar("Done")
Stores = TypeVar("Stores", StoreTally, StoreFlipTally, StoreFailureTally)


def crash_campaign(states: int, jobs: int, out: TextIO, every: int = 1) -> Result:
    """Crash every script until about ``states`` distinct states were started from; ``every``: only
    at each so many-th point in time, for a quick look."""
    started = time.monotonic()
    parts: dict[str, Result] = {}
    seen: set[int] = set()
    tasks = [(number, states, every) for number in range(len(SCENARIOS))]
    for name, (part, digests) in _spread(_crash_part, tasks, jobs):
        parts[name] = part
        seen |= digests
        out.write(
            f"{name}: {part['distinct_states']} states at {part['points']} points of "
            f"{part['operations']} operations ({part['built_states']} built of "
            f"{part['legal_states']} legal), {part['lost']} lost something, {part['not_started']} "
            "did not start\n"
        )
        _show(part["findings"], out)
    keys = ("operations", "points", "legal_states", "built_states", "lost", "not_started")
    sums = {key: sum(part[key] for part in parts.values()) for key in keys}
    stores = _crash_stores(states, jobs, every, out)
    sums["lost"] += stores.lost
    sums["not_started"] += stores.not_started
    seconds = round(time.monotonic() - started, 1)
    ok = bool(seen) and sums["lost"] == sums["not_started"] == 0
    out.write(
        f"crash states: {len(seen)} distinct ones started from in {seconds} s, "
        f"{sums['built_states']} built of {sums['legal_states']} legal ones; {sums['lost']} lost "
        f"something, {sums['not_started']} did not start by themselves\n"
    )
    return result(
        "crash states",
        command=f"{MODULE} crash --states {states}",
        ok=ok,
        figures={
            "distinct states": len(seen),
            **{key.replace("_", " "): count for key, count in sums.items()},
            "crashes of a RocketMQ store": stores.killed + stores.cut,
            "seconds": seconds,
        },
        faults={"crash": len(seen) + stores.killed, "power cut of a RocketMQ store": stores.cut},
        table=_crash_table(parts),
        findings=[
            *(finding for part in parts.values() for finding in part["findings"]),
            *stores.findings,
        ],
    )


def _crash_stores(states: int, jobs: int, every: int, out: TextIO) -> StoreTally:
    """Crash scripts of RocketMQ stores: as many as come to some twentieth of so many states."""
    seeds = max(2, states // STATES_A_STORE)
    tasks = [(seed, every) for seed in range(1, seeds + 1)]
    return _gathered(StoreTally(), _spread(_store_part, tasks, jobs), out)


def _store_part(task: tuple[int, int]) -> StoreTally:
    seed, every = task
    return sweep(range(seed, seed + 1), every)


def _crash_table(parts: dict[str, Result]) -> list[list[Any]]:
    """A row for each script, and one with the names of the columns."""
    columns = {
        "operations": "operations",
        "points in time": "points",
        "legal states": "legal_states",
        "distinct states": "distinct_states",
        "lost": "lost",
        "not started": "not_started",
    }
    rows = [[name, *(part[key] for key in columns.values())] for name, part in parts.items()]
    return [["script", *columns], *rows]


def wanted_of(scenario: Scenario, states: int) -> int:
    """One script's share of so many distinct states: twice as many as another's where none is left
    out."""
    share = -(-states // len(SCENARIOS))
    return 2 * share if scenario.record else share


def _crash_part(task: tuple[int, int, int]) -> tuple[str, tuple[Result, set[int]]]:
    number, states, every = task
    tally = Sweep(SCENARIOS[number], wanted_of(SCENARIOS[number], states), every=every).run()
    return SCENARIOS[number].name, (tally.as_dict(), tally.seen)


def flip_campaign(offsets: int, jobs: int, out: TextIO) -> Result:
    """Change about so many bytes, one at a time, evenly over all files of all stores; 0: every
    byte."""
    started = time.monotonic()
    stores = _stores()
    total = sum(image.size for image in stores)
    every = max(1, total // offsets) if offsets else 1
    tasks = [(number, every, part) for number in range(len(stores)) for part in range(FLIP_PARTS)]
    tally = merged(_spread(_flip_part, tasks, jobs))
    names = [each.name for each in fields(FlipCounts)]
    kinds = {name: asdict(counts) for name, counts in sorted(tally.kinds.items())}
    for name, counts in kinds.items():
        out.write(
            f"{name}: {', '.join(f'{count} {key}' for key, count in counts.items() if count)}\n"
        )
    _show(tally.findings, out)
    sums = {key: sum(counts[key] for counts in kinds.values()) for key in names}
    brokers = _flip_stores(offsets, jobs, out)
    seconds = round(time.monotonic() - started, 1)
    out.write(
        f"byte flips: {sums['flips']} of {total} bytes changed in {seconds} s, "
        f"{sums['found_by_verify']} named by verify; {sums['repaired']} repaired from a peer, "
        f"{sums['rebuilt']} made good by the store itself, {sums['reported']} reported; "
        f"{sums['unread']} that nothing reads; {sums['live']} more under a running store; "
        f"{tally.served_wrong_or_lost} served wrong, lost or not found\n"
    )
    return result(
        "byte flips",
        command=f"{MODULE} flips --offsets {offsets}",
        ok=0 < sums["flips"] == sums["found_by_verify"] + sums["unread"]
        and not tally.served_wrong_or_lost
        and not brokers.findings,
        figures={
            "bytes in all files": total,
            **{key.replace("_", " "): count for key, count in sums.items()},
            "served wrong, lost or not found": tally.served_wrong_or_lost,
            "seconds": seconds,
        },
        faults={
            "byte changed at rest": sums["flips"],
            "byte changed under a running store": sums["live"],
            "byte of a RocketMQ store changed": sum(brokers.flips.values()),
        },
        table=[
            ["bytes of", *(key.replace("_", " ") for key in names)],
            *([name, *(counts[key] for key in names)] for name, counts in kinds.items()),
        ],
        findings=[*tally.findings, *brokers.findings],
    )


def _flip_stores(offsets: int, jobs: int, out: TextIO) -> StoreFlipTally:
    """Change about so many bytes of RocketMQ stores; 0: every one."""
    total = sum(image.size for image in store_images())
    every = max(1, total // offsets) if offsets else 1
    tasks = [
        (number, every * FLIP_PARTS, every * part)
        for number in range(len(store_images()))
        for part in range(FLIP_PARTS)
    ]
    return _gathered(StoreFlipTally(), _spread(_flip_store_part, tasks, jobs), out)


def _flip_store_part(task: tuple[int, int, int]) -> StoreFlipTally:
    number, every, begin = task
    return flip_store(store_images()[number], every, begin)


@cache
def _stores() -> list[Image]:
    """Made once in each process."""
    return images()


def _flip_part(task: tuple[int, int, int]) -> FlipTally:
    number, every, part = task
    image = _stores()[number]
    return flip_all(image, list(shares(image, every, FLIP_PARTS))[part])


def failure_campaign(every: int, jobs: int, out: TextIO) -> Result:
    """Fail each so many-th operation of every script, with every error that it can give."""
    started = time.monotonic()
    faults = Counter[str]()
    sums = dict.fromkeys(("refused", "stopped", "survived", "starts", "broken"), 0)
    table: list[list[Any]] = [["script", "faults", *sums]]
    findings: list[str] = []
    for name, tally in _spread(
        _failure_part, [(number, every) for number in range(len(SCENARIOS))], jobs
    ):
        faults.update(tally.faults)
        row = [getattr(tally, key) for key in sums]
        sums = {key: sums[key] + count for key, count in zip(sums, row, strict=True)}
        table.append([name, sum(tally.faults.values()), *row])
        findings += tally.findings
        _show(tally.findings, out)
    stores = _fail_stores(every, jobs, out)
    seconds = round(time.monotonic() - started, 1)
    for key in sorted(faults):
        out.write(f"{key}: {faults[key]}\n")
    out.write(
        f"disk errors: {sum(faults.values())} operations failed in {seconds} s; {sums['stopped']} "
        f"ended the store, {sums['refused']} refused an append or a repair until there was room, "
        f"{sums['survived']} let it go on; {sums['starts']} starts afterwards; {sums['broken']} "
        "broke a rule\n"
    )
    return result(
        "disk errors",
        command=f"{MODULE} errors --every {every}",
        ok=bool(faults) and not sums["broken"] and not stores.findings,
        figures={
            "operations failed": sum(faults.values()),
            **sums,
            "operations of a RocketMQ store failed": sum(stores.faults.values()),
            "seconds": seconds,
        },
        faults=dict(sorted(faults.items())),
        table=table,
        findings=[*findings, *stores.findings],
    )


def _fail_stores(every: int, jobs: int, out: TextIO) -> StoreFailureTally:
    """Fail each so many-th operation of RocketMQ stores, and of an upgrade."""
    tasks = [(seed, every) for seed in FAILING_STORES]
    return _gathered(StoreFailureTally(), _spread(_fail_store_part, tasks, jobs), out)


def _fail_store_part(task: tuple[int, int]) -> StoreFailureTally:
    seed, every = task
    return sweep_store(seed, every) if seed else sweep_upgrade(every)


def _failure_part(task: tuple[int, int]) -> tuple[str, FailureTally]:
    number, every = task
    tally = FailureTally()
    FailureSweep(SCENARIOS[number], tally, every).run()
    return SCENARIOS[number].name, tally


def _spread(work: Callable[[Task], Done], tasks: list[Task], jobs: int) -> Iterable[Done]:
    """The results in the order of the tasks."""
    if jobs <= 1:
        yield from map(work, tasks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(work, tasks)


def _gathered(stores: Stores, parts: Iterable[Stores], out: TextIO) -> Stores:
    """All parts of what was done to RocketMQ stores, added up and shown."""
    for part in parts:
        stores.add(part)
    out.write(f"RocketMQ stores: {stores}\n")
    _show(stores.findings, out)
    return stores


def _show(findings: list[str], out: TextIO) -> None:
    for finding in findings[:SHOWN]:
        out.write(f"  {finding}\n")
