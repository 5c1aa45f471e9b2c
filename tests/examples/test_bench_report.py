"""What a benchmark says of itself for the page of evidence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.section_pairs import Compared, report

TOP = Path(__file__).parents[2]
SCRIPT = """
import json
from benchmarks.floors import FLOORS
from benchmarks.report import Report
from benchmarks.availability import FAILED, GAP, HANDOVER
report = Report({})
report.add(HANDOVER, GAP, "ms", *range(1, 101), WORST, WORST)
report.add(HANDOVER, FAILED, "", 0)
print(json.dumps(report.as_evidence("make bench", FLOORS)))
"""


@pytest.mark.parametrize(("worst", "ok"), [(150, "true"), (250, "false")])
def test_a_benchmark_that_misses_a_floor_is_red_on_the_page_of_evidence(
    worst: int, ok: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("WORST", str(worst))],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f'"ok": {ok}' in done.stdout
    assert ('"problems": []' in done.stdout) is (ok == "true")
    assert (
        'a steady append: longest time without an acknowledgement, ms", "102", "1"' in done.stdout
    )


@pytest.mark.parametrize(("unit", "worse"), [("ms", 2.0), ("rows/s", 0.5)])
def test_case_of_two_checkouts_is_worse_by_its_unit(unit: str, worse: float) -> None:
    compared = Compared(unit, here=[[2.0, 4.0, 3.0], [8.0]], other=[[1.0, 2.0, 1.5], [4.0]])
    assert compared.ratios() == [worse, worse]
    [line] = report({("reading", "a topic"): compared})
    assert line.startswith(f"reading: a topic: 3.5 {unit}, other 1.75; {worse:.3f} times worse")
    assert ("  WORSE" in line) is (worse > 1)
