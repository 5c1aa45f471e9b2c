"""The state of a node that is copied: one connection, on which the node keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dledger.client import Client
from dledger.client.blocking.transport import BlockingTransport
from dledger.client.protocol.operations.backups import open_view, read_image, read_log
from dledger.config import nearest
from dledger.errors import ConfigError, CorruptStore, Unavailable
from dledger.node.snapshot.image import MAX_HEAD, ImageHead
from dledger.protocol.messages.backup import OpenBackupResponse
from dledger.protocol.messages.entry import LogEnd
from dledger.protocol.messages.entry_runs import Entries
from dledger.types import NO_TERM, Index, NodeId, Position

READ_BYTES: Final = 4 << 20


class NodeView:
    """See the module. Raises as the operations of `dledger.client.protocol.operations.backups`."""

    def __init__(self, transport: BlockingTransport, node: str, *, address: str) -> None:
        self._transport = transport
        self._address = address
        self.node = node
        self.about: OpenBackupResponse = transport.run(open_view(address))

    @property
    def begin(self) -> LogEnd:
        """The place before the log's first entry."""
        about = self.about
        before = Position(NO_TERM, Index(about.begin_index - 1))
        return LogEnd(before, about.begin_pos, about.begin_chain)

    def entries(self, first: Index, max_bytes: int = READ_BYTES) -> Entries:
        """Some from ``first`` on, at least one."""
        run = self._transport.run
        return run(read_log(self._address, self.about.view, first, max_bytes))

    def image(self, offset: int, size: int) -> bytes:
        """Bytes of the image.

        Raises:
            CorruptStore: it has not so many.
        """
        parts: list[bytes] = []
        while size > 0:
            operation = read_image(self._address, self.about.view, offset, size)
            part = self._transport.run(operation)
            if not part:
                raise CorruptStore(f"the state of {self.node} ends too early")
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    def head(self) -> tuple[ImageHead, int]:
        """The image's head, and where its rows begin."""
        size = int.from_bytes(self.image(0, 4), "big")
        if size > MAX_HEAD:
            raise CorruptStore(f"the head of the state of {self.node} claims {size} bytes")
        head = ImageHead.unpack(self.image(4, size))
        return head, 4 + size + head.snapshot + head.entry


@contextmanager
def open_node(client: Client, node: str = "") -> Iterator[NodeView]:
    """A view at this node; else at the follower that has got furthest, or at the leader where there
    is no other.

    Raises:
        ConfigError: there is no such node.
        Unavailable: it does not answer, or no node does.
    """
    found = client.status()
    states = {str(name): state for name, state in found.items() if "error" not in state}
    if node and node not in found:
        known = [str(name) for name in found]
        raise ConfigError(f"there is no node {node!r}{nearest(node, known)}: {', '.join(known)}")
    if node and node not in states:
        raise Unavailable(f"{node} does not answer: {found[NodeId(node)]['error']}")
    if not states:
        raise Unavailable("no node of the group answers: 'dledger status' says more")
    followers = {n: s for n, s in states.items() if s.get("role") != "LEADER"} or states
    chosen = node or max(
        followers, key=lambda name: (followers[name].get("applied_index", -1), name)
    )
    with client._transport() as transport:
        address = client.core.routes.peers[chosen]
        try:
            yield NodeView(transport, chosen, address=address)
        finally:
            transport.drop(address)  # with it the node lets the view go
