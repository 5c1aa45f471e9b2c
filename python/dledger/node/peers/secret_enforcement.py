"""Whether members must prove the secret, as a node remembers it over restarts.

A node whose store is made by a program that knows secrets asks for proofs from the beginning, so a
stranger cannot talk it out of that before it has heard from its group. Only a store that came
before them is told otherwise: there, members without a secret are taken until the group commits
that they are not (`EnforceSecret`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dledger.storage.disk.disk import Disk
from dledger.storage.meta.hard_state import STATE_FILE
from dledger.storage.meta.slots import SlotFile, create_slots

SECRET_FILE: Final = "secrets"
MAGIC: Final = b"DLse"
_REQUIRED: Final = b"required"
_OPTIONAL: Final = b"optional"


class Enforcement:
    """The record of one node's directory, made before its store. Raises OSError."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._path = directory / SECRET_FILE
        if not disk.exists(self._path):
            came_before = disk.exists(directory / STATE_FILE)
            disk.mkdir(directory)
            create_slots(disk, self._path, MAGIC, _OPTIONAL if came_before else _REQUIRED)
        self._slots = SlotFile(disk.open(self._path), MAGIC)
        self._is_durable = False
        """`enforce` has written the record. One that was there may be a page that was never
        synced."""

    @property
    def on(self) -> bool:
        """Whether a member without a proof is refused; so it is where the record cannot be read."""
        return self._slots.payload != _OPTIONAL

    def enforce(self) -> None:
        """Durable on return. Raises OSError."""
        if not self._is_durable:
            self._slots.write_both(_REQUIRED)
            self._is_durable = True


def is_enforced(disk: Disk, directory: Path) -> bool:
    """Whether the record is there and says so. Raises OSError."""
    return disk.exists(directory / SECRET_FILE) and Enforcement(disk, directory).on
