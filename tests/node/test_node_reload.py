"""Certificates and the secret are changed under a running group."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from dledger.client import AsyncClient
from dledger.config import LIVE, GroupConfig, NodeConfig
from dledger.net.reloaded import Reloaded
from dledger.net.secret import create_secret
from dledger.node.handlers.port_sessions import PortSession
from dledger.node.maintenance.reload import DAY_MS, LOOK_MS, Reload
from dledger.node.node import NodeServer
from dledger.protocol.messages.client import StatusRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest
from dledger.storage.api import DiskLevel
from dledger.types import Index, NodeId
from tests.node.bodies import body
from tests.node.conftest import BareClient, Group
from tests.node.elections import QUICK
from tests.node.test_node_identity import context_of
from tests.permit_all import PERMIT_ALL

Issue = Callable[..., dict[str, str]]
ROTATIONS = int(os.environ.get("ROTATIONS", "3"))
KEEP_S = 3600
"""How long a former password is good, and a token, on a machine however slow."""
FEW = 5


def reload_of(node: Any) -> Reload:
    (found,) = [task for task in node.parts.maintenance._tasks if isinstance(task, Reload)]
    return found


class Files:
    """The files of three nodes and a client, of one authority."""

    def __init__(self, issue: Issue, folder: Path) -> None:
        self.issue, self.authority, self.folder = issue, trustme.CA(), folder
        self.own = {name: self._place(name) for name in ("n0", "n1", "n2", "client")}
        self.rotate()

    def _place(self, name: str) -> dict[str, str]:
        directory = self.folder / f"tls-{name}"
        directory.mkdir()
        return {one: str(directory / one) for one in ("tls_ca", "tls_certificate", "tls_key")}

    def rotate(self, **dates: dt.datetime) -> None:
        """A new certificate and key for each, written one after the other in place."""
        for name, files in self.own.items():
            nodes = (name,) if name != "client" else ()
            new = self.issue(authority=self.authority, nodes=nodes, **dates)
            for one, path in files.items():
                shutil.copy(new[one], path)

    def key(self) -> bytes:
        """That of n0."""
        return Path(self.own["n0"]["tls_key"]).read_bytes()

    def put_key(self, key: bytes) -> None:
        Path(self.own["n0"]["tls_key"]).write_bytes(key)


@pytest.fixture
def files(issue: Issue, tmp_path: Path) -> Files:
    return Files(issue, tmp_path)


async def start(group: Group, files: Files) -> None:
    for name in group.config.members:
        await group.start(str(name), **files.own[str(name)])


def serial_of(node: Any) -> str:
    return str(node.parts.gate.certificates.value.own["serialNumber"])


def cut_links(group: Group) -> None:
    for node in group.nodes.values():
        for link in node.parts.peers.links.values():
            if link._connection is not None:
                link._connection.abort()


def cut_clients(group: Group) -> None:
    """They come back, and prove again who they are."""
    for node in group.nodes.values():
        for connection in list(node.parts.router.port_sessions.clients):
            connection.abort()


def write_credentials(file: Path, text: str) -> None:
    draft = file.with_name("draft")
    draft.touch(0o600)
    draft.write_text(text)
    draft.replace(file)


async def renew_links(group: Group) -> None:
    """Each is opened anew, while no other is away: followers that lose their leader together would
    take it for dead."""
    for node in group.nodes.values():
        for link in node.parts.peers.links.values():
            if (connection := link._connection) is not None:
                connection.abort()
                await group.until(
                    lambda link=link, old=connection: link._connection not in (None, old)
                )


def shown_on(connection: Any) -> str:
    """The serial number of the other side's certificate."""
    return str(connection._transport.get_extra_info("peercert")["serialNumber"])


def are_shown(group: Group) -> bool:
    """Whether every member sees the present certificates of the two others."""
    return all(
        {
            shown_on(connection)
            for connection in node.parts.router._listener.connections  # type: ignore[union-attr]
            if isinstance(connection.context, PortSession) and connection.context.peer
        }
        == {serial_of(other) for other in group.nodes.values() if other is not node}
        for node in group.nodes.values()
    )


async def test_clients_and_links_go_on_under_a_new_authority(play: Any, files: Files) -> None:
    async with play(3, start=False) as group:
        await start(group, files)
        await group.agree()
        servers = ",".join(group.addresses.values())
        async with AsyncClient(servers, **files.own["client"]) as client:
            await client.create_topic("t")
            files.authority = trustme.CA()
            files.rotate()
            for node in group.nodes.values():
                node.reload()
                for connection in list(node.parts.router._listener.connections):  # type: ignore[union-attr]
                    connection.abort()
            cut_links(group)
            await group.until(lambda: are_shown(group))
            await client.append("t", ["one"])


