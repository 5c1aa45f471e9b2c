"""Three nodes over counting disks under ``dledger bench``, and the counts of these disks."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dledger.config import MIB
from dledger.errors import ConfigError
from dledger.types import NodeId
from verification.counted.disk import COUNTS
from verification.counted.node import write_config
from verification.result import result
from verification.strangers.nodes import Nodes

SIZES: Final = (100, 1024, 16384)
"""Bytes of one append."""
WINDOWS: Final = (1, 8, 64)
"""Appends in flight."""
RUN_S: Final = 3.0
"""Seconds of each size with each window, in turn, again and again."""


class CountingNodes(Nodes):
    """Three nodes as ``dledger serve`` runs them, but over disks that count."""

    def command(self, name: NodeId) -> list[str]:
        host, _, port = self.addresses[name].rpartition(":")
        config = self.folder / f"{name}.json"
        write_config(
            config,
            {"group": "counted", "segment_bytes": 64 * MIB, "index_file_bytes": 8 * MIB},
            {
                "node_id": name,
                "directory": str(self.folder / name),
                "host": host,
                "port": int(port),
                "retention_bytes": 512 * MIB,
                "disk_full_ratio": 1.0,
                "disk_warn_ratio": 1.0,
            },
            self.addresses,
        )
        return [
            sys.executable,
            "-m",
            "verification.counted.node",
            str(config),
            str(self._counts(name)),
        ]

    def counts(self) -> dict[str, int]:
        """Of all nodes together, which have ended.

        Raises:
            OSError: one of them has not ended well, and told nothing.
        """
        found = [json.loads(self._counts(name).read_text()) for name in self.addresses]
        return {count: sum(one[count] for one in found) for count in COUNTS}

    def _counts(self, name: NodeId) -> Path:
        return self.folder / f"{name}.counts"


def run(folder: Path, minutes: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Run it; a result (`verification.result`).

    Args:
        folder: empty, for stores and logs.
        minutes: how long the load lasts, in whole turns of all sizes and windows, one at least.

    Raises:
        ConfigError: the minutes are none.
    """
    if not minutes > 0:
        raise ConfigError(f"{minutes} minutes: give more than none")
    turns = max(1, round(60 * minutes / (RUN_S * len(SIZES) * len(WINDOWS))))
    with CountingNodes(folder) as nodes:
        say(
            f"{len(nodes.addresses)} nodes in {folder}, {turns} turns of "
            f"{len(SIZES) * len(WINDOWS)} loads"
        )
        began = time.monotonic()
        rows, problem = bench(nodes.bootstrap_servers, turns)
        seconds = time.monotonic() - began
        problems = [problem] * bool(problem)
        if nodes.running < len(nodes.addresses):
            problems.append("a node has ended under the load; see its log")
    try:
        counts = nodes.counts()
    except OSError as error:
        counts = dict.fromkeys(COUNTS, 0)
        problems.append(f"a node has not ended well, and so says nothing: {error}")
    return judged(counts, rows, minutes, seconds, problems)


def bench(bootstrap: str, turns: int) -> tuple[list[dict[str, float]], str]:
    """``dledger bench`` as a user runs it: its rows, and its error."""
    line = [
        sys.executable,
        "-m",
        "dledger",
        "bench",
        "--bootstrap",
        bootstrap,
        "--sizes",
        ",".join(map(str, SIZES)),
        "--in-flight",
        ",".join(map(str, WINDOWS)),
        "--seconds",
        str(RUN_S),
        "--repeat",
        str(turns),
        "--json",
    ]
    done = subprocess.run(
        line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return [], f"dledger bench has ended with {done.returncode}: {done.stderr.strip()}"
    return json.loads(done.stdout), ""


def judged(
    counts: dict[str, int],
    rows: list[dict[str, float]],
    minutes: float,
    seconds: float,
    problems: list[str],
) -> dict[str, Any]:
    """The result: red when a move was uncovered, when nothing moved, or for a problem."""
    if counts["uncovered moves"]:
        problems.append(
            f"{counts['uncovered moves']:,} of {counts['moves']:,} moves of what is called "
            f"durable took in bytes that "
            f"no sync covers, of {counts['uncovered entries']:,} entries"
        )
    if not counts["moves"] and not problems:
        problems.append("nothing was ever called durable, so nothing was shown")
    rates = [row["appends_per_s"] for row in rows]
    table = [["bytes", "in flight", "appends a second, median"]]
    table += [
        [f"{row['bytes']:,}", str(row["in_flight"]), f"{row['appends_per_s']:,.0f}"] for row in rows
    ]
    return result(
        "counted bench",
        command=f"make counted-bench MINUTES={minutes:g}",
        ok=not problems,
        faults={},
        figures={
            "seconds": round(seconds),
            **counts,
            "appends a second": round(sum(rates) / max(len(rates), 1)),
        },
        problems=problems,
        table=table,
    )
