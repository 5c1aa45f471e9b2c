"""What tests of the watch and of whole groups in virtual time have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dledger.node.node import NodeServer
from verification.invariants.broken import Broken
from verification.sim.cluster import Node


def breaks(invariant: str, call: Callable[..., Any], *args: Any, **more: Any) -> str:
    """The call is found out as breaking that very invariant; what it says."""
    with pytest.raises(Broken) as caught:
        call(*args, **more)
    assert caught.value.invariant == invariant, str(caught.value)
    return caught.value.text


def server_of(node: Node) -> NodeServer:
    assert node.server is not None
    return node.server
