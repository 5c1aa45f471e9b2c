"""docs/performance.md out of runs of ``make bench``: ``python -m benchmarks.performance [RUN.json
...]``.

Each chapter of the page has a file in docs/performance/, with the machine, the command and a
summary of each case. The runs that are named, as ``make bench`` saved them, take the place of what
these files had for their sections. Then the page and its plots are made from the files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.chapters import CHAPTERS, Chapter
from benchmarks.curves import ON_DISK
from benchmarks.report import Case, number

TOP: Final = Path(__file__).resolve().parent.parent
DOCS: Final = TOP / "docs"
FOLDER: Final = "performance"
PLENTY: Final = 100
"""Values from which on a p99 is told."""

HEAD: Final = """# Performance

Figures of one machine, each with its spread, the command that measures it again, and, where there
is one, a floor beside it: what bare sockets, files or a small program take in the same run.
`make bench BENCH=section` measures. `make performance RUNS=file` takes the run that it saved into
`performance/`, and makes this page and its plots from there. Compare figures within a chapter:
rates are the machine's as much as the log's. `make bench-compare A=revision B=revision` compares
two revisions.

A figure is a median. Least and most are behind it, or least and p99 of {plenty} values or more.
Plots have medians, the same spread, and as a dashed line a bound where there is one.
"""

Kept = Mapping[str, Any]
"""The file of a chapter."""


def kept(chapter: Chapter, run: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the file of a chapter has of a run; None where the run has none of its cases.

    Raises:
        ValueError: it is a run with QUICK=1, or one that does not say its command.
    """
    cases = [case for case in run["cases"] if case["section"] in chapter.shown]
    if not cases:
        return None
    command = run["machine"].get("command", "QUICK=1")
    if "QUICK=1" in command:
        raise ValueError("a run with QUICK=1 is a smoke test, and its figures mean nothing")
    return {"command": command, "machine": run["machine"], "cases": list(map(summary, cases))}


def summary(case: Mapping[str, Any]) -> dict[str, Any]:
    """A case without its values."""
    found = Case(case["section"], case["name"], case["unit"], case["values"])
    named = {"section": found.section, "name": found.name, "unit": found.unit}
    figures = {"least": found.low, "median": found.median, "most": found.high}
    if len(found.values) >= PLENTY:
        figures["p99"] = found.percentile(0.99)
    exact = {name: float(f"{value:.6g}") for name, value in figures.items()}
    return {**named, "n": len(found.values), **exact}


def page(files: Mapping[str, Kept]) -> str:
    """The whole page, in Markdown; a chapter without a file is left out."""
    parts = [HEAD.format(plenty=PLENTY)]
    for chapter in CHAPTERS:
        if chapter.name in files:
            parts += written(chapter, files[chapter.name])
    return "\n".join(parts)


def written(chapter: Chapter, file: Kept) -> list[str]:
    """One chapter."""
    machine = file["machine"]
    versions = f"Python {machine['python']}, {machine['cores']} cores ({machine['cpu']})"
    where = f"{versions}, {machine['memory_gib']} GiB, {machine['file_system']}"
    told = f"`{file['command']}` at {machine['commit']}, {machine['started']}: {where}."
    lines = [f"## {chapter.title}\n", f"{chapter.words}\n", f"{told}\n"]
    if chapter.curve is not None:
        lines.append(f"![{chapter.title}]({FOLDER}/{chapter.name}.svg)\n")
    return [*lines, *(over_points if chapter.curve else by_case)(chapter, file["cases"]), ""]


def by_case(chapter: Chapter, cases: Sequence[Kept]) -> list[str]:
    """A row for each case, with its floor."""
    floors = {case["name"]: case for case in cases}
    headings, rows = ["measured", "figure", "n"], []
    if chapter.floors:
        headings += ["floor", "times the floor"]
    for case in cases:
        if case["name"].endswith(chapter.hidden) and chapter.hidden:
            continue
        row = [case["name"], figure(case), str(case["n"])]
        if chapter.floors:
            floor = floors.get(chapter.floors.get(case["name"], ""))
            row += [figure(floor), number(case["median"] / floor["median"])] if floor else ["", ""]
        rows.append(row)
    return table([headings, *rows])


def over_points(chapter: Chapter, cases: Sequence[Kept]) -> list[str]:
    """A row for each point of a curve, a column for each figure."""
    curve = chapter.curve
    assert curve is not None
    found = {case["name"]: case for case in cases}
    figures = [*curve.figures, ON_DISK]
    shown = [name for name in figures if any(f"{name}, {label}" in found for label in curve.points)]
    rows = [[curve.over, *shown]]
    for label in curve.points:
        row = [found.get(f"{name}, {label}") for name in shown]
        if any(row):
            rows.append([label, *(figure(case) if case else "" for case in row)])
    return table(rows)


def figure(case: Kept) -> str:
    """The median with unit and spread."""
    unit = f" {case['unit']}" if case["unit"] else ""
    text = f"{number(case['median'])}{unit}"
    if case["n"] == 1:
        return text
    high = f"p99 {number(case['p99'])}" if "p99" in case else number(case["most"])
    return f"{text} ({number(case['least'])} to {high})"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]


def read(folder: Path) -> dict[str, Kept]:
    """The files of the chapters, by their names."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def main(runs: Sequence[str]) -> int:
    """Take in the runs, and make the page and its plots."""
    from benchmarks.plots import draw  # matplotlib, which only this needs

    folder = DOCS / FOLDER
    folder.mkdir(exist_ok=True)
    for run in runs:
        content = json.loads(Path(run).read_text())
        for chapter in CHAPTERS:
            try:
                file = kept(chapter, content)
            except ValueError as error:
                print(f"{run}: {error}", file=sys.stderr)
                return 2
            if file is not None:
                (folder / f"{chapter.name}.json").write_text(json.dumps(file, indent=1) + "\n")
    files = read(folder)
    for chapter in CHAPTERS:
        if chapter.curve is not None and chapter.name in files:
            draw(chapter.curve, files[chapter.name]["cases"], folder / f"{chapter.name}.svg")
    (DOCS / "performance.md").write_text(page(files))
    print(f"docs/performance.md: {len(files)} chapters")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
