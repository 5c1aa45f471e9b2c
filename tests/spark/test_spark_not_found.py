"""The lines of docs/data-source-not-found.md do what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dledger import EmbeddedGroup

pytestmark = pytest.mark.spark
TOP = Path(__file__).resolve().parents[2]
PAGE = TOP / "docs" / "data-source-not-found.md"
PROGRAM = Path(__file__).with_name("not_found_query.py")


def lines_of(section: str) -> list[str]:
    """The Python of a section."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_lines_for_a_thread_write(spark: SparkSession, table: Any, topic: str) -> None:
    pool, _ = lines_of("In another thread")
    here = {"frame": spark.sql("SELECT 'a' AS value"), "spark": spark}
    exec(pool.replace('"orders"', repr(topic)).replace('"/data/log"', repr(table.path)), here)
    assert table.values(topic) == ["a"]


def test_the_line_for_a_look_up_that_failed_mends_the_session(
    running: EmbeddedGroup, tmp_path: Path
) -> None:
    """In a process of its own, with a package beside ours that cannot be imported."""
    (tmp_path / "pyspark_broken.py").write_text("raise ImportError('broken')\n")
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    (line,) = lines_of("After a first look-up that failed")
    (python,) = lines_of("Where the package is not installed")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(running.path), line, python],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["not", "found", "rows", "3"], done.stdout


def test_page_is_linked_from_the_readme_and_its_own_links_resolve() -> None:
    assert "(docs/data-source-not-found.md)" in (TOP / "README.md").read_text()
    text = PAGE.read_text()
    places = {
        re.sub(r"[^a-z_ -]", "", head.lower()).replace(" ", "-")
        for head in re.findall(r"^## (.*)$", text, re.M)
    }
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= places
