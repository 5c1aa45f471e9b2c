"""Groups of three real nodes, one at a time, by the interpreter of either release, for the client
tests of the other one (``other_nodes.py``). Standard input has a call a line, name and arguments as
JSON; standard output its result."""

from __future__ import annotations

import json
import sys
from typing import Any

from dledger.testing import InProcessGroup

NODES = ("n0", "n1", "n2")


class Host:
    """What can be called."""

    def __init__(self) -> None:
        self.group: InProcessGroup | None = None

    def start(self, name: str, max_body_bytes: int) -> tuple[dict[str, str], str]:
        """In place of the group that there was; the address of each node, and the group's id."""
        self.stop()
        self.group = InProcessGroup(len(NODES), group=name, max_body_bytes=max_body_bytes)
        with self.group.client() as client:
            group_id = client.lineage().group_id
        return {str(node): info.address for node, info in self.group.nodes.items()}, group_id

    def stop(self) -> None:
        if self.group is not None:
            self.group.stop()
        self.group = None

    def leader(self) -> str:
        assert self.group is not None
        return str(self.group.leader)

    def lead(self, node: str) -> None:
        """Let this node lead."""
        assert self.group is not None
        while self.group.leader != node:
            with self.group.client() as client:
                client.transfer(node)

    def values(self, topic: str, partition: int) -> list[str]:
        """All values of a partition, one character a byte."""
        assert self.group is not None
        with self.group.client() as client:
            end = client.end_offsets(topic)[partition]
            batches = client.read(topic, partition, 0, end)
            return [bytes(v).decode("latin-1") for b in batches for v in b["value"].to_pylist()]


def main() -> None:
    host = Host()
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        result: Any = getattr(host, name)(*arguments)
        print(json.dumps(result), flush=True)  # noqa: T201
    host.stop()


if __name__ == "__main__":
    main()
