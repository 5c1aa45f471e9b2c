"""What tests of the watch and of whole groups in virtual time have in common."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import pytest

from dledger.client import AsyncClient
from dledger.node.node import NodeServer
from verification.invariants.broken import Broken
from verification.sim.cluster import Node
from verification.sim.loop import SimLoop
from verification.sim.scene import Scene


def shown(
    capsys: pytest.CaptureFixture[str], campaign: Callable[[io.StringIO], dict[str, Any]]
) -> dict[str, Any]:
    """The result of a campaign that finds nothing; its last line says how much it tried."""
    out = io.StringIO()
    result = campaign(out)
    with capsys.disabled():
        sys.stdout.write(out.getvalue().splitlines()[-1] + "\n")
    assert result["ok"], out.getvalue()
    return result


def breaks(invariant: str, call: Callable[..., Any], *args: Any, **more: Any) -> str:
    """The call is found out as breaking that very invariant; what it says."""
    with pytest.raises(Broken) as caught:
        call(*args, **more)
    assert caught.value.invariant == invariant, str(caught.value)
    return caught.value.text


def with_topic(scene: Scene, name: str = "c0", **settings: Any) -> tuple[AsyncClient, SimLoop]:
    """A client in a process of its own, once there is a topic t."""
    client, loop = scene.client(name, **settings)
    scene.run(loop, lambda: client.create_topic("t"))
    return client, loop


def read(
    scene: Scene, client: AsyncClient, loop: SimLoop, start: int = 0, end: int | None = None
) -> list[bytes]:
    """The values of t/0, from offset ``start`` on."""

    async def reading() -> list[bytes]:
        found = client.read("t", 0, start, end)
        return [value async for batch in found for value in batch.column("value").to_pylist()]

    return scene.run(loop, reading)


def server_of(node: Node) -> NodeServer:
    assert node.server is not None
    return node.server
