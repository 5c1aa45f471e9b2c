"""The tables of columns in docs/options.md."""

from __future__ import annotations

from pathlib import Path

from tests.rules.markdown import table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "options.md"


def documented_columns(name: str) -> list[str]:
    """Name and type of each column."""
    rows = table(PAGE.read_text(), f"`{name}` column | meaning")
    return [row[0].replace("`", "") for row in rows]
