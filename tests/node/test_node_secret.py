"""Members prove the group's secret, to one another and before anything else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dledger.config import NodeConfig
from dledger.errors import ConfigError, StorageError
from dledger.net.secret import Secret, Side, create_secret
from dledger.node.context import CurrentSettings
from dledger.node.maintenance.exposure import AGAIN_MS, Exposure
from dledger.node.monitoring.values import of_node
from dledger.node.peers.membership_secret import with_secret
from dledger.node.peers.secret_enforcement import SECRET_FILE, Enforcement
from dledger.protocol.messages.catalog_commands import EnforceSecret
from dledger.protocol.messages.client import ExecuteRequest, StatusRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloProof, HelloRequest, HelloResponse
from dledger.storage.disk.disk import RealDisk
from dledger.storage.opening import open_settings
from dledger.storage.recovery.open_files import StoreSettings
from dledger.types import NodeId
from tests.node.bodies import heartbeat
from tests.node.conftest import BareClient, Group, Play, marked
from tests.node.trimming import SMALL, awake, equal, trimmed, write
from verification.disk.memory_disk import MemoryDisk, kills

STRANGER = HelloRequest(group="test", node_id="n1", nonce=b"s" * 16)
PEER = HelloRequest(group="test", node_id="n1", nonce=b"p" * 16)


@pytest.fixture
def secret(tmp_path: Path) -> str:
    create_secret(tmp_path / "secret")
    return str(tmp_path / "secret")


@pytest.fixture
def other_secret(tmp_path: Path) -> str:
    create_secret(tmp_path / "other")
    return str(tmp_path / "other")


@pytest.fixture
def secured(
    play: Play, secret: str, request: pytest.FixtureRequest
) -> AbstractAsyncContextManager[Group]:
    """As `group`, but that its members have the secret."""
    return marked(play, request, secret_file=secret)


def key(path: str) -> Secret:
    return Secret(Path(path).read_bytes().strip())


async def visit(
    port: int, hello: HelloRequest, prove: Callable[[HelloResponse], bytes]
) -> HelloResponse:
    """Say hello and prove what is asked for; the node's last word."""
    visitor = await BareClient.dial(port)
    answer = await visitor.ask(hello)
    assert answer.proof_wanted
    last: HelloResponse = await visitor.ask(HelloProof(proof=prove(answer)))
    if last.code is not Code.SUCCESS:
        await asyncio.wait_for(visitor.closed.wait(), 20)
    visitor.close()
    return last


def required(group: Any) -> set[bool]:
    """Whether the nodes ask members for proofs."""
    return {node.parts.gate.status()["required"] for node in group.nodes.values()}


async def test_members_with_one_secret_are_a_group(secured: Any) -> None:
    client = await secured.client()
    await client.create("t")
    await secured.agree()
    for node in secured.nodes.values():
        assert node.parts.gate.status() == {"has": True, "required": True, "unproved": []}


async def test_a_stranger_who_says_that_he_is_a_member_moves_no_term(
    secured: Any, other_secret: str
) -> None:
    node = secured.nodes["n0"]
    await secured.client()
    terms = [n.raft.term for n in secured.nodes.values()]
    silent = await BareClient.dial(node.port)
    assert (await silent.ask(STRANGER)).proof_wanted
    silent.connection.send(heartbeat(500))  # and no proof
    await asyncio.wait_for(silent.closed.wait(), 20)
    wrong = key(other_secret)
    proofs: dict[str, Callable[[HelloResponse], bytes]] = {
        "none": lambda answer: b"",
        "of another secret": lambda answer: wrong.proof(Side.OPENS, STRANGER, answer),
        "the node's own": lambda answer: answer.proof,
        "zeros": lambda answer: bytes(32),
    }
    for what, prove in proofs.items():
        last = await visit(node.port, STRANGER, prove)
        assert last.code is Code.ACCESS_DENIED, what
    assert [n.raft.term for n in secured.nodes.values()] == terms


