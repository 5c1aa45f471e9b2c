"""A group under TLS: nodes replicate, clients and commands come in by their certificates, and
nobody else does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dledger import Client, EmbeddedGroup
from dledger.cli.common import TLS_VARIABLES
from dledger.cli.main import main
from dledger.client import AsyncClient
from dledger.embedded import EmbeddedNode
from dledger.embedded.ports import free_ports
from dledger.errors import ConfigError, Unavailable
from dledger.net.connections.tls import CertificateRefused
from tests.embedded.conftest import SMALL
from tests.embedded.reads import values

pytestmark = pytest.mark.cluster
Issue = Callable[..., dict[str, str]]


@pytest.fixture
def tls(issue: Issue) -> dict[str, str]:
    return issue()


@pytest.fixture
def group(log_path: Path, tls: dict[str, str]) -> Iterator[EmbeddedGroup]:
    with EmbeddedGroup(log_path, **SMALL, **tls) as running:
        yield running


def test_records_are_replicated_and_read_over_a_change_of_leader(
    group: EmbeddedGroup, tls: dict[str, str]
) -> None:
    large = bytes(range(256)) * 8_000
    with Client(group.bootstrap_servers, **tls) as client:
        client.create_topic("orders")
        client.append("orders", [b"one", large])
        first = group.leader
        group.kill(first)
        client.append("orders", b"two")
        assert group.leader != first
        group.restart(first)
        assert {node.role is None for node in group.nodes.values()} == {False}
        with client.producer("orders") as producer:
            producer.append([b"three"])
        assert values(client, "orders") == [b"one", large, b"two", b"three"]


@pytest.mark.usefixtures("new_loop")
async def test_a_client_under_asyncio_comes_in(group: EmbeddedGroup, tls: dict[str, str]) -> None:
    async with AsyncClient(group.bootstrap_servers, **tls) as client:
        await client.create_topic("orders")
        await client.append("orders", [b"one"])
        assert (await client.end_offsets("orders"))[0] == 1


def test_who_has_no_certificate_of_the_group_is_told_and_stays_outside(
    group: EmbeddedGroup, issue: Issue, tls: dict[str, str]
) -> None:
    client = Client(group.bootstrap_servers, request_timeout_ms=500)
    with client, pytest.raises(Unavailable, match="if it wants TLS"):
        client.topics()
    patience: Any = {"request_timeout_ms": 3_600_000}  # which is not waited for
    with Client(group.bootstrap_servers, **patience, **issue()) as client:
        for ask in (client.topics, lambda: client.append("orders", [b"one"])):
            with pytest.raises(
                CertificateRefused, match=r"certificate verify failed.*tls_ca '.*', valid from"
            ):
                ask()
    foreign, refused = (
        {**issue(), "tls_ca": tls["tls_ca"]},
        "the node refuses this side's tls_certificate .*tls_ca",
    )
    client = Client(group.bootstrap_servers, **patience, **foreign)
    with client, pytest.raises(CertificateRefused, match=refused):
        client.topics()

    async def story() -> None:
        async with AsyncClient(group.bootstrap_servers, **patience, **foreign) as client:
            with pytest.raises(CertificateRefused, match=refused):
                await client.topics()

    asyncio.run(story())


def test_commands_take_the_files_from_the_environment(
    group: EmbeddedGroup, tls: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(tls["tls_ca"]).parent)
    for name, path in tls.items():
        monkeypatch.setenv(TLS_VARIABLES[name], Path(path).name)
    result = CliRunner().invoke(main, ["status", "-b", group.bootstrap_servers])
    assert result.exit_code == 0, result.output
    assert "leader" in result.output.lower()


def test_an_embedded_node_finds_its_peers(
    log_path: Path, tls: dict[str, str], until: Callable[..., None]
) -> None:
    """Each of them wants to have led once, and then one leaves it to the other."""
    first, second = free_ports("127.0.0.1", 2, set())
    peers = f"n0-127.0.0.1:{first};n1-127.0.0.1:{second}"
    with (
        EmbeddedNode(log_path, peers, "n0", **SMALL, **tls) as node,
        EmbeddedNode(
            log_path.with_name("other"), peers, "n1", preferred_leaders=["n0"], **SMALL, **tls
        ),
    ):
        until(lambda: node.wait_for_leader() == "n0", "the preferred node to lead")


def test_a_group_whose_files_are_wrong_is_not_founded(log_path: Path, tls: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"tls_ca .*nowhere.pem': No such file"):
        EmbeddedGroup(log_path, replicas=1, **SMALL, **{**tls, "tls_ca": "/nowhere.pem"})
    assert not log_path.exists()


def test_a_group_is_ended_though_its_files_are_gone(
    group: EmbeddedGroup, tls: dict[str, str]
) -> None:
    Path(tls["tls_ca"]).unlink()
    pids = [node.pid for node in group.nodes.values()]
    assert None not in pids
    group.stop()
    assert {node.pid for node in group.nodes.values()} == {None}
