"""What was measured: repetitions of named cases, their summary, the floors they are held against,
table and JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from verification.result import result

BYTES = ", bytes"
"""Ends the name of a case that is another one's rate in MB/s."""


@dataclass
class Case:
    """One thing that is measured several times. ``unit`` says what the numbers are."""

    section: str
    name: str
    unit: str
    values: list[float] = field(default_factory=list)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    def percentile(self, share: float) -> float:
        """The value below which this share of all lies."""
        ordered = sorted(self.values)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@dataclass(frozen=True)
class Floor:
    """A promise about a figure. ``measure`` raises KeyError where its case was not run, and so does
    ``bare``: the machine's own figure in the same run, mostly that of bare sockets and files."""

    text: str
    measure: Callable[[Report], float]
    bound: float
    at_least: bool
    unit: str = ""
    bare: Callable[[Report], float] | None = None

    def holds(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


class Report:
    """All cases of one run, in the order in which they were first measured."""

    def __init__(self, machine: dict[str, Any]) -> None:
        self.machine = machine
        self.cases: dict[tuple[str, str], Case] = {}

    def add(self, section: str, name: str, unit: str, *values: float) -> None:
        """One or more repetitions of a case."""
        self.cases.setdefault((section, name), Case(section, name, unit)).values.extend(values)

    def median(self, section: str, name: str) -> float:
        """Raises `KeyError` when the case was not measured."""
        return self.cases[section, name].median

    def check(self, floors: Iterable[Floor]) -> list[tuple[Floor, float]]:
        """The floors whose cases were measured, with their figures."""
        found = []
        for floor in floors:
            try:
                found.append((floor, floor.measure(self)))
            except KeyError:
                continue
        return found

    def bare(self, floor: Floor) -> float | None:
        """What is the machine's own doing; None where that was not measured."""
        try:
            return floor.bare(self) if floor.bare is not None else None
        except KeyError:
            return None

    def as_dict(self, floors: Iterable[Floor]) -> dict[str, Any]:
        """The whole run, every repetition included."""
        return {
            "machine": self.machine,
            "cases": [
                {
                    "section": c.section,
                    "name": c.name,
                    "unit": c.unit,
                    "min": c.low,
                    "median": c.median,
                    "max": c.high,
                    "values": c.values,
                }
                for c in self.cases.values()
            ],
            "floors": [
                {
                    "floor": floor.text,
                    "value": value,
                    "bound": floor.bound,
                    "holds": floor.holds(value),
                    "bare": self.bare(floor),
                }
                for floor, value in self.check(floors)
            ],
        }

    def save(self, path: Path, floors: Iterable[Floor]) -> None:
        """Write the run as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.as_dict(floors), indent=1) + "\n")

    def as_evidence(self, command: str, floors: Iterable[Floor]) -> dict[str, Any]:
        """For the page of evidence, as `verification.result` has it: red when a floor is
        missed."""
        rows: list[list[str]] = [["measured", "times", "least", "median", "p99", "most"]]
        for case in self.cases.values():
            figures = (case.low, case.median, case.percentile(0.99), case.high)
            name = f"{case.section}: {case.name}" + (f", {case.unit}" if case.unit else "")
            rows.append([name, str(len(case.values)), *(f"{figure:,.4g}" for figure in figures)])
        missed = [
            f"{floor.text}: {value:,.4g} {floor.unit}, the bound is {floor.bound:,.4g}"
            for floor, value in self.check(floors)
            if not floor.holds(value)
        ]
        counts = {
            "cases": len(self.cases),
            "repetitions": sum(len(case.values) for case in self.cases.values()),
        }
        return result(
            "availability",
            command=command,
            ok=not missed,
            figures=counts,
            faults={},
            problems=missed,
            table=rows,
        )

    def show(self, console: Console, floors: Iterable[Floor]) -> None:
        """Print every case and every floor."""
        for section in dict.fromkeys(c.section for c in self.cases.values()):
            console.print(self._table(section))
        checked = self.check(floors)
        if checked:
            table = Table(title="floors (on medians unless said otherwise)", title_justify="left")
            for column in ("floor", "bound", "here", "", "the machine's own"):
                table.add_column(column)
            for floor, value in checked:
                sign = "≥" if floor.at_least else "≤"
                bare = self.bare(floor)
                table.add_row(
                    floor.text,
                    f"{sign} {number(floor.bound)} {floor.unit}",
                    f"{number(value)} {floor.unit}",
                    "[green]holds[/green]" if floor.holds(value) else "[red]misses[/red]",
                    "" if bare is None else f"{number(bare)} {floor.unit}",
                )
            console.print(table)

    def _table(self, section: str) -> Table:
        """The cases of a section; the bytes of a rate stand beside it."""
        cases = [c for c in self.cases.values() if c.section == section]
        in_bytes = {c.name.removesuffix(BYTES): c for c in cases if c.name.endswith(BYTES)}
        table = Table(title=section, title_justify="left")
        table.add_column("case")
        for column in (
            "unit",
            "min",
            "median",
            "max",
            "p99",
            "n",
            *(["median, MB/s"] if in_bytes else []),
        ):
            table.add_column(column, justify="right")
        for c in cases:
            if not c.name.endswith(BYTES):
                p99 = number(c.percentile(0.99)) if len(c.values) >= 100 else ""
                row = [
                    c.name,
                    c.unit,
                    number(c.low),
                    number(c.median),
                    number(c.high),
                    p99,
                    str(len(c.values)),
                ]
                table.add_row(
                    *row, *([number(in_bytes[c.name].median)] if c.name in in_bytes else [])
                )
        return table


def number(value: float) -> str:
    """Three significant digits, or whole thousands with commas."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
