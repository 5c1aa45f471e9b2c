"""Sockets: asyncio connections of frames, a node's port, links between peers, and a plain socket for blocking use."""

from dledger.net.connection import Connection, Handlers, connect
from dledger.net.listener import Listener, Patience, listen
from dledger.net.loop import run
from dledger.net.peer import PeerLink
from dledger.wire import Limits

__all__ = ["Connection", "Handlers", "Limits", "Listener", "Patience", "PeerLink", "connect", "listen", "run"]