async def rotate_certificates(group: Group, files: Files) -> None:
    """Each node has another certificate, and shows it to clients and members from now on."""
    before = {name: serial_of(node) for name, node in group.nodes.items()}
    files.rotate()
    for node in group.nodes.values():
        node.reload()
    assert all(serial_of(node) != before[name] for name, node in group.nodes.items())
    await renew_links(group)
    await group.until(lambda: are_shown(group))
    for node in group.nodes.values():
        client = await BareClient.dial(node.port, tls=context_of(files.own["client"]))
        assert shown_on(client.connection) == serial_of(node)
        client.close()


class Job:
    """A program that appends again and again; ``most``: so many by a client, then by a new one."""

    def __init__(self, servers: str, settings: dict[str, str], most: int) -> None:
        self._servers, self._settings, self._most = servers, settings, most
        self.appended, self.is_over = 0, False

    async def run(self) -> None:
        while not self.is_over:  # each client reads the files that there are
            async with (
                AsyncClient(self._servers, request_timeout_ms=20_000, **self._settings) as client,
                await client.producer("t") as producer,
            ):
                for _ in range(self._most):
                    await (await producer.append(f"{self.appended}"))
                    self.appended += 1
                    if self.is_over:
                        break


async def test_rotations_under_load_fail_no_append_and_elect_nobody(
    play: Any, files: Files
) -> None:
    """Of certificates, of a user's password and of its tokens at once; `make rotations` has a
    hundred of them."""
    async with play(3, start=False, story_s=60 + 10 * ROTATIONS) as group:
        await start(group, files)
        leader = await group.leader()
        await group.agree()
        term, servers = leader.raft.term, ",".join(group.addresses.values())
        async with AsyncClient(servers, **files.own["client"]) as admin:
            await admin.create_topic("t")
            await admin.add_acls(PERMIT_ALL)
            await admin.add_user("alice", "password -1")
            by_password, by_token = (files.folder / name for name in ("password", "token"))
            write_credentials(by_password, "user=alice\npassword=password -1")
            write_credentials(by_token, await admin.issue_token("alice", KEEP_S))
            users = [
                {"tls_ca": files.own["client"]["tls_ca"], "credentials": str(file)}
                for file in (by_password, by_token)
            ]
            jobs = [Job(servers, files.own["client"], FEW)]
            jobs += [Job(servers, user, most) for user in users for most in (FEW, sys.maxsize)]
            async with asyncio.TaskGroup() as tasks:
                for job in jobs:
                    tasks.create_task(job.run())
                for number in range(ROTATIONS):
                    word = f"password {number}"
                    await admin.rotate_user("alice", word, KEEP_S)
                    await rotate_certificates(group, files)
                    write_credentials(by_password, f"user=alice\npassword={word}")
                    write_credentials(by_token, await admin.issue_token("alice", KEEP_S))
                    cut_clients(group)
                    former = {job: job.appended for job in jobs}
                    await group.until(
                        lambda former=former: all(
                            job.appended > many for job, many in former.items()
                        )
                    )
                    (alice,) = await admin.users()
                    for token in alice.tokens[:-1]:
                        await admin.revoke_token(token.token_id)
                for job in jobs:
                    job.is_over = True
            assert {node.raft.term for node in group.nodes.values()} == {term}
            ends = await admin.end_offsets("t")
            assert ends[0] == sum(job.appended for job in jobs)
            assert min(job.appended for job in jobs) >= ROTATIONS


