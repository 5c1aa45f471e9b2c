"""A replicated commit log that Spark sees as a table.

The names below are the public ones; each is loaded when it is first used, so that ``import
dledger`` costs next to nothing and a node process never loads Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from dledger import path_groups
from dledger.release import RELEASE as __version__

if TYPE_CHECKING:
    from dledger.client import Appended, AsyncClient, Client
    from dledger.embedded import EmbeddedGroup, EmbeddedNode, NodeInfo
    from dledger.errors import DLedgerError
    from dledger.types import NodeId, Role

_HOMES: Final = {
    "Appended": "dledger.client",
    "AsyncClient": "dledger.client",
    "Client": "dledger.client",
    "DLedgerError": "dledger.errors",
    "EmbeddedGroup": "dledger.embedded",
    "EmbeddedNode": "dledger.embedded",
    "NodeId": "dledger.types",
    "NodeInfo": "dledger.embedded",
    "Role": "dledger.types",
}


def _group_in(path: str) -> str:
    found: str = import_module("dledger.embedded").connect_path(path)
    return found


path_groups.offer(_group_in)  # a client is below what starts groups, and takes a path all the same


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'dledger' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


__all__ = [
    "Appended",
    "AsyncClient",
    "Client",
    "DLedgerError",
    "EmbeddedGroup",
    "EmbeddedNode",
    "NodeId",
    "NodeInfo",
    "Role",
    "__version__",
]
