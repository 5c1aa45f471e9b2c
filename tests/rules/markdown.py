"""Tables of the pages in docs/."""

from __future__ import annotations

import re
from itertools import takewhile


def table(text: str, header: str) -> list[list[str]]:
    """Rows of the Markdown table that has this header."""
    _, found, rest = text.partition(f"| {header} |\n")
    assert found, f"no table with the header | {header} |"
    lines = takewhile(lambda line: line.startswith("|"), rest.splitlines()[1:])
    rows = (re.split(r"(?<!\\)\|", line)[1:-1] for line in lines)
    return [[cell.strip().replace("\\|", "|") for cell in row] for row in rows]
