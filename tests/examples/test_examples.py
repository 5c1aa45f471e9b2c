"""Every example runs, as its first line says, and shows what it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((TOP / "examples").glob("[0-9]*.py"))
SHOWS = {
    "01_three_nodes.py": [r"its leader is n\d", r"\[0, 2\) of greetings", r"Role.LEADER|LEADER"],
    "02_append_and_tail.py": [r"tail: offset 5, key None, value b'six'", r"end \{0: 6\}"],
    "03_batch.py": [r"customer-\d+", r"rows: 100000"],
    "04_stream.py": [
        r"run 1: orders has 5000",
        r"large has 2500 records",
        r"run 2: orders has 10000",
        r"large has 5000 records",
    ],
    "05_kill_the_leader.py": [
        r"SIGKILL of n\d",
        r"all 3000 acknowledged records are there, once, in order",
    ],
    "06_embed_a_node.py": [r"this application's node is LEADER", r"rows: 1000"],
    "07_watch_a_stream.py": [
        r"rows in progress: (\d+) of \1 records",
        r"largest lag: [1-9]\d* records, at the end 0",
        r"drawn in \S+\.png|pip install",
    ],
    "08_typed_topic.py": [
        r"price: struct",
        r"refused:\n  ! id int",
        r"\|\s*web\|\s*1000\|\s*5000000999\|",
        r"version 1 has id, customer, items, price\n",
        r'customer-9 {"id":999,.*"currency":"EUR"}}',
        r"rows: 2000",
    ],
}


def run_example(*arguments: str, timeout_s: float = 3600) -> str:
    """Run a script of examples/ from the top of the checkout and return what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_example_runs_and_shows_what_it_says(path: Path) -> None:
    printed = run_example(f"examples/{path.name}")
    for expected in SHOWS[path.name]:
        assert re.search(expected, printed), printed


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_first_line_of_an_example_is_its_command(path: Path) -> None:
    assert path.read_text().startswith(f'"""python examples/{path.name}')
    assert f".venv/bin/python examples/{path.name}`" in (TOP / "examples" / "README.md").read_text()


def test_every_example_is_checked_here() -> None:
    assert [p.name for p in EXAMPLES] == sorted(SHOWS)


@pytest.mark.cluster
@pytest.mark.spark
def test_demo_holds_without_a_terminal() -> None:
    """A part of the flights, with both kills; the proof is the demo's own, and it exits 0 only when
    all of it holds."""
    printed = run_example("examples/flights_demo.py", "--flights", "30000")
    assert "SIGKILL of the leader" in printed
    assert "SIGKILL of the Spark program" in printed
    for fact in ("rows in", "rows out", "failover gap", "rows/s", "replicas agree byte for byte"):
        assert fact in printed
    assert printed.count("holds") >= 6
    assert "BROKEN" not in printed


@pytest.mark.cluster
@pytest.mark.spark
def test_benchmarks_run_in_every_section(tmp_path: Path) -> None:
    """A smoke test: each section once, with little data; the figures mean nothing, but they are all
    there."""
    printed = run_example("-m", "benchmarks", "--quick", "--output", str(tmp_path))
    assert "saved as" in printed
    saved = next(tmp_path.glob("bench-*.json")).read_text()
    for case in (
        "1 KiB, 512 in flight, 3 replicas",
        "Client.append of 1 KiB, 3 replicas",
        "dledger, 3 replicas",
        "1 MiB, 16 in flight, bare sockets and files",
        "VmRSS of any node",
        "dledger, 3 replicas, appended and read, unix socket",
        "new, 3 nodes, to the first acknowledgement",
        "memory of the node (RSS), 0.1 GiB",
        "a group",
    ):
        assert f'"{case}"' in saved
