"""The report of a campaign, for people and as one JSON dict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from verification.chaos.faults.fault import Fault
from verification.chaos.planned import Planned
from verification.chaos.run import Part
from verification.result import result

GAPS_SHOWN: Final = 3


def as_dict(
    parts: Sequence[Part], faults: Sequence[Fault], seed: int, minutes: float
) -> dict[str, Any]:
    """Everything, as JSON values; see `verification.result`."""
    runs = sum((part.runs for part in parts), Counter[str]())
    bites = sum((part.bites for part in parts), Counter[str]())
    problems = [f"{part.nodes} nodes: {text}" for part in parts for text in part.problems]
    # a test that does nothing is none
    problems += [
        f"fault {fault.name} never bit, in {runs[fault.name]} runs: {fault.what}"
        for fault in faults
        if runs[fault.name] and not bites[fault.name]
    ]
    done = [part.as_dict() for part in parts]
    changes = [change for part in parts for change in part.planned]
    return result(
        "chaos",
        command=f"make chaos MINUTES={minutes:g} SEED={seed}",
        ok=not problems,
        figures={
            "minutes": minutes,
            "faults": runs.total(),
            "kinds of faults": len(runs),
            "acknowledged records": sum(part["history"]["acknowledged"] for part in done),
            "records read": sum(part["history"]["read"] for part in done),
            **(_planned(changes) if changes else {}),
        },
        faults={fault.name: bites[fault.name] for fault in faults},
        seed=seed,
        problems=problems,
        kinds={
            fault.name: {
                "what": fault.what,
                "runs": runs[fault.name],
                "bites": bites[fault.name],
                "unit": fault.bite,
            }
            for fault in faults
        },
        not_scheduled=[fault.name for fault in faults if not runs[fault.name]],
        parts=done,
    )


def _planned(changes: Sequence[Planned]) -> dict[str, int]:
    """Figures of the changes of members in which nothing else failed."""
    return {
        "planned changes": len(changes),
        "failed appends in them": sum(change.failed for change in changes),
        "longest gap in them, ms": round(1000 * max(change.gap_s for change in changes)),
        "longest gap of the floor, ms": round(1000 * max(change.floor_s for change in changes)),
    }


def lines(report: dict[str, Any]) -> Iterator[str]:
    """For people."""
    yield ""
    yield f"{'fault':17}  {'runs':>4}  {'bites':>12}"
    for name, found in report["kinds"].items():
        yield (
            f"{name:17}  {found['runs']:4}  {found['bites']:12,}  {found['unit']}; {found['what']}"
        )
    figures = report["figures"]
    yield f"{figures['faults']} faults of {figures['kinds of faults']} kinds"
    for part in report["parts"]:
        yield from _part(part)
    if changes := figures.get("planned changes"):
        yield (
            f"{changes} planned changes of members: {figures['failed appends in them']} appends "
            f"failed; nothing acknowledged for {figures['longest gap in them, ms']} ms at most, "
            f"and for {figures['longest gap of the floor, ms']} ms by the floor beside them"
        )
    for text in report["problems"]:
        yield f"PROBLEM: {text}"
    yield (
        "green"
        if report["ok"]
        else f"RED: {len(report['problems'])} problems; seed {report['seed']}"
    )


def _part(part: dict[str, Any]) -> Iterator[str]:
    history, seconds = part["history"], part["seconds"] or 1.0
    records, read = history["acknowledged"], history["read"]
    yield ""
    yield f"{part['nodes']} nodes, {seconds:.0f} s, {part['starts']} starts of processes"
    yield f"  the disk that is filled: {part['small_disk']}"
    yield (
        f"  {part['acknowledged']} writes acknowledged, {part['acknowledged'] / seconds:.0f}/s; "
        f"{records} records, {records / seconds:.0f}/s; {read} read"
    )
    yield "  operations: " + ", ".join(
        f"{count} {name}" for name, count in part["operations"].items()
    )
    yield "  errors told to clients: " + (
        ", ".join(f"{n} {name}" for name, n in part["errors"].items()) or "none"
    )
    yield (
        f"  {part['compared_bytes']:,} bytes of committed log compared between all nodes, all "
        f"bytes of each verified"
    )
    if part["said_again"]:
        yield f"  {part['said_again']} commands of an operator were said once more"
    for gap in part["gaps"][:GAPS_SHOWN]:
        yield (
            f"  nothing acknowledged for {gap['length_s']:.2f} s at {gap['start_s']:.1f} s: "
            f"{gap['cause']}"
        )