async def test_a_proof_of_a_client_or_for_another_connection_makes_no_member(
    secured: Any, secret: str
) -> None:
    good = key(secret)
    port = secured.nodes["n0"].port
    seen: list[bytes] = []

    def sound(answer: HelloResponse) -> bytes:
        seen.append(good.proof(Side.OPENS, PEER, answer))
        return seen[-1]

    as_client = HelloRequest(group="test", nonce=PEER.nonce)
    assert (await visit(port, PEER, sound)).code is Code.SUCCESS
    for prove in (
        lambda answer: seen[0],
        lambda answer: good.proof(Side.OPENS, as_client, answer),
    ):
        assert (await visit(port, PEER, prove)).code is Code.ACCESS_DENIED


async def test_a_node_proves_the_secret_before_a_member_does(secured: Any, secret: str) -> None:
    port = secured.nodes["n0"].port
    answer = await (await BareClient.dial(port)).ask(PEER)
    assert key(secret).is_proof(answer.proof, Side.ACCEPTS, PEER, answer)
    assert answer.nonce != (await (await BareClient.dial(port)).ask(PEER)).nonce


async def test_clients_prove_only_where_they_are_asked_to(
    play: Callable[..., Any], secret: str
) -> None:
    hello, good = HelloRequest(nonce=b"c" * 16), key(secret)
    for proving in (False, True):
        async with play(1, secret_file=secret, clients_prove=proving) as group:
            node = group.nodes["n0"]
            client = await BareClient.dial(node.port)
            answer = await client.ask(HelloRequest())
            assert answer.proof_wanted is proving
            if proving:
                client.connection.send(StatusRequest(), 2)
                await asyncio.wait_for(client.closed.wait(), 20)
                for code, prove in (
                    (Code.SUCCESS, lambda answer: good.proof(Side.OPENS, hello, answer)),
                    (Code.ACCESS_DENIED, lambda answer: b""),
                    (Code.ACCESS_DENIED, lambda answer: bytes(32)),
                ):
                    assert (await visit(node.port, hello, prove)).code is code


