"""Connections of principals to nodes under test, and rules for them."""

from __future__ import annotations

from typing import Any

from dledger.client.protocol.operations.access import parse_rule
from dledger.node.node import NodeServer
from dledger.protocol.messages.catalog_commands import AddAcls, RemoveAcls
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest
from dledger.types import OWNER
from tests.node.conftest import BareClient
from verification.rights.principals import become

ADMIN = "allow User:admin admin cluster"


async def connected(node: NodeServer, principal: str) -> BareClient:
    """A connection whose other side is this principal, as if the handshake had shown that."""
    client = await BareClient.dial(node.port)
    known = set(node.parts.router.port_sessions.clients)
    answer = await client.ask(HelloRequest())
    assert answer.code is Code.SUCCESS, answer
    (own,) = set(node.parts.router.port_sessions.clients) - known
    become(node, own, principal)
    return client


async def rule(node: NodeServer, *texts: str, remove: bool = False, force: bool = False) -> Any:
    """Add rules, or remove them, as the owner."""
    owner = await connected(node, OWNER)
    command = RemoveAcls if remove else AddAcls
    answer = await owner.execute(command(rules=tuple(map(parse_rule, texts)), force=force))
    owner.close()
    assert answer.code is Code.SUCCESS, answer
    return answer
