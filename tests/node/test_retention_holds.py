"""What keeps expired files: members that are behind."""

from __future__ import annotations

from pathlib import Path

from dledger.config import GroupConfig, NodeConfig
from dledger.node.context import CurrentSettings
from dledger.node.maintenance.retention_holds import Laggards
from dledger.storage.api import Held
from dledger.types import Index, NodeId

N1, N2 = NodeId("n1"), NodeId("n2")


def test_a_removed_member_holds_nothing_back_and_the_status_tells(tmp_path: Path) -> None:
    group = GroupConfig(group="g", members=(NodeId("n0"), N1, N2))
    laggards = Laggards(
        CurrentSettings(group, NodeConfig(node_id=NodeId("n0"), directory=tmp_path))
    )
    laggards.look({N1: Index(3), N2: Index(9)})
    laggards.tell(Held(Index(4), 1000, bytes=100, last=Index(9)), Index(0), 50)
    assert laggards.status(60)["members"] == [{"node": "n1", "entry": 4, "for_ms": 10}]
    laggards.look({N2: Index(9)})
    assert laggards.status(70)["members"] == []
