"""One node over a disk that counts: ``python -m verification.counted.node CONFIG COUNTS``.

CONFIG is the file of `write_config`. All but the disk is what ``dledger serve`` runs. The file
COUNTS has the counts when the node has ended.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dledger.config import GroupConfig, NodeConfig, from_settings
from dledger.errors import DLedgerError
from dledger.node.process import run_node
from dledger.types import NodeId
from verification.counted.disk import CountingDisk


def write_config(
    path: Path, group: Mapping[str, Any], node: Mapping[str, Any], addresses: Mapping[NodeId, str]
) -> None:
    """Write the file that `main` reads: settings of `GroupConfig` and `NodeConfig` by name, and the
    addresses of the members."""
    path.write_text(
        json.dumps({"group": dict(group), "node": dict(node), "addresses": dict(addresses)})
    )


def main(config: str, counts: str) -> None:
    """Run the node until SIGTERM, SIGINT or an error."""
    found = json.loads(Path(config).read_text())
    addresses = {NodeId(name): address for name, address in found["addresses"].items()}
    group = from_settings(GroupConfig, {**found["group"], "members": tuple(addresses)})
    node = from_settings(
        NodeConfig, {**found["node"], "directory": Path(found["node"]["directory"])}
    )
    disk = CountingDisk()
    try:
        run_node(group, node, lambda: addresses, disk=disk)
    except DLedgerError as error:
        sys.stderr.write(f"dledger: {error}\n")
        sys.exit(2)
    Path(counts).write_text(json.dumps(disk.counts))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
