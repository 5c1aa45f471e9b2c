"""Alerts as Prometheus has them: the rules, the samples of a group's nodes, and promtool, which
says whether an alert fires by them."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.node.scraping import fetch, parsed

RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "rules.yml"
MINUTES = 30
"""How long a fault lasts."""
GROWS = ("_total", "_count", "_sum", "_bucket")

Samples = dict[str, float]
"""By series as Prometheus stores them, with instance and job."""


def alerts() -> list[str]:
    """The names of all alerts."""
    return re.findall(r"(?m)^ +- alert: (\w+)$", RULES.read_text())


def promtool() -> str:
    """The program.

    Skips the test where there is none.
    """
    beside = shutil.which("promtool", path=Path(sys.executable).parent)
    found = os.environ.get("DLEDGER_PROMTOOL") or beside or shutil.which("promtool")
    return found or pytest.skip("no promtool: make promtool fetches it")


def _labelled(series: str, node: str) -> str:
    name, _, labels = series.partition("{")
    return f'{name}{{instance="{node}",job="dledger",{labels or "}"}'.replace(",}", "}")


async def scrape(group: Any) -> Samples:
    """All members of a group as a Prometheus sees them now; times count from now on."""
    found: Samples = {}
    for name in group.config.members:
        node, up = group.nodes.get(name), 0.0
        if node is not None:
            node._monitor._pages = {}
            tls = group.tls
            _, _, text = await asyncio.to_thread(fetch, node.metrics_port, "/metrics", tls=tls)
            up = 1.0
            for series, value in parsed(text).items():
                since = time.time() if "_timestamp_seconds" in series else 0.0
                found[_labelled(series, name)] = value - since
        found[_labelled("up", name)] = up
    return found


def rates(folder: Path, alert: str, before: Samples, after: Samples) -> None:
    """Assert that ``alert`` does not fire for what was before, and does for what is after, when
    what has grown goes on growing so each minute."""
    sound = [_series(series, value, 0.0) for series, value in before.items()]
    broken = [
        _series(series, value, value - before.get(series, 0.0)) for series, value in after.items()
    ]
    test = "\n".join(
        (
            f"rule_files: ['{RULES}']",
            "evaluation_interval: 1m",
            "tests:",
            *_test(sound, alert, 0),
            *_test(broken, alert, 1),
        )
    )
    (folder / "test.yml").write_text(test)
    done = subprocess.run(
        [promtool(), "test", "rules", str(folder / "test.yml")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def _series(series: str, value: float, growth: float) -> str:
    name = series.partition("{")[0]
    growth = growth if name.endswith(GROWS) else 0.0
    return f"      - {{series: '{series}', values: '{value!r}{growth:+}x{MINUTES}'}}"


def _test(series: list[str], alert: str, fires: int) -> list[str]:
    firing = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
    return [
        "  - interval: 1m",
        "    input_series:",
        *series,
        "    promql_expr_test:",
        f"      - expr: '(count({firing}) > bool 0) or vector(0)'",
        f"        eval_time: {MINUTES}m",
        f"        exp_samples: [{{labels: '{{}}', value: {fires}}}]",
    ]
