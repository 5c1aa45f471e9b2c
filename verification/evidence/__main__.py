"""``python -m verification.evidence``: write docs/evidence.md of the checkout in the current
folder."""

from __future__ import annotations

import sys
from pathlib import Path

from verification.evidence.page import page, results_in


def main() -> None:
    """Ends with an error where this is no checkout."""
    docs = Path("docs")
    if not (docs / "guarantees.md").is_file():
        sys.exit("docs/guarantees.md is not here: run this in the checkout's top folder")
    results = results_in(docs / "evidence")
    (docs / "evidence.md").write_text(page((docs / "guarantees.md").read_text(), results))
    red = sum(not found["ok"] for found in results)
    sys.stdout.write(f"docs/evidence.md: {len(results)} campaigns, {red} red\n")


if __name__ == "__main__":
    main()
