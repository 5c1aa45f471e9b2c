"""Clients that are users of the group: their files, and what happens when these change."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from dledger import AsyncClient, Client
from dledger.config import ClientConfig, Credentials
from dledger.config.credentials import parse_credentials, token_id_of, token_text
from dledger.errors import AccessDenied, ConfigError, DLedgerError
from dledger.net.secret import read_credentials
from dledger.testing import InProcessGroup
from tests.permit_all import PERMIT_ALL

PASSWORD = "down the rabbit hole"
NEW = "through the looking-glass"


class World:
    """A group under TLS with the user alice, and her file."""

    def __init__(self, group: InProcessGroup, admin: Client, ca: str, file: Path) -> None:
        self.group, self.admin, self.ca, self.file = group, admin, ca, file
        admin.add_acls(PERMIT_ALL)
        admin.add_user("alice", PASSWORD)
        admin.create_topic("t")
        self.write(f"user=alice\npassword={PASSWORD}")

    def write(self, text: str) -> None:
        draft = self.file.with_name("draft")
        draft.write_text(text)
        draft.chmod(0o600)
        draft.replace(self.file)

    def client(self, **settings: Any) -> Client:
        return self.group.client(tls_ca=self.ca, credentials=str(self.file), **settings)

    def cut(self) -> None:
        """End all connections of clients."""
        for server in self.group._servers.values():
            connections = server.parts.router.port_sessions.clients
            self.group._loop.call_soon_threadsafe(
                lambda connections=connections: [one.abort() for one in list(connections)]
            )


@pytest.fixture
def world(tmp_path: Path, issue: Callable[..., dict[str, str]]) -> Iterator[World]:
    authority = trustme.CA()
    with InProcessGroup(3, **issue(authority=authority)) as group:
        files = issue(authority=authority, nodes=())
        yield World(group, group.client(**files), files["tls_ca"], tmp_path / "credentials")


def test_a_user_appends_and_reads_by_password_and_by_token(world: World) -> None:
    with world.client() as client:
        client.append("t", ["by password"])
    world.write(world.admin.issue_token("alice", 60))
    with world.client() as client:
        client.append("t", ["by token"])
        assert client.end_offsets("t") == {0: 2}
        assert sum(batch.num_rows for batch in client.scan("t")) == 2
    (alice,) = world.admin.users()
    assert (alice.name, len(alice.tokens)) == ("alice", 1)
    assert alice.tokens[0].expires_ms - alice.tokens[0].issued_ms == 60_000


async def test_an_asyncio_user_appends_too(world: World) -> None:
    settings = {"tls_ca": world.ca, "credentials": str(world.file)}
    async with AsyncClient(world.group.bootstrap_servers, **settings) as client:
        await client.append("t", ["one"])
        async with await client.producer("t") as producer:
            await producer.append("two")
        assert len(await client.users()) == 1


@pytest.mark.parametrize("name", ["alice", "bob"])
def test_who_is_wrong_is_told_so_at_once_by_every_call(world: World, name: str) -> None:
    world.write(f"user={name}\npassword={NEW}")
    with world.client() as client:
        for call in (lambda: client.append("t", ["x"]), client.topics, lambda: [*client.scan("t")]):
            with pytest.raises(
                AccessDenied, match="no such user, or this is not its password"
            ) as no:
                call()
            assert NEW not in str(no.value)


def test_a_client_goes_on_with_the_password_that_its_file_has_by_then(world: World) -> None:
    with world.client() as client, client.producer("t") as producer:
        for number in range(20):
            word = f"{NEW} {number}"
            world.admin.rotate_user("alice", word, 60)
            world.cut()
            producer.append(f"before {number}").result()
            world.write(f"user=alice\npassword={word}")
            world.cut()
            producer.append(f"after {number}").result()
        assert client.end_offsets("t") == {0: 40}


def test_a_client_goes_on_with_the_token_that_its_file_has_by_then(world: World) -> None:
    with world.client() as client, client.producer("t") as producer:
        for number in range(20):
            world.write(world.admin.issue_token("alice", 60))
            world.cut()
            producer.append(str(number)).result()
            alice = world.admin.users()[0]
            for token in alice.tokens[:-1]:
                world.admin.revoke_token(token.token_id)
        assert client.end_offsets("t") == {0: 20}


def test_credentials_travel_in_a_pickle_and_in_no_text(world: World) -> None:
    found = pickle.loads(pickle.dumps(read_credentials(world.file)))
    with world.group.client(tls_ca=world.ca, credentials=found) as client:
        client.append("t", ["x"])
        shown = [repr(client.core.config), repr(client.core), str(found), repr(client)]
    assert not any(PASSWORD in text for text in shown)
    with pytest.raises(DLedgerError) as wrong:
        world.admin.add_user("carol", PASSWORD.encode())  # type: ignore[arg-type]
    assert PASSWORD not in str(wrong.value)


def test_credentials_need_tls_and_an_absolute_path() -> None:
    with pytest.raises(ConfigError, match="over TLS alone"):
        ClientConfig(credentials="/etc/alice")
    with pytest.raises(ConfigError, match="credentials 'alice': give an absolute path"):
        ClientConfig(credentials="alice", tls_ca="/ca")
    with pytest.raises(ConfigError, match="tls_ca and tls_key without tls_certificate"):
        ClientConfig(credentials="/etc/alice", tls_ca="/ca", tls_key="/key")
    assert ClientConfig(credentials="/etc/alice", tls_ca="/ca").tls is not None


GOOD = {
    "user=alice\npassword=a b=c#d": Credentials("alice", "a b=c#d"),
    "# hers\n password = x y \n\nuser = alice\n": Credentials("alice", "x y"),
    token_text("0" * 32, "a" * 43) + "\n": Credentials("0" * 32, "a" * 43, is_token=True),
}


@pytest.mark.parametrize("text", GOOD)
def test_a_file_has_a_name_and_password_or_a_token(text: str) -> None:
    assert parse_credentials(text, "f") == GOOD[text]


@pytest.mark.parametrize(
    "text",
    ["", "alice", "user=alice", "password=secret", "user=alice\npassword=", "dledger-1-secret",
     "user=alice\nuser=bob", "user=al ice\npassword=secret",
     "user=a\npassword=secret\nmore=secret"],
)  # fmt: skip
def test_a_file_of_another_form_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_credentials(text, "the-file")
    assert "secret" not in str(refused.value)


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "alice"
    path.write_text(f"user=alice\npassword={PASSWORD}")
    path.chmod(0o640)
    with pytest.raises(ConfigError, match=r"credentials file .*mode 0640.*chmod 600"):
        read_credentials(path)
    path.chmod(0o600)
    assert read_credentials(path).name == "alice"
    path.write_text("#" * 4097 + f"\nuser=alice\npassword={PASSWORD}")
    with pytest.raises(ConfigError, match="more than 4096 bytes"):
        read_credentials(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_credentials(path)
    with pytest.raises(ConfigError, match=r"No such file or directory$"):
        read_credentials(tmp_path / "bob")


def test_a_tokens_id_is_found_in_the_whole_of_it() -> None:
    assert token_id_of(token_text("0" * 32, "a" * 43)) == token_id_of("0" * 32) == "0" * 32
