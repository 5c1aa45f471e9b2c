"""A node whose disk and clock can be tampered with while it runs: ``python -m
verification.chaos.node CONFIG``.

CONFIG is a file of JSON: settings of `GroupConfig` and `NodeConfig` by name, the addresses of the
members, and the paths of the ``panel``, of the ``journal`` of the disk's changes, and of ``kept``,
the directory of files that may come back. All but disk and clock is what ``dledger serve`` runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dledger.config import GroupConfig, NodeConfig, from_settings
from dledger.environment import Environment
from dledger.errors import DLedgerError
from dledger.node.process import run_node
from dledger.types import NodeId
from verification.chaos.panel import Panel
from verification.chaos.power.disk import PoweredDisk
from verification.chaos.power.journal import Journal


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


def main(path: str) -> None:
    """Run the node until SIGTERM, SIGINT or an error."""
    found = json.loads(Path(path).read_text())
    members = tuple(NodeId(name) for name in found["addresses"])
    group = from_settings(GroupConfig, {**found["group"], "members": members})
    node = from_settings(
        NodeConfig, {**found["node"], "directory": Path(found["node"]["directory"])}
    )
    addresses = {NodeId(name): address for name, address in found["addresses"].items()}
    panel = Panel(Path(found["panel"]))
    try:
        disk = PoweredDisk(panel, Journal(Path(found["journal"])), Path(found["kept"]))
        run_node(group, node, lambda: addresses, disk=disk, environment=WrongClock(panel))
    except DLedgerError as error:
        sys.stderr.write(f"dledger: {error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1])