async def test_a_group_that_came_before_secrets_gets_one_by_a_rolling_restart(
    group: Any, secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = await group.client()
    await client.create("t")
    for name in ("n0", "n1"):
        await group.restart(name, secret_file=secret)
        await group.client()
    await group.agree()
    with_one = group.nodes["n0"]
    await group.until(lambda: with_one.parts.gate.status()["unproved"] == ["n2"])
    assert "n2 proves no secret and is taken all the same" in caplog.text
    await group.restart("n2", secret_file=secret)
    await group.until(lambda: not with_one.parts.gate.status()["unproved"])
    assert not with_one.parts.gate.status()["required"]
    leader = await group.leader()
    await group.until(lambda: not leader.parts.peers.shut_out())
    assert (await (await group.client()).execute(EnforceSecret())).code is Code.SUCCESS
    await group.agree()
    await group.until(lambda: required(group) == {True})
    await group.stop()
    node = await group.start("n0", secret_file=secret)
    assert (await visit(node.port, STRANGER, lambda answer: b"")).code is Code.ACCESS_DENIED
    with pytest.raises(ConfigError, match="only members that prove its secret"):
        await group.start("n1", secret_file="")
    await group.start("n1", "n2", secret_file=secret)
    assert (await group.client()).connection


async def own_command(group: Any) -> None:
    """Let the leader write the entry, whoever is there; a release before this one did so for
    anybody."""
    leader = await group.leader()
    leader.parts.proposals.execute(None, 0, ExecuteRequest(command=EnforceSecret()))
    await group.until(lambda: leader.catalog.secret_enforced)


async def test_leader_does_not_shut_out_an_absent_or_unproved_member(
    group: Any, secret: str
) -> None:
    """An unproved member has not proved the secret of the group."""

    async def refusal(group: Any) -> str:
        answer = await (await group.client()).execute(EnforceSecret())
        assert answer.code is Code.ILLEGAL_MEMBER_STATE
        assert not any(node.catalog.secret_enforced for node in group.nodes.values())
        message: str = answer.message
        return message

    await group.client()
    await group.hand_over("n0")
    assert (await refusal(group)).startswith("n0, which leads, has no secret itself")
    for name in ("n1", "n2"):
        await group.restart(name, secret_file=secret)
    await group.hand_over("n1")
    leader = group.nodes["n1"]
    await group.until(lambda: leader.parts.peers.connected() == {"n0": True, "n2": True})
    assert (await refusal(group)).startswith("n0 (proves no secret) would be shut out for ever")
    await group.stop("n0")
    await group.until(lambda: not leader.parts.peers.connected()["n0"])
    assert (await refusal(group)).startswith("n0 (is not reached) would be shut out for ever")
    assert required(group) == {False}
    await group.start("n0", secret_file=secret)
    await group.until(lambda: not leader.parts.peers.shut_out())
    assert (await (await group.client(leader)).execute(EnforceSecret())).code is Code.SUCCESS
    await group.agree()
    assert required(group) == {True}
    await group.stop("n0")
    await group.until(lambda: not leader.parts.peers.connected()["n0"])
    repeat = await (await group.client()).execute(EnforceSecret())
    assert repeat.code is Code.SUCCESS, (
        "who asks again because the answer was lost is told that it is so"
    )


@pytest.mark.group(2)
async def test_each_sign_of_member_without_proof_opposes_enforcing_secret(secured: Any) -> None:
    """It proves nothing where this node has called it, or has come itself and was taken without a
    proof."""
    gate = (await secured.leader()).parts.gate
    other = NodeId("n1" if gate._node.node_id == "n0" else "n0")
    lost = f"{other} (proves no secret) would be shut out for ever"
    assert gate.shut_out({other}, {other}) == ""
    assert gate.shut_out({other}, set()).startswith(lost)
    gate.unproved[other] = "0.1.0"
    assert gate.shut_out({other}, {other}).startswith(lost)


@pytest.mark.group(1)
async def test_node_asks_for_proofs_by_catalog_when_entry_is_not_reapplied(secured: Any) -> None:
    """The record of the directory is gone, and the checkpoint is behind the entry."""
    await own_command(secured)
    index = secured.nodes["n0"].catalog.applied_index
    await secured.stop("n0")
    (secured.folder / "n0" / SECRET_FILE).unlink()
    node = await secured.start("n0")
    assert node.checkpoints.index >= index
    assert node.parts.gate.status()["required"]


@pytest.mark.group(**SMALL)
async def test_member_that_takes_over_leader_state_asks_for_proofs_afterwards(
    group: Any, secret: str
) -> None:
    await write(group, 0, 3)
    await group.agree()
    await group.stop()
    await group.start("n0", "n1", secret_file=secret)
    await own_command(group)
    await write(group, 3, 60)
    await trimmed(group)
    node = await group.start("n2", secret_file=secret)
    assert not node.parts.gate.status()["required"]
    await group.until(lambda: node.store.begin_index > 0)
    await awake(node)
    await equal(group)
    assert node.parts.gate.status()["required"]


@pytest.mark.group(1)
async def test_what_cannot_be_kept_is_not_answered(group: Any, secret: str) -> None:
    """A node that took members without a proof again after its next start would undo what the group
    was told."""
    await group.restart("n0", secret_file=secret)
    node, client = await group.leader(), await group.client()
    slots = node.parts.gate._enforcement._slots
    slots.write_both = lambda payload: (_ for _ in ()).throw(OSError(5, "Input/output error"))
    asked = client.start(ExecuteRequest(command=EnforceSecret()))
    with pytest.raises(StorageError, match="Input/output error"):
        await asyncio.wait_for(node.wait_failed(), 20)
    with pytest.raises(ConnectionError):
        await asked


@pytest.mark.group(start=False)
async def test_a_new_store_asks_for_proofs_before_it_has_heard_from_its_group(
    secured: Any,
) -> None:
    node = await secured.start("n0")
    last = await visit(node.port, STRANGER, lambda answer: b"")
    assert last.code is Code.ACCESS_DENIED
    assert "--secret-file" in last.message


async def test_a_member_with_another_secret_is_refused_by_both_sides(
    secured: Any, other_secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    await secured.client()
    await secured.agree()
    await secured.restart("n2", secret_file=other_secret)
    await secured.until(lambda: "n2 has another secret" in caplog.text)
    await secured.until(lambda: sum(len(refused_by(node)) for node in secured.nodes.values()) == 4)
    assert secured.nodes["n2"].parts.peers.connected() == {"n0": False, "n1": False}
    assert (await (await secured.client()).create("t")) >= 0
    # the status and the metric of each tell it, whichever side has ended the connection
    refused = {name: refused_by(secured.nodes[name]) for name in ("n0", "n1", "n2")}
    assert {name: set(told) for name, told in refused.items()} == {
        "n0": {"n2"}, "n1": {"n2"}, "n2": {"n0", "n1"}
    }  # fmt: skip
    assert all("another secret" in text for told in refused.values() for text in told.values())
    values = of_node(secured.nodes["n2"].parts)
    assert values["dledger_members_refused"] == 2


def refused_by(server: Any) -> dict[str, str]:
    told: dict[str, str] = server.parts.metadata.status_values()["refused_peers"]
    return told


def config(tmp_path: Path, **fields: Any) -> NodeConfig:
    return NodeConfig(node_id=NodeId("n0"), directory=tmp_path / "n0", **fields)


HERE = {NodeId("n0"): "127.0.0.1:7001", NodeId("n1"): "[::1]:7002", NodeId("n2"): "localhost:7003"}
AWAY = {**HERE, NodeId("n2"): "10.1.2.3:7003"}


@pytest.mark.parametrize("came_before", [False, True])
@pytest.mark.parametrize("choose", [None, lambda n: 0, lambda n: n // 2])
def test_crash_leaves_the_rule_about_proofs_old_or_new(
    came_before: bool, choose: Callable[[int], int] | None
) -> None:
    """A store that came before secrets takes members without proofs until its group says otherwise,
    a new one never does, wherever the process is killed, with a power cut or without."""
    root = Path("/disk/n0")
    sizes = {"segment_bytes": 1024, "index_file_bytes": 320, "disk_reserve_bytes": 0}
    settings = StoreSettings(directory=root, node_id=NodeId("n0"), **sizes)

    def stored() -> tuple[MemoryDisk]:
        disk = MemoryDisk()
        if came_before:
            open_settings(settings, disk).close()
        return (disk,)

    for (disk,) in kills(stored, lambda disk: Enforcement(disk, root), least=3):
        disk.reboot(choose is not None, choose)
        assert Enforcement(disk, root).on != came_before

    def ruled() -> tuple[MemoryDisk, Enforcement]:
        (disk,) = stored()
        return disk, Enforcement(disk, root)

    for disk, _ in kills(ruled, lambda _, rule: rule.enforce(), least=3 * came_before):
        disk.reboot(choose is not None, choose)
        assert Enforcement(disk, root)._slots.payload in (b"optional", b"required")
        Enforcement(disk, root).enforce()
        disk.reboot(power=True)
        assert Enforcement(disk, root).on


def test_nodes_on_one_machine_find_the_users_secret(tmp_path: Path, user_directory: Path) -> None:
    assert with_secret(config(tmp_path), HERE).secret_file == str(user_directory / "secret")
    # has no peers
    assert with_secret(config(tmp_path), {NodeId("n0"): "10.1.2.3:1"}).secret_file == ""


def test_the_last_node_of_a_group_still_finds_the_users_secret(
    tmp_path: Path, user_directory: Path
) -> None:
    """Those that are added to it, as behind ``dledger recover``, have to prove it."""
    alone = {NodeId("n0"): HERE[NodeId("n0")]}
    assert with_secret(config(tmp_path), alone).secret_file == ""
    Enforcement(RealDisk(), config(tmp_path).directory)
    assert with_secret(config(tmp_path), alone).secret_file == str(user_directory / "secret")


@pytest.mark.parametrize(("fields", "addresses"), [({}, AWAY), ({"host": "0.0.0.0"}, HERE)])
def test_a_new_node_that_others_can_reach_wants_a_secret_or_certificates(
    tmp_path: Path,
    fields: dict[str, Any],
    addresses: dict[NodeId, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(
        ConfigError, match=r"(10\.1\.2\.3:7003|0\.0\.0\.0) is reached from other .*--secret-file"
    ):
        with_secret(config(tmp_path, **fields), addresses)
    named = config(tmp_path, secret_file="/etc/secret", clients_prove=True, **fields)
    assert with_secret(named, addresses) is named
    (tmp_path / "n0").mkdir()
    (tmp_path / "n0" / "state").touch()  # it was there before secrets were
    assert with_secret(config(tmp_path, **fields), addresses).secret_file == ""
    assert "goes on without a secret, as it did before" in caplog.text


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "node.example"])
@pytest.mark.parametrize("others", [{}, {NodeId("n1"): "10.1.2.3:2"}])
def test_a_new_node_is_told_to_let_in_anybody_or_does_not(
    tmp_path: Path, host: str, others: dict[NodeId, str], issue: Any
) -> None:
    addresses = {NodeId("n0"): "10.1.2.3:1", **others}
    secret: Any = {"host": host, "secret_file": "/etc/secret"}
    said = f"{host} is reached from other machines, and nothing tells clients .*insecure=true"
    with pytest.raises(ConfigError, match=said):
        with_secret(config(tmp_path, **secret), addresses)
    for more in ({"insecure": True}, {"clients_prove": True}, issue()):
        safe = config(tmp_path, **secret, **more)
        assert with_secret(safe, addresses) is safe
    for loopback in ("127.0.0.1", "::1", "localhost"):
        safe = config(tmp_path, **{**secret, "host": loopback})
        assert with_secret(safe, addresses) is safe
    (tmp_path / "n0").mkdir()
    (tmp_path / "n0" / "state").touch()  # it has listened there before
    older = config(tmp_path, **secret)
    assert with_secret(older, addresses) is older


@pytest.mark.parametrize(
    ("settings", "is_told"),
    [
        ({"host": "0.0.0.0"}, True),
        ({"host": "0.0.0.0", "insecure": True}, True),
        ({"host": "127.0.0.1", "insecure": True}, False),
        ({"host": "0.0.0.0", "clients_prove": True, "secret_file": "/etc/secret"}, False),
    ],
)
async def test_an_exposed_node_says_so_at_its_start_and_each_hour(
    play: Play, caplog: pytest.LogCaptureFixture, settings: dict[str, Any], is_told: bool
) -> None:
    async with play(1) as group:
        context = (await group.leader()).parts.context
        node = replace(context.node, **settings)
        exposure = Exposure(replace(context, current=CurrentSettings(context.group, node)))
        for now_ms in (5, 100, AGAIN_MS, AGAIN_MS + 5, AGAIN_MS + 100):
            exposure.tick(now_ms)
        assert caplog.text.count("whoever connects may read, write and delete") == 2 * is_told


@pytest.mark.parametrize(
    ("settings", "is_told"),
    [
        ({"metrics_port": 0, "metrics_host": "0.0.0.0"}, True),
        ({"metrics_port": 0, "metrics_host": "::1"}, False),
        ({"metrics_host": "0.0.0.0"}, False),
    ],
)
async def test_metrics_that_the_network_may_read_are_told_as_well(
    play: Play, caplog: pytest.LogCaptureFixture, settings: dict[str, Any], is_told: bool
) -> None:
    async with play(1) as group:
        context = (await group.leader()).parts.context
        node = replace(context.node, insecure=True, **settings)
        exposure = Exposure(replace(context, current=CurrentSettings(context.group, node)))
        for now_ms in (5, 100, AGAIN_MS + 5):
            exposure.tick(now_ms)
        assert caplog.text.count("the network may read them") == 2 * is_told
