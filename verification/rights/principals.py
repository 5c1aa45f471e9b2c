"""Connections that are another principal's, as if the handshake had shown that."""

from __future__ import annotations

from dledger.net import Connection
from dledger.node.node import NodeServer
from dledger.types import Principal


def become(node: NodeServer, connection: Connection, principal: str) -> None:
    """The other side of an open connection is this principal from here on."""
    session, quotas = connection.context, node.parts.router.port_sessions._quotas
    quotas.end(connection, session)
    session.principal = Principal(principal)
    quotas.begin(connection, session)
