"""Bugs that show only when one thread is inside a store while another one is inside its disk."""

from __future__ import annotations

from typing import Final

from dledger.testing.mutants.plant import SCHEDULES, Mutant

RACES: Final = (
    Mutant(
        "race-marked-only-before-write", "D1 B10", "store.segments", "SegmentFiles.pwritev",
        "            with self._lock:\n                self._dirty.add(offset - inside)",
        "            self.has(offset)",
        "a write that is under way when a sync begins is called durable by the next sync, which syncs nothing",
        SCHEDULES,
    ),
    Mutant(
        "race-file-behind-a-cut", "B20", "store.segments", "SegmentFiles.allocate",
        "if ahead and start != self.end:",
        "if ahead and start < 0:",
        "the file that the keeper makes during a cut leaves a hole, and the node does not start again",
        SCHEDULES,
    ),
)