async def test_new_files_are_seen_by_themselves_and_half_a_pair_is_not_taken(
    play: Any, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    async with play(1, start=False) as group:
        await start(group, files)
        node = group.nodes["n0"]
        reload, before = reload_of(node), serial_of(node)
        former = files.key()
        files.rotate()
        new = files.key()
        files.put_key(former)

        def look() -> None:
            reload._due_ms = 0
            reload.tick(LOOK_MS)

        for _ in range(3):
            look()
        assert serial_of(node) == before
        (warning,) = [text for text in caplog.messages if "are not taken" in text]
        assert "tls_key" in warning
        hello = HelloRequest(group="test")
        client = await BareClient.dial(node.port, tls=context_of(files.own["client"]))
        assert (await client.ask(hello)).code is Code.SUCCESS
        await client.ask(StatusRequest())
        with caplog.at_level("INFO"):
            files.put_key(new)
            look()
            look()
        assert serial_of(node) != before
        (told,) = [text for text in caplog.messages if "from now on" in text]
        assert "tls_key" in told
        assert "tls_certificate" in told
        assert "valid from" in told
        answer = await client.ask(StatusRequest())
        assert answer.code is Code.SUCCESS, "open connections stay"
        client.close()


async def test_a_certificate_of_another_node_or_time_is_not_taken(
    play: Any, files: Files, issue: Issue, caplog: pytest.LogCaptureFixture
) -> None:
    async with play(1, start=False) as group:
        await start(group, files)
        node = group.nodes["n0"]
        before = serial_of(node)
        other = issue(authority=files.authority, nodes=("n1",))
        for one, path in files.own["n0"].items():
            shutil.copy(other[one], path)
        node.reload()
        assert "is for node n1, not for node n0" in caplog.text
        files.rotate(not_after=dt.datetime(2020, 1, 1))  # noqa: DTZ001
        node.reload()
        assert "is not valid now: it is valid from" in caplog.text
        assert serial_of(node) == before


async def test_a_certificate_that_ends_soon_is_told_three_times(
    play: Any, files: Files, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with play(1, start=False) as group:
        await start(group, files)
        node = group.nodes["n0"]
        reload = reload_of(node)
        end_ms = node.parts.gate.certificates.value.not_after * 1000
        assert node.parts.metadata.status_values()["certificate_not_after"] * 1000 == end_ms
        for days in (40, 31, 29.9, 20, 6.9, 3, 0.9, 0.5, -1):
            monkeypatch.setattr(
                reload._environment, "wall_ms", lambda days=days: int(end_ms - days * DAY_MS)
            )
            reload._warn_of_end()
        told = [text for text in caplog.messages if "the certificate of n0" in text]
        assert [text.partition(":")[0].removeprefix("the certificate of n0 ") for text in told] == [
            "expires in less than 30 days",
            "expires in less than 7 days",
            "expires in less than 1 days",
        ]


async def test_settings_of_a_file_change_and_the_others_want_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "settings.json"

    def load() -> NodeConfig:
        given = json.loads(file.read_text())
        return NodeConfig(node_id=NodeId("n0"), directory=tmp_path / "n0", **given)

    file.write_text(json.dumps({"disk_warn_ratio": 1.0, "disk_full_ratio": 1.0}))
    settings = Reloaded([str(file)], load)
    small = GroupConfig(segment_bytes=4 << 20, index_file_bytes=32 << 10, max_body_bytes=1 << 20)
    node = NodeServer(small, settings.value, addresses=dict, settings=settings)
    told: list[str] = []
    node.on_settings = lambda config: told.append(config.log_level)
    await node.start()
    try:
        new = {
            "disk_warn_ratio": 0.001,
            "disk_full_ratio": 1.0,
            "log_level": "debug",
            "max_connections_per_address": 2,
            "retention_ms": 5,
            "member_retention_bytes": 7,
            "flush": "async",
        }
        file.write_text(json.dumps(new))
        with caplog.at_level("INFO"):
            node.reload()
        assert told == ["debug"]
        assert "log_level is 'debug', was 'info'" in caplog.text
        assert "n0 has to be restarted for its new flush" in caplog.text
        now = node.parts.context.node
        assert (now.retention_ms, now.flush, node.node.log_level) == (5, "sync", "debug")
        assert node.store.disk_level() is DiskLevel.WARN
        clients = [await BareClient.dial(node.port) for _ in range(3)]
        codes = [(await client.ask(HelloRequest())).code for client in clients[:2]]
        assert codes == [Code.SUCCESS] * 2
        assert node.parts.router._listener.places.patience.max_per_address == 2  # type: ignore[union-attr]
        held = node.parts.retention.laggards
        assert held.look({NodeId("n1"): Index(3)}).max_bytes == 7  # type: ignore[union-attr]
        file.write_text(json.dumps({**new, "disk_warn_ratio": 5}))
        node.reload()
        assert "the former ones stay in use" in caplog.text
        assert node.parts.context.node is now
        for client in clients:
            client.close()
    finally:
        await node.stop()


def test_settings_that_change_at_run_time_are_those_of_a_node() -> None:
    assert set(LIVE) <= set(NodeConfig.__dataclass_fields__)
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    listed = page.partition("Settings that change while a node runs:")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == set(LIVE)


async def test_a_new_secret_is_used_by_connections_that_come_later(
    play: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_secret(tmp_path / "secret")
    async with play(3, secret_file=str(tmp_path / "secret"), **QUICK) as group:
        leader = await group.leader()
        await group.agree()
        term = leader.raft.term
        (tmp_path / "secret").unlink()
        leader.reload()
        assert "the former ones stay in use" in caplog.text
        create_secret(tmp_path / "secret")
        with caplog.at_level("INFO"):
            for node in group.nodes.values():
                node.reload()
        assert caplog.text.count("uses the secret in") == 3
        cut_links(group)
        await group.until(
            lambda: all(all(n.parts.peers.connected().values()) for n in group.nodes.values())
        )
        client, topic = await group.topic()
        assert (await client.append(body(topic, b"one"))).code is Code.SUCCESS
        assert (await group.leader()).raft.term == term
