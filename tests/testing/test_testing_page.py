"""What docs/testing.md shows runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("block", [block for block in BLOCKS if "SparkSession" not in block])
def test_example_runs(block: str) -> None:
    exec(compile(block, str(PAGE), "exec"), {"__name__": "example"})


def test_there_are_examples() -> None:
    assert len(BLOCKS) == 3
