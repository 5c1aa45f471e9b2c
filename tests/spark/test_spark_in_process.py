"""Spark in local mode on a group in the test's own process, as docs/testing.md shows it."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


def test_example_of_the_page_runs(spark: SparkSession) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "SparkSession" in block]
    exec(compile(block, str(PAGE), "exec"), {"__name__": "example"})
