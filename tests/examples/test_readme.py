"""What README.md shows works as it stands, each snippet by itself, and once more in the same
directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger import EmbeddedGroup

TOP = Path(__file__).resolve().parents[2]
README = (TOP / "README.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SESSION = """\
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
"""
FRAME = 'df = spark.createDataFrame([("k", "v")], "key string, value string")\n'
SHOWS: dict[str, list[str]] = {
    "df.write.format": [],
    "orders = spark": [r"Batch: 0", r"\|\s*\d+\|\s*\{\"amount\": 20\}\|"],
    "clicks.write": [r"score: double", r"path: array"],
    "client.append": [r"'offset': 0", r"'offset': 1"],
    "rocketmq": [r"\|\s*orders\|\s*\d+\|"],
}
"""What each snippet, found by a word of it, prints; in the order of the page."""


def snippet(word: str) -> str:
    (found,) = [text for text in SNIPPETS if word in text]
    return found


def run(folder: Path, text: str) -> str:
    """Run a snippet as a script, with what it takes for granted before it and its directories in
    ``folder``."""
    before = (SESSION if "spark" in text and "local_session" not in text else "") + (
        FRAME if "df." in text else ""
    )
    script = folder / "snippet.py"
    script.write_text(before + text.replace("/data/", f"{folder}/"))
    return out(folder, sys.executable, str(script), finds_python="local_session" in text)


def out(folder: Path, *command: str, finds_python: bool = False) -> str:
    environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    if finds_python:
        del environ["PYSPARK_PYTHON"]
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        env=environ,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    EmbeddedGroup(tmp_path / "log").stop(force=True)


@pytest.mark.cluster
@pytest.mark.spark
def test_every_snippet_runs_twice_in_a_row_and_shows_what_it_says(folder: Path) -> None:
    for word, expected in SHOWS.items():
        if word == "rocketmq":
            command = (
                "export",
                f"{folder}/rocketmq/store",
                "--format",
                "rocketmq",
                "-b",
                f"{folder}/log",
            )
            (folder / "rocketmq").mkdir()
            out(folder, sys.executable, "-m", "dledger", *command, "--topic", "orders")
        for _ in range(2):
            printed = run(folder, snippet(word))
            for pattern in expected:
                assert re.search(pattern, printed, re.MULTILINE), f"{word}: {pattern}\n{printed}"


def test_every_snippet_is_run_here() -> None:
    assert sorted(SNIPPETS.index(snippet(word)) for word in SHOWS) == list(range(len(SNIPPETS)))


def test_page_begins_with_install_and_names_each_extra_that_there_is() -> None:
    first, *_ = re.findall(r"```\w+\n(.*?)```", README, re.DOTALL)
    assert first.startswith("$ pip install dledger ")
    assert "pip install .\n" in first
    assert README.index("JAVA_GATEWAY_EXITED") < README.index("local_session()  #")
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"(?m)^\| `(\w+)` \|.*\|$", README[: README.index("## Try it")]))
    assert named == project["optional-dependencies"].keys() - {"examples", "test", "check"}
