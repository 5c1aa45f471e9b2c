"""A node whose disk and clock can be tampered with while it runs: ``python -m dledger.testing.chaos.node CONFIG``.

CONFIG is the file of `write_config`. All but disk and clock is what ``dledger serve`` runs.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dledger.config import GroupConfig, NodeConfig, from_settings
from dledger.environment import Environment
from dledger.errors import DLedgerError
from dledger.server.main import run_node
from dledger.store.files import DiskFile, DiskSpace, RealDisk, RealFile
from dledger.testing.chaos.panel import Panel
from dledger.types import Buffer, NodeId


class SickFile(RealFile):
    """A file whose operations fail or take long as its panel says."""

    __slots__ = ("_panel",)

    def __init__(self, path: Path, flags: int, panel: Panel) -> None:
        super().__init__(path, flags, direct=True)
        self._panel = panel

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        if self._panel["write_error"]:
            self._panel.count("write_errors")
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
        super().pwritev(buffers, offset)

    def fdatasync(self) -> None:
        panel = self._panel
        panel.count("syncs")
        if panel["sync_error"]:
            panel.count("sync_errors")
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
        if delay := panel["sync_delay_us"]:
            panel.count("syncs_delayed")
            time.sleep(delay / 1e6)
        super().fdatasync()

    def fallocate(self, size: int) -> None:
        if self._panel["full"]:
            self._panel.count("full_refusals")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        super().fallocate(size)


class SickDisk(RealDisk):
    """The operating system's files, with faults."""

    def __init__(self, panel: Panel) -> None:
        super().__init__(direct=True)
        self._panel = panel

    def open(self, path: Path, create: bool = False) -> DiskFile:
        return SickFile(path, os.O_RDWR | (os.O_CREAT if create else 0), self._panel)

    def statvfs(self, path: Path) -> DiskSpace:
        space = super().statvfs(path)
        return DiskSpace(space.total, 0) if self._panel["full"] else space


class WrongClock(Environment):
    """The machine as it is, but for a wall clock that can be set to anything at any time."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel

    def wall_us(self) -> int:  # type: ignore[override]
        """As the base's; never before 1970."""
        shift_ms = self._panel["wall_shift_ms"]
        if shift_ms:
            self._panel.count("wall_shifted")
        return max(0, Environment.wall_us() + 1000 * shift_ms)


def write_config(
    path: Path, group: Mapping[str, Any], node: Mapping[str, Any], addresses: Mapping[str, str], panel: Path
) -> None:
    """What `main` reads: settings of `GroupConfig` and `NodeConfig` by name, and where the members are reached."""
    path.write_text(json.dumps({
        "group": dict(group), "node": dict(node), "addresses": dict(addresses), "panel": str(panel)
    }))  # fmt: skip


def main(path: str) -> None:
    """Run the node until SIGTERM, SIGINT or an error."""
    found = json.loads(Path(path).read_text())
    members = tuple(NodeId(name) for name in found["addresses"])
    group = from_settings(GroupConfig, {**found["group"], "members": members})
    node = from_settings(NodeConfig, {**found["node"], "directory": Path(found["node"]["directory"])})
    addresses = {NodeId(name): address for name, address in found["addresses"].items()}
    panel = Panel(Path(found["panel"]))
    try:
        run_node(group, node, lambda: addresses, disk=SickDisk(panel), environment=WrongClock(panel))
    except DLedgerError as error:
        sys.stderr.write(f"dledger: {error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1])
