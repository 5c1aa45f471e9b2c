"""The Python on the site's pages of first steps, guides and reference runs as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDERS = ("first-steps", "guides", "api")
PAGES = [
    *(page for folder in FOLDERS for page in sorted((DOCS / folder).glob("*.md"))),
    DOCS / "errors.md",
    DOCS / "metrics.md",
]


def blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


PLAIN = {
    f"{page.stem}-{number}": block
    for page in PAGES
    for number, block in enumerate(blocks(page))
    if "SparkSession" not in block
}
SPARK = [block for page in PAGES for block in blocks(page) if "SparkSession" in block]
RUNNER = """
import os, sys
from pathlib import Path
from dledger import EmbeddedGroup
from dledger.datasource.java import ensure_java
ensure_java()
os.environ["PYSPARK_PYTHON"] = sys.executable
place = Path(sys.argv[1])
for number, path in enumerate(sorted(place.glob("*.py"))):
    text = path.read_text().replace("/data/", f"{place}/{number}/")
    exec(compile(text, path.name, "exec"), {"__name__": "example"})
    EmbeddedGroup(place / str(number) / "log").stop()
"""


@pytest.mark.parametrize("name", PLAIN)
def test_block_of_a_page_runs(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLAIN[name]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.cluster
@pytest.mark.spark
def test_blocks_with_spark_run(tmp_path: Path) -> None:
    """Each with a log of its own, all in one session."""
    assert len(SPARK) >= 3
    for number, block in enumerate(SPARK):
        (tmp_path / f"{number:02}.py").write_text(block)
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for shown in ("/cart", "bob|    -5", "5000000000"):
        assert shown in done.stdout, done.stdout
