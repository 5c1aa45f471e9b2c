"""What the members of the group send one another, handed to the parts that it is for."""

from __future__ import annotations

from typing import Any, Final

from dledger.errors import ProtocolError
from dledger.node.handlers.audit_topic import AuditTopic
from dledger.node.loop.ready_loop import ReadyLoop
from dledger.node.repair.repairs import Repairs
from dledger.node.snapshot.receiver import SnapshotReceiver
from dledger.protocol.messages.audit import AuditLines
from dledger.protocol.messages.peer import PeerMessage
from dledger.protocol.messages.repair import RepairRequest, RepairResponse
from dledger.protocol.messages.snapshot import SnapshotRequest, SnapshotResponse
from dledger.types import NodeId

PEER_MESSAGES: Final[frozenset[type[Any]]] = frozenset(PeerMessage.__args__)


class PeerMessages:
    """The parts of a node that other members talk to."""

    def __init__(
        self,
        ready_loop: ReadyLoop,
        *,
        repairs: Repairs,
        snapshots: SnapshotReceiver,
        audit: AuditTopic,
    ) -> None:
        self._ready_loop = ready_loop
        self._repairs = repairs
        self._snapshots = snapshots
        self._audit = audit

    def take(self, peer: NodeId, message: Any) -> None:
        """A message of this member's connection.

        Raises:
            ProtocolError: it is none of a member's.
        """
        if type(message) in PEER_MESSAGES:
            self._ready_loop.step(message)
        elif isinstance(message, RepairRequest | RepairResponse):
            self._repairs.on_message(message)
        elif isinstance(message, SnapshotRequest | SnapshotResponse):
            self._snapshots.on_message(message)
        elif isinstance(message, AuditLines):
            self._audit.on_message(message)
        else:
            raise ProtocolError(f"peer {peer} sent {type(message).__name__}")
