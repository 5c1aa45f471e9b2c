"""The tables of columns in docs/options.md."""

from __future__ import annotations

import itertools
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "options.md"


def documented_columns(table: str) -> list[str]:
    """Name and type of each column."""
    _, found, rest = PAGE.read_text().partition(f"\n| `{table}` column | meaning |\n")
    assert found, f"docs/options.md has no table of the columns of {table!r}"
    lines = itertools.takewhile(lambda line: line.startswith("|"), rest.splitlines()[1:])
    return [line.split(" | ")[0].removeprefix("| ").replace("`", "") for line in lines]
