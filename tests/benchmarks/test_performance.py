"""docs/performance.md is made from what runs of ``make bench`` measured, and from nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import SECTIONS
from benchmarks.chapters import CHAPTERS
from benchmarks.curves import BY_ENTRIES, ENTRIES, NODE_MIB, RESTART
from benchmarks.gaps import BARE, GAPS, OURS
from benchmarks.performance import DOCS, FOLDER, kept, page, read
from benchmarks.plots import draw

MACHINE = {
    "command": "make bench BENCH=curves REPETITIONS=5",
    "commit": "abc1234",
    "started": "2026-11-27T12:00:00Z",
    "python": "3.11.7",
    "cpu": "a processor",
    "cores": 2,
    "memory_gib": 23.5,
    "file_system": "ext4",
}


def run(**machine: str) -> dict[str, Any]:
    """A run that has two points of a curve and a pair of gaps."""
    cases = [
        (ENTRIES, f"{RESTART}, 100,000", "s", [0.5, 0.25, 1.0]),
        (ENTRIES, f"{RESTART}, 10,000,000", "s", [1.5, 1.25, 1.0]),
        (ENTRIES, f"{NODE_MIB}, 100,000", "MiB", [50.0]),
        (GAPS, BARE, "ms", [2.0, 4.0, 3.0]),
        (GAPS, OURS, "ms", [6.0, *[9.0] * 99]),
        ("another section", "a case", "s", [1.0]),
    ]
    made = [
        {"section": section, "name": name, "unit": unit, "values": values}
        for section, name, unit, values in cases
    ]
    return {"machine": {**MACHINE, **machine}, "cases": made}


def files(of: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {c.name: file for c in CHAPTERS if (file := kept(c, of)) is not None}


def test_page_has_chapters_and_points_that_were_measured() -> None:
    found = files(run())
    assert set(found) == {"curves-entries", "curves-gaps"}
    text = page(found)
    assert len(re.findall(r"(?m)^## ", text)) == 2
    assert f"| entries | {RESTART} | {NODE_MIB} |\n|---|---|---|\n" in text
    assert "| 100,000 | 0.5 s (0.25 to 1) | 50 MiB |\n" in text
    assert "| 10,000,000 | 1.25 s (1 to 1.5) |  |\n" in text
    assert "| 1,000,000 |" not in text
    assert "`make bench BENCH=curves REPETITIONS=5` at abc1234, 2026-11-27T12:00:00Z" in text


def test_figure_stands_beside_its_floor_with_their_ratio() -> None:
    text = page(files(run()))
    assert f"| {OURS} | 9 ms (6 to p99 9) | 100 | 3 ms (2 to 4) | 3 |\n" in text
    assert f"| {BARE} | 3 ms (2 to 4) | 3 |  |  |\n" in text


def test_smoke_test_is_no_figure() -> None:
    for machine in ({"command": "make bench BENCH=curves QUICK=1"}, {"command": ""}):
        of = run(**machine)
        if not machine["command"]:
            del of["machine"]["command"]
        with pytest.raises(ValueError, match="its figures mean nothing"):
            files(of)


def test_plot_is_the_same_bytes_each_time_and_has_its_points(tmp_path: Path) -> None:
    cases = files(run())["curves-entries"]["cases"]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        draw(BY_ENTRIES, cases, tmp_path / name / "curve.svg")
    first, second = ((tmp_path / name / "curve.svg").read_text() for name in ("one", "two"))
    assert first == second
    assert ">100,000<" in first
    assert ">10,000,000<" in first
    assert ">1,000,000<" not in first


def test_page_in_docs_is_the_one_that_its_files_make() -> None:
    found = read(DOCS / FOLDER)
    assert page(found) == (DOCS / "performance.md").read_text()
    for chapter in CHAPTERS:
        if chapter.curve is not None and chapter.name in found:
            assert (DOCS / FOLDER / f"{chapter.name}.svg").is_file()


def test_chapters_are_named_as_sections_of_make_bench() -> None:
    assert {chapter.name for chapter in CHAPTERS} <= SECTIONS.keys()
