"""Sections of ``make bench`` of two checkouts, run in turn: each case as a ratio to the other
checkout's. ``python -m benchmarks.section_pairs --other DIRECTORY [--only append,spark]
[--rounds 3] [--repetitions 1]``; both checkouts need their ``make setup``.

A ratio above one is worse: of rates it is the other checkout's over this one's, of times and sizes
this one's over the other's. A round runs a section once in either checkout; which of them begins
changes from round to round. The interval is that of `benchmarks.pairs`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.__main__ import SECTIONS, UNASKED
from benchmarks.machine import SECTION as MACHINE
from benchmarks.pairs import interval
from benchmarks.report import BYTES

WORSE: Final = 1.05
"""The limit of a change that is to cost nothing."""
GOOD_UNITS: Final = ("/s", "times")
"""Ends of the units of which more is better."""

Cases = dict[tuple[str, str, str], list[float]]
"""(section, case, unit) and the values of one run."""


@dataclass
class Compared:
    """The values of a case in both checkouts, a list for each round."""

    unit: str
    here: list[list[float]] = field(default_factory=list)
    other: list[list[float]] = field(default_factory=list)

    def medians(self) -> tuple[float, float]:
        """Over the values of all rounds."""
        here, other = (
            statistics.median(value for values in rounds for value in values)
            for rounds in (self.here, self.other)
        )
        return here, other

    def worse(self, here: float, other: float) -> float:
        """How many times worse ``here`` is than ``other``."""
        return other / here if self.unit.endswith(GOOD_UNITS) else here / other

    def ratios(self) -> list[float]:
        """Of the medians of each round; rounds with a zero have none."""
        pairs = [
            (statistics.median(here), statistics.median(other))
            for here, other in zip(self.here, self.other, strict=True)
        ]
        return [self.worse(here, other) for here, other in pairs if here > 0 and other > 0]


def run(checkout: Path, section: str, repetitions: int) -> Cases:
    """One section of one checkout, in the checkout's own environment."""
    binaries = checkout / ".venv/bin"
    environment = {
        **os.environ,
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": str(binaries / "python"),
    }
    # else a checkout that is installed as it is compiles itself at each start, a wheel does not
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="dledger-sections-") as output:
        command: list[str | Path] = [binaries / "python", "-m", "benchmarks", "--only", section]
        command += ["--repetitions", str(repetitions), "--output", output]
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(
                f"make bench BENCH={section} in {checkout} ended with {done.returncode}:\n"
                f"{done.stderr[-4000:]}"
            )
        [path] = Path(output).glob("*.json")
        cases = json.loads(path.read_text())["cases"]
    return {
        (case["section"], case["name"], case["unit"]): case["values"]
        for case in cases
        if case["section"] != MACHINE and not case["name"].endswith(BYTES)
    }


def compare(
    here: Path, other: Path, sections: Sequence[str], rounds: int, repetitions: int
) -> Iterator[tuple[str, dict[tuple[str, str], Compared]]]:
    """Each section and the cases that both checkouts have."""
    for section in sections:
        found: dict[tuple[str, str], Compared] = {}
        for number in range(rounds):
            got: dict[Path, Cases] = {}
            for checkout in (here, other) if number % 2 == 0 else (other, here):
                got[checkout] = run(checkout, section, repetitions)
            for key in got[here].keys() & got[other].keys():
                name, case, unit = key
                compared = found.setdefault((name, case), Compared(unit))
                compared.here.append(got[here][key])
                compared.other.append(got[other][key])
            print(f"{section}: round {number + 1} of {rounds}", file=sys.stderr)
        yield section, found


def report(cases: dict[tuple[str, str], Compared]) -> Iterator[str]:
    """A line for each case; one whose median is worse than the limit is marked."""
    for (section, case), compared in sorted(cases.items()):
        here, other = compared.medians()
        line = f"{section}: {case}: {here:.4g} {compared.unit}, other {other:.4g}"
        if ratios := compared.ratios():
            mean, low, high = interval(ratios)
            mark = "  WORSE" if compared.worse(here, other) > WORSE else ""
            line += f"; {compared.worse(here, other):.3f} times worse by the medians{mark}"
            line += f", mean {mean:.3f}, 95 % interval {low:.3f} to {high:.3f}"
        yield line


def as_json(every: dict[str, dict[tuple[str, str], Compared]]) -> str:
    """All values of all rounds."""
    cases: dict[str, list[object]] = defaultdict(list)
    for section, found in every.items():
        for (name, case), c in found.items():
            cases[section].append(
                {"section": name, "case": case, "unit": c.unit, "here": c.here, "other": c.other}
            )
    return json.dumps(cases, indent=1) + "\n"


def main() -> int:
    """1 when the median of a case is worse than the limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.section_pairs", description=__doc__)
    parser.add_argument("--here", type=Path, help="the checkout to measure, unless it is this one")
    parser.add_argument("--other", type=Path, required=True, help="the checkout to compare with")
    parser.add_argument("--only", default=",".join(UNASKED), help="sections, of make bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repetitions", type=int, default=1, help="of a section, in each round")
    parser.add_argument("--json", type=Path, help="where to keep all values")
    asked = parser.parse_args()
    sections = asked.only.split(",")
    if unknown := sorted(set(sections) - set(SECTIONS)):
        parser.error(f"no section {unknown[0]!r}; there are {', '.join(SECTIONS)}")
    here = (asked.here or Path(__file__).parent.parent).resolve()
    other = asked.other.resolve()
    every, is_worse = {}, False
    for section, found in compare(here, other, sections, asked.rounds, asked.repetitions):
        every[section] = found
        for line in report(found):
            print(line, flush=True)
        is_worse |= any(c.worse(*c.medians()) > WORSE for c in found.values() if c.ratios())
        if asked.json is not None:  # after each section: the whole takes long
            asked.json.write_text(as_json(every))
    return int(is_worse)


if __name__ == "__main__":
    sys.exit(main())
