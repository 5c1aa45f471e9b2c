"""A replicated commit log that Spark sees as a table.

The names below are the public ones; each is loaded when it is first used, so that ``import
dledger`` costs next to nothing and a node process never loads Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger import path_groups
from dledger.lazy import lazy_names
from dledger.release import RELEASE as __version__

if TYPE_CHECKING:
    from dledger.client import Appended, AsyncClient, Client
    from dledger.embedded import EmbeddedGroup, EmbeddedNode, NodeInfo
    from dledger.errors import DLedgerError
    from dledger.types import NodeId, Role

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Appended": "dledger.client",
        "AsyncClient": "dledger.client",
        "Client": "dledger.client",
        "DLedgerError": "dledger.errors",
        "EmbeddedGroup": "dledger.embedded",
        "EmbeddedNode": "dledger.embedded",
        "NodeId": "dledger.types",
        "NodeInfo": "dledger.embedded",
        "Role": "dledger.types",
    },
)


def _group_in(path: str) -> str:
    from dledger.embedded import connect_path

    return connect_path(path)


def _told_by(path: str) -> tuple[str, str]:
    from dledger.embedded.home import told_by

    return told_by(path)


# a client is below what starts groups, and takes a path all the same
path_groups.offer(_group_in, _told_by)

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
