"""Rules by which everybody may do everything, for tests of something else."""

from __future__ import annotations

from typing import Final

PERMIT_ALL: Final = (
    "allow User:* all topic *",
    "allow User:* all group *",
    "allow User:* all producer *",
    "allow User:* all cluster",
)
