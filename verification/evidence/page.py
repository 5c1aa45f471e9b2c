"""docs/evidence.md out of docs/guarantees.md and the results of campaigns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from verification.evidence.promises import PROMISES, SIM
from verification.evidence.worlds import absent

Result = Mapping[str, Any]

HEAD: Final = """# Evidence

What was run, at which commit, with what result, and what that says of each promise of
[guarantees.md](guarantees.md). `make evidence` makes this page from the files in `evidence/`, which
the campaigns wrote themselves (`JSON=file`). Simulated hours of different systems cannot be
compared: look at seeds, events, faults that bit and planted bugs.
"""
PROMISE: Final = re.compile(r"^## (P\d+) (.+)$", re.MULTILINE)
TEST: Final = re.compile(r"`(tests/[^`]+)`")


@dataclass(frozen=True, slots=True)
class Promise:
    """A section of docs/guarantees.md."""

    name: str
    title: str
    tests: tuple[str, ...]


def promises_of(guarantees: str) -> list[Promise]:
    """All promises, with the tests that each names."""
    heads = list(PROMISE.finditer(guarantees))
    ends = [*(head.start() for head in heads[1:]), len(guarantees)]
    found = []
    for head, end in zip(heads, ends, strict=True):
        body = guarantees[head.end() : end].partition("\n## ")[0]
        found.append(Promise(head[1], head[2], tuple(dict.fromkeys(TEST.findall(body)))))
    return found


def results_in(folder: Path) -> list[Result]:
    """The results of campaigns, by file name."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def page(guarantees: str, results: Sequence[Result]) -> str:
    """The whole page, in Markdown.

    Raises:
        KeyError: a promise that `PROMISES` does not know, or a campaign that no promise names.
    """
    known = {name for coverage in PROMISES.values() for name in coverage.campaigns}
    for found in results:
        if found["campaign"] not in known:
            raise KeyError(
                f"no promise names the campaign {found['campaign']!r}: add it to "
                f"evidence/promises.py"
            )
    results = joined(results)
    parts = [
        HEAD,
        "## Campaigns\n",
        *(_campaign(found) for found in results),
        absent(),
        "## Promises\n",
    ]
    parts += [_promise(promise, results) for promise in promises_of(guarantees)]
    return "\n".join(parts)


def joined(results: Sequence[Result]) -> list[Result]:
    """The runs of the simulator, each of other seeds, as one that lists them under ``runs``; the
    others as they are."""
    runs = [found for found in results if found["campaign"] == SIM]
    others = [found for found in results if found["campaign"] != SIM]
    if not runs:
        return others
    whole = {
        **runs[0],
        "runs": runs,
        "ok": all(run["ok"] for run in runs),
        "figures": _sums(runs, "figures"),
        "faults": _sums(runs, "faults"),
        "commit": ", ".join(dict.fromkeys(run["commit"] for run in runs)),
        "problems": [text for run in runs for text in run.get("problems", ())],
    }
    return [*others, whole]


def _sums(runs: Sequence[Result], part: str) -> dict[str, float]:
    """The figures of all runs added up, by name."""
    names = dict.fromkeys(name for run in runs for name in run[part])
    return {name: round(sum(run[part].get(name, 0) for run in runs), 2) for name in names}


def _campaign(found: Result) -> str:
    verdict = "everything held" if found["ok"] else "**RED**"
    runs = [
        f"`{run['command']}` at {run['commit']}, {run['date']}."
        for run in found.get("runs", [found])
    ]
    lines = [
        f"### {found['campaign']}: {verdict}\n",
        *(f"{run}\n" for run in runs),
        f"- {_figures(found['figures'])}",
    ]
    if found["faults"]:
        lines.append(
            "- faults that bit: "
            + ", ".join(f"{name} {count:,}" for name, count in found["faults"].items())
        )
    lines += [f"- {text}" for text in found.get("problems", ())]
    if found.get("table"):
        lines += ["", *_table(found["table"])]
    return "\n".join([*lines, ""])


def _promise(promise: Promise, results: Iterable[Result]) -> str:
    coverage = PROMISES[promise.name]
    lines = [f"### {promise.name} {promise.title}\n"]
    for found in results:
        if found["campaign"] in coverage.campaigns:
            verdict = "" if found["ok"] else " **RED**"
            lines.append(
                f"- {found['campaign']} at {found['commit']}:{verdict} {_figures(found['figures'])}"
            )
    if promise.tests:
        lines.append(f"- tests: {', '.join(f'`{test}`' for test in promise.tests)}")
    return "\n".join([*lines, f"- not covered: {coverage.missing}", ""])


def _figures(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{value:,} {unit}" for unit, value in figures.items())


def _table(rows: Sequence[Sequence[Any]]) -> list[str]:
    lines = [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return [lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]
