"""Sockets: asyncio connections of frames, a node's port, links between peers, and a plain socket
for blocking use."""

from dledger.net.connections.connection import Connection, connect
from dledger.net.connections.handlers import Handlers
from dledger.net.connections.peer import PeerLink
from dledger.net.limits.patience import Patience
from dledger.net.listener.listener import Listener
from dledger.net.loop import run
from dledger.protocol.wire import FrameLimits

__all__ = [
    "Connection",
    "FrameLimits",
    "Handlers",
    "Listener",
    "Patience",
    "PeerLink",
    "connect",
    "run",
]
