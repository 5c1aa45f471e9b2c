"""All planted bugs. Each breaks one rule in one place; the files of `bugs/` hold them as text."""

from __future__ import annotations

from typing import Final

from verification.mutants.plant import Mutant
from verification.mutants.planted import all_planted

MUTANTS: Final = tuple(all_planted())
CANARY: Final = "ack-before-sync"
"""Always run by the test suite."""


def named(name: str) -> Mutant:
    """Raises KeyError when there is none of that name."""
    return {mutant.name: mutant for mutant in MUTANTS}[name]
