"""How a node's audit log comes into the group's topic: the leader appends the lines that it is
sent. There is no answer: the sender sees in its own catalog what was written."""

from __future__ import annotations

from dledger.protocol.messages.peer import MemberMessage
from dledger.types import slots_dataclass


@slots_dataclass(kw_only=True)
class AuditLines(MemberMessage):
    """Append these, in this order. Without any: see to it that there is the topic, and a session of
    this producer."""

    producer: str
    bodies: tuple[bytes, ...] = ()
    """Each the body of an entry, of one record."""
