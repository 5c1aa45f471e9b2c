"""Nodes of a group and of one that was made from it: neither takes the other for a member."""

from __future__ import annotations

from dataclasses import replace

from dledger.net.connections.handshake import other_group
from dledger.protocol.messages.hello import HelloRequest
from dledger.types import Index

OLD = HelloRequest(group="g", node_id="n1", group_id="aaaa")
NEW = HelloRequest(group="g", node_id="n0", group_id="bbbb", ancestors=(("aaaa", Index(7)),))


def test_node_of_the_former_group_is_of_another_one() -> None:
    for one, other in ((OLD, NEW), (NEW, OLD)):
        assert "no node is of both" in other_group(one, other)


def test_client_of_the_former_group_is_told_by_itself() -> None:
    """The node's answer has its id and ancestors, by which the client knows what is not so."""
    client = replace(OLD, node_id="")
    assert other_group(NEW, client) == ""
    assert "as of entry 7" in other_group(client, NEW)
