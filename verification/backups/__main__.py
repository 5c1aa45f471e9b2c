"""``python -m verification.backups``: green and exit code 0, or red and 1."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from verification.backups.campaign import run
from verification.result import command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; the exit code. Files stay where they are when it is red."""
    return command("backups", __doc__, "kills", 100, "what fails, and when", run, argv)


if __name__ == "__main__":
    sys.exit(main())
