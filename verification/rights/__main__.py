"""``python -m verification.rights``: green and exit code 0, or red and 1."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from verification import result
from verification.rights.campaign import run


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; the exit code."""
    unit = "frames of each principal"
    return result.command("rights", __doc__, unit, 100_000, "all frames", run, argv)


if __name__ == "__main__":
    sys.exit(main())
