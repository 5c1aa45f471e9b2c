"""A group of nodes beside the program that uses it.

`EmbeddedGroup` and `connect_path` keep a whole group in a directory; `EmbeddedNode` runs one node
of a group whose other nodes run elsewhere. Every node is a detached process of its own, so that it
outlives the short-lived workers in which Spark plans, and a kill of the program does not take the
log with it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dledger.embedded.group import EmbeddedGroup, NodeInfo, connect_path
    from dledger.embedded.node import EmbeddedNode

_HOMES: Final = {
    "EmbeddedGroup": "dledger.embedded.group",
    "EmbeddedNode": "dledger.embedded.node",
    "NodeInfo": "dledger.embedded.group",
    "connect_path": "dledger.embedded.group",
}


def __getattr__(name: str) -> Any:
    # Lazy, because a node process imports this package and needs none of these.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dledger.embedded' has no attribute {name!r}")


__all__ = ["EmbeddedGroup", "EmbeddedNode", "NodeInfo", "connect_path"]
