"""Ports under TLS, on both loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dledger.config import Tls
from dledger.net.loop import loop_factory

NewLoop = Callable[[], asyncio.AbstractEventLoop]
LOOPS: dict[str, NewLoop] = {"as it runs": loop_factory(), "asyncio's own": asyncio.new_event_loop}


@pytest.fixture(params=LOOPS)
def new_loop(request: pytest.FixtureRequest) -> NewLoop:
    return LOOPS[request.param]


@pytest.fixture
def port(new_loop: NewLoop) -> Iterator[Callable[..., Any]]:
    """Opens ports, and closes them."""
    from tests.net.tls_port import Port

    ports: list[Port] = []

    def open_port(tls: Tls | None, **patience: Any) -> Port:
        ports.append(Port(tls, new_loop, **patience))
        return ports[-1]

    yield open_port
    for each in ports:
        each.close()


@pytest.fixture
def tls(issue: Callable[..., dict[str, str]]) -> Tls:
    """Settings with a certificate for 127.0.0.1, of an authority of their own."""
    from tests.net.tls_port import tls_of

    return tls_of(issue())
