"""What docs/testing.md shows runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
FILES = dict(re.findall(r'```python title="([\w.]+)"\n(.*?)```', PAGE.read_text(), re.DOTALL))
"""Blocks that are modules of a user's program and its tests, by their names."""


@pytest.mark.parametrize("block", BLOCKS)
def test_example_runs(block: str) -> None:
    exec(compile(block, str(PAGE), "exec"), {"__name__": "example"})


@pytest.mark.parametrize(
    ("module", "tests"),
    [
        ("test_groups.py", 4),
        ("test_orders.py", 2),
        pytest.param("test_totals.py", 1, marks=pytest.mark.spark),
    ],
)
def test_tests_that_are_shown_pass(module: str, tests: int, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", module]
    options = ["--strict-markers", f"--basetemp={tmp_path / 'tmp'}"]
    done = subprocess.run(
        [*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert f"{tests} passed" in done.stdout, done.stdout + done.stderr


def test_there_are_examples() -> None:
    assert len(BLOCKS) == 2
    assert {name for name in FILES if not name.startswith("test_")} == {
        "conftest.py", "orders.py", "totals.py",
    }  # fmt: skip
