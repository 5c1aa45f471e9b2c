"""What README and docs show works as it stands: in each way in which people run it, and twice in a
row in the same directories. ``make docs-test`` runs all of it, a test run some."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger import EmbeddedGroup
from dledger.rocketmq import Message, MessageStore, TopicConfig
from tests.docs.snippets import GIVEN, PAGES, PYTHON, SHELL, TOP, Snippet, snippets
from tests.docs.ways import WAYS

ELSEWHERE = {"docs/consumer.md"}
"""Its first snippet goes on for ever: tests/examples/test_consumer_page.py runs that page."""
ALL = {
    (page, way)
    for page in PAGES
    if page not in ELSEWHERE
    for way, (_, languages) in WAYS.items()
    if any(one.language in languages and not one.not_run for one in snippets(page))
}
SHARE = {
    ("README.md", "notebook"),
    ("docs/data-source-not-found.md", "pyspark"),
    ("docs/data-source-not-found.md", "shell"),
    ("docs/testing.md", "python"),
}
"""Of a run of the tests: each way but the dearest, and the first page."""
CHOSEN = ALL if os.environ.get("DLEDGER_DOCS") == "all" else SHARE
SHOWS = {
    "README.md": [
        r"Batch: 0",
        r"\|\s*\d+\|\s*\{\"amount\": 20\}\|",
        r"score: double",
        r"path: array",
        r"pyarrow\.Table",
        r"\|\s*orders\|\s*\d+\|",
    ],
}
"""Page -> what its snippets print."""


def make_store(path: Path) -> None:
    """What a broker leaves that was stopped."""
    with MessageStore(path, file_size=1 << 20) as store:
        store.topics.put(TopicConfig("orders", queues=4))
        store.put_message(Message("orders", b"hello", "KEYS\x01k1\x02TAGS\x01new", queue_id=2))
        store.flush()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The current directory, with one in place of /data."""
    for name in ("data/rocketmq/store", "data/copy", "store"):
        make_store(tmp_path / name)
    yield tmp_path
    for name in ("log", "messages"):
        if (path := tmp_path / "data" / name).exists():
            EmbeddedGroup(path).stop(force=True)


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.parametrize(("page", "way"), sorted(CHOSEN))
def test_snippets_of_a_page_run_twice_in_a_row(folder: Path, page: str, way: str) -> None:
    do, languages = WAYS[way]
    chosen = [one for one in snippets(page) if one.language in languages and not one.not_run]
    printed = do(folder, chosen * 2)
    for pattern in SHOWS.get(page, ()) if languages == (PYTHON,) else ():
        assert len(re.findall(pattern, printed)) >= 2, f"{pattern}\n{printed}"


def test_share_of_a_test_run_is_of_what_there_is() -> None:
    assert SHARE < ALL


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_code_is_run_or_says_why_not(page: str) -> None:
    for one in snippets(page):
        assert one.language in {"", "sql", "toml", "yaml", PYTHON, *SHELL}, (
            f"{one.place}: {one.language}"
        )
        assert set(one.given) <= set(GIVEN), f"{one.place}: nothing gives {one.given}"
        code = re.search(r"^(\$ |dledger |make |pip |import |from \w+ import )", one.text, re.M)
        assert one.language or not code, f"{one.place} is code and does not say of what language"
        assert one.language != "console" or one.commands, f"{one.place} has no prompt"


def test_marks_before_a_block_are_found() -> None:
    text = "a\n\n<!-- not run: no broker -->\n```sh\nx\n```\n\n<!-- given: df, store -->\n\n"
    found = snippets("p.md", text + "```python\ny\n```\n\n```console\n$ z\nout\n```\n")
    assert found == [
        Snippet("p.md", 5, "sh", "x\n", not_run="no broker"),
        Snippet("p.md", 11, "python", "y\n", given=("df", "store")),
        Snippet("p.md", 15, "console", "$ z\nout\n"),
    ]
    assert found[2].commands == "z\n"


def test_readme_begins_with_install_and_names_each_extra_that_there_is() -> None:
    text = (TOP / "README.md").read_text()
    first = next(one for one in snippets("README.md") if one.language in SHELL)
    assert first.text.startswith("$ pip install dledger ")
    assert "pip install .\n" in first.text
    assert text.index("JAVA_GATEWAY_EXITED") < text.index("local_session()  #")
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"(?m)^\| `(\w+)` \|.*\|$", text[: text.index("## Try it")]))
    own = {"examples", "test", "check", "docs"}
    assert named == project["optional-dependencies"].keys() - own
