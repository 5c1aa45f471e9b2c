"""The code blocks of README and docs, and what stands before them in an HTML comment: the reason
why one cannot be run, or what it takes for granted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted(
    page.relative_to(TOP).as_posix()
    for page in (TOP / "README.md", TOP / "CONTRIBUTING.md", TOP / "examples" / "README.md",
                 *(TOP / "docs").glob("*.md"))
)  # fmt: skip
PYTHON: Final = "python"
SHELL: Final = ("console", "sh")
_BLOCK: Final = re.compile(
    r"(?:^<!-- (?P<mark>not run|given): (?P<said>.*?) -->\n\n?)?"
    r"^```(?P<language>\S*)(?: title=\"(?P<title>.*?)\")?\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Snippet:
    """One code block."""

    page: str
    line: int
    language: str
    text: str
    not_run: str = ""
    """Why; empty: it is run."""
    given: tuple[str, ...] = ()
    """Keys of `GIVEN` for what it takes for granted."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> str:
        """Of a block for a shell: what is typed, without prompts and what is printed."""
        if self.language == "sh":
            return self.text
        return "".join(
            line.removeprefix("$ ") for line in self.text.splitlines(True) if line[:2] == "$ "
        )


SESSION: Final = """\
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
"""
GIVEN: Final = {
    "df": 'df = spark.createDataFrame([("k", "v")], "key string, value string")\n',
    "frame": 'frame = spark.createDataFrame([("k", "v")], "key string, value string")\n',
    "orders": (
        'spark.createDataFrame([("k", "v")], "key string, value string").write.format('
        '"dledger").option("topic", "orders").mode("append").save("/data/log")\n'
    ),
    "store": 'store = "/data/rocketmq/store"\n',
}
"""What a snippet may take for granted -> the code for it."""


def snippets(page: str, text: str | None = None) -> list[Snippet]:
    """Those of a page, in its order."""
    text = (TOP / page).read_text() if text is None else text
    return [
        Snippet(
            page,
            text.count("\n", 0, found.start("text")) + 1,
            found["language"],
            found["text"],
            _reason(found),
            tuple(found["said"].split(", ")) if found["mark"] == "given" else (),
        )
        for found in _BLOCK.finditer(text)
    ]


def _reason(found: re.Match[str]) -> str:
    """Why a block is not run; empty: it is."""
    if found["title"]:
        return f"it is {found['title']} of a project, which tests/testing runs"
    return str(found["said"]) if found["mark"] == "not run" else ""


def before(snippet: Snippet, *, session: bool) -> str:
    """The code for what a Python snippet takes for granted.

    Args:
        session: whether there is a Spark session where it is run.
    """
    text = "".join(GIVEN[name] for name in snippet.given)
    makes_one = "SparkSession" in snippet.text or "local_session" in snippet.text
    needs_session = "spark" in (text + snippet.text) and not makes_one
    return (SESSION if needs_session and not session else "") + text
