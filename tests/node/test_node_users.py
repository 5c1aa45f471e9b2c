"""Users at a node's port: who gets in, who does not, and who has to go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trustme

from dledger.client.protocol.operations.access import parse_rule
from dledger.config import Credentials, tls_files
from dledger.net.connections.handshake import Greeting, LoginRefused
from dledger.net.connections.tls import client_context
from dledger.net.scram import client_final, make_verifier
from dledger.node.node import NodeServer
from dledger.node.peers.logins import FORGET_MS, MOST_PAUSE_MS, PAUSE_MS, LoginPauses
from dledger.protocol.messages.catalog_commands import AddAcls
from dledger.protocol.messages.client import Listing, ListRequest, MetadataRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloProof, HelloRequest
from dledger.protocol.messages.user_commands import IssueToken, RemoveUser, SetUser
from tests.node.conftest import BareClient, Group, Play, until
from tests.permit_all import PERMIT_ALL

Issue = Callable[..., dict[str, str]]
ALICE = Credentials("alice", "down the rabbit hole")
TOKEN = Credentials("a1", "a token's secret", is_token=True)
KEY = make_verifier(ALICE.secret, 4096)
ADD = SetUser(name="alice", verifier=KEY, is_new=True, decoy=b"d" * 32)
ISSUE = IssueToken(
    token_id="a1", user="alice", verifier=make_verifier(TOKEN.secret, 4096), lifetime_ms=3_600_000
)


class Town:
    """One node under TLS, a client of it with a certificate, and doors for others."""

    def __init__(self, group: Group, files: dict[str, str], authority: trustme.CA) -> None:
        self.group = group
        self.node: NodeServer = group.nodes["n0"]  # type: ignore[index]
        self.anonymous = self._context(files["tls_ca"])
        self.admin_tls = self._context(**files)
        self.authority = authority

    @staticmethod
    def _context(tls_ca: str, tls_certificate: str = "", tls_key: str = "") -> Any:
        return client_context(tls_files(tls_ca, tls_certificate, tls_key, ca_suffices=True))

    async def dial(self, tls: Any = None) -> BareClient:
        client = await BareClient.dial(self.node.port, tls=tls or self.anonymous)
        self.group.clients.append(client)
        return client

    async def admin(self) -> BareClient:
        client = await self.dial(self.admin_tls)
        assert (await client.ask(HelloRequest())).code is Code.SUCCESS
        return client

    async def log_in(self, credentials: Credentials = ALICE) -> BareClient:
        """A connection of that user's; raises what a client's greeting does."""
        client, greeting = await self.dial(), Greeting(credentials=credentials)
        words: Any = greeting.hello
        while words is not None:
            words = greeting.answered(await client.ask(words))
        return client

    @property
    def logins(self) -> list[str]:
        clients = self.node.parts.router.port_sessions.clients
        return [one.context.principal for one in clients if one.context.login is not None]


@asynccontextmanager
async def town_of(play: Play, issue: Issue, **settings: Any) -> AsyncIterator[Town]:
    authority = trustme.CA()
    async with play(1, **issue(authority=authority), **settings) as group:
        await group.leader()
        town = Town(group, issue(authority=authority, nodes=()), authority)
        admin = await town.admin()
        assert (await admin.execute(ADD)).code is Code.UNEXPECTED_ARGUMENT  # no rule yet
        rules = AddAcls(rules=tuple(map(parse_rule, PERMIT_ALL)))
        assert (await admin.execute(rules)).code is Code.SUCCESS
        assert (await admin.execute(ADD)).code is Code.SUCCESS
        assert (await admin.execute(ISSUE)).code is Code.SUCCESS
        yield town


@pytest.fixture
def town(play: Play, issue: Issue) -> Any:
    return town_of(play, issue)


@pytest.mark.parametrize("credentials", [ALICE, TOKEN])
async def test_a_user_is_the_principal_before_its_first_request(
    town: Any, credentials: Credentials
) -> None:
    client = await town.log_in(credentials)
    assert town.logins == ["User:alice"]
    assert (await client.ask(MetadataRequest())).code is Code.SUCCESS


NOBODY = {
    "a wrong password": replace(ALICE, secret="up the rabbit hole"),
    "an unknown user": replace(ALICE, name="bob"),
    "a token's id as a user": Credentials("a1", TOKEN.secret),
    "a user as a token": replace(ALICE, is_token=True),
    "a wrong token": replace(TOKEN, secret=ALICE.secret),
    "an unknown token": replace(TOKEN, name="a2"),
}


@pytest.mark.parametrize("credentials", NOBODY.values(), ids=NOBODY)
async def test_nobody_else_gets_in_and_all_look_alike(
    town: Any, credentials: Credentials, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(LoginRefused) as refused:
        await town.log_in(credentials)
    assert str(refused.value).startswith("there is no such user, or this is not its password")
    assert town.logins == []
    assert '"event": "authenticate"' in caplog.text
    assert '"refused"' in caplog.text
    assert credentials.secret not in caplog.text


async def challenge(town: Town, credentials: Credentials) -> tuple[BareClient, Any, Any]:
    client, greeting = await town.dial(), Greeting(credentials=credentials)
    return client, greeting.hello, await client.ask(greeting.hello)


async def test_who_is_not_there_is_asked_as_one_who_is(town: Any) -> None:
    asked = [await challenge(town, replace(ALICE, name=name)) for name in ("alice", "bob", "bob")]
    answers = [answer for _, _, answer in asked]
    assert {(one.code, one.message, one.proof_wanted) for one in answers} == {
        (Code.SUCCESS, "", True)
    }
    salts = [one.proof.split(b",")[1] for one in answers]
    assert len(salts[0]) == len(salts[1])
    assert salts[1] == salts[2] != salts[0]


async def test_what_was_said_on_one_connection_opens_no_other_one(town: Any) -> None:
    client, hello, answer = await challenge(town, ALICE)
    proof = HelloProof(proof=client_final(ALICE, hello, answer))
    assert (await client.ask(proof)).code is Code.SUCCESS
    other = await town.dial()
    assert (await other.ask(hello)).proof_wanted
    assert (await other.ask(proof)).code is Code.ACCESS_DENIED
    assert town.logins == ["User:alice"]


async def test_a_proof_for_another_user_or_none_at_all_is_refused(town: Any) -> None:
    admin = await town.admin()
    await admin.execute(replace(ADD, name="bob"))  # of the same password and salt
    client, hello, answer = await challenge(town, replace(ALICE, name="bob"))
    as_alice = replace(hello, authentication=hello.authentication.replace(b"bob", b"alice"))
    for final in (b"", b"c=,r=,p=", bytes(2000), client_final(ALICE, as_alice, answer)):
        client, hello, answer = await challenge(town, replace(ALICE, name="bob"))
        last = await client.ask(HelloProof(proof=final))
        assert last.code is Code.ACCESS_DENIED
        await asyncio.wait_for(client.closed.wait(), 20)
    assert town.logins == []


async def test_first_messages_that_are_none_are_refused_with_the_reason(town: Any) -> None:
    good = Greeting(credentials=ALICE).hello
    for first in (
        b"n,,n=alice,r=abc",
        b"p=tls-exporter,,n=alice,r=",
        bytes(900),
        b"p=dledger-hello,,",
    ):
        client = await town.dial()
        answer = await client.ask(replace(good, authentication=first))
        assert (answer.code, answer.message[:9]) == (Code.ACCESS_DENIED, "no login:")
        await asyncio.wait_for(client.closed.wait(), 20)


async def test_nothing_but_the_proof_is_taken_behind_the_challenge(town: Any) -> None:
    for words in (MetadataRequest(), HelloRequest()):
        client, *_ = await challenge(town, ALICE)
        with pytest.raises(ConnectionError):
            await client.ask(words)
    assert town.logins == []


async def test_who_shows_nothing_is_refused_where_there_are_users(town: Any) -> None:
    client = await town.dial()
    answer = await client.ask(HelloRequest())
    assert answer.code is Code.ACCESS_DENIED
    assert "credentials" in answer.message
    for hello in (HelloRequest(group="test", node_id="n1"), HelloRequest(as_node="n0")):
        answer = await (await town.dial()).ask(hello)
        assert answer.code is not Code.SUCCESS
    named = Greeting(HelloRequest(as_node="n0"), credentials=ALICE).hello
    answer = await (await town.dial()).ask(named)
    assert (answer.code, "a node is no user" in answer.message) == (Code.ACCESS_DENIED, True)


async def test_without_users_a_handshake_without_a_certificate_fails(
    town: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await town.admin()).execute(RemoveUser(name="alice"))
    client = await town.dial()
    with pytest.raises(ConnectionError):
        await client.ask(HelloRequest())
    # while the node may not know of users, it does not say that there are none
    monkeypatch.setattr(town.node.parts.gate.logins, "is_current", lambda: False)
    town.node.parts.router.port_sessions._want_certificates()
    with pytest.raises(Exception, match="n0 does not know yet who the group's users are"):
        await town.log_in()


async def test_users_do_not_log_in_without_tls(play: Play) -> None:
    async with play(1) as group:
        client = await BareClient.dial((await group.leader()).port)
        answer = await client.ask(Greeting(credentials=ALICE).hello)
        assert (answer.code, answer.message) == (
            Code.ACCESS_DENIED,
            "users log in under TLS alone",
        )


CHANGES: dict[str, Any] = {
    "removed": RemoveUser(name="alice"),
    "rotated": SetUser(name="alice", verifier=make_verifier("12345678", 4096), is_new=False),
    "revoked": RemoveUser(token_id="a1"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_connections_of_a_user_end_with_what_opened_them(
    town: Any, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    admin, alice, token = await town.admin(), await town.log_in(), await town.log_in(TOKEN)
    assert (await admin.execute(CHANGES[change])).code is Code.SUCCESS
    gone = {"removed": (alice, token), "rotated": (alice,), "revoked": (token,)}[change]
    stays = [one for one in (alice, token) if one not in gone]
    for client in gone:
        await asyncio.wait_for(client.closed.wait(), 5)
    for client in [admin, *stays]:
        assert (await client.ask(MetadataRequest())).code is Code.SUCCESS
    assert caplog.text.count('"event": "disconnect"') == 1  # others of one kind are counted
    with pytest.raises((LoginRefused, ConnectionError)):  # the latter where no user is left
        await town.log_in(ALICE if alice in gone else TOKEN)


async def test_a_token_ends_by_the_groups_clock(town: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, token = await town.log_in(), await town.log_in(TOKEN)
    logins = town.node.parts.gate.logins
    ends_ms = town.node.catalog.users.tokens["a1"].expires_ms
    monkeypatch.setattr(logins, "now_ms", lambda: ends_ms - 1)
    await town.log_in(TOKEN)
    monkeypatch.setattr(logins, "now_ms", lambda: ends_ms)
    with pytest.raises(LoginRefused):
        await town.log_in(TOKEN)
    await asyncio.wait_for(token.closed.wait(), 5)
    assert (await alice.ask(MetadataRequest())).code is Code.SUCCESS


async def test_a_former_password_is_good_while_it_is_kept(
    town: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = await town.log_in()
    new = make_verifier("12345678", KEY.iterations, KEY.salt)
    rotate = SetUser(name="alice", verifier=new, is_new=False, keep_ms=60_000)
    assert (await (await town.admin()).execute(rotate)).code is Code.SUCCESS
    for password in (ALICE.secret, "12345678"):
        await town.log_in(replace(ALICE, secret=password))
    logins = town.node.parts.gate.logins
    until_ms = town.node.catalog.users.by_name["alice"].former_until_ms
    monkeypatch.setattr(logins, "now_ms", lambda: until_ms)
    await asyncio.wait_for(alice.closed.wait(), 5)
    with pytest.raises(LoginRefused):
        await town.log_in()
    await until(lambda: len(town.logins) == 1)


async def test_a_node_that_is_behind_refuses_nobody_for_good(
    town: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(town.node.parts.gate.logins, "is_current", lambda: False)
    with pytest.raises(Exception, match="ask again") as refused:
        await town.log_in(replace(ALICE, name="bob"))
    assert refused.value.retriable  # type: ignore[attr-defined]
    await town.log_in()


async def test_no_list_shows_what_passwords_are_checked_by(town: Any) -> None:
    admin = await town.admin()
    keys = [KEY.stored_key, KEY.server_key, ISSUE.verifier.stored_key, ISSUE.verifier.server_key]
    for listing in (Listing.USERS, Listing.ENTRIES):
        answer = await admin.ask(ListRequest(listing=listing, name="", start=0, limit=100))
        assert answer.code is Code.SUCCESS
        assert "alice" in str(answer.rows)
        assert not any(str(key)[2:20] in str(answer.rows) for key in keys)


async def test_users_are_there_after_a_restart(play: Play, issue: Issue) -> None:
    async with town_of(play, issue) as town:
        node = await town.group.restart("n0")
        await town.group.leader()
        town.node = node
        await town.log_in()
        await town.log_in(TOKEN)


def test_who_is_wrong_again_and_again_waits_longer_and_others_do_not() -> None:
    pauses, now, waits = LoginPauses(), 0, []
    for _ in range(6):
        waits.append(pauses.wait_ms("mallory", now))
        now += waits[-1]
        pauses.judged("mallory", now, is_right=False)
    assert waits == [0, PAUSE_MS, 2 * PAUSE_MS, 4 * PAUSE_MS, MOST_PAUSE_MS, MOST_PAUSE_MS]
    assert pauses.wait_ms("alice", now) == 0
    together = [pauses.wait_ms("mallory", now) for _ in range(3)]
    assert together == [MOST_PAUSE_MS, 2 * MOST_PAUSE_MS, 3 * MOST_PAUSE_MS]
    assert pauses.wait_ms("mallory", now + FORGET_MS + 10 * MOST_PAUSE_MS) == 0


def test_a_right_proof_ends_the_pauses() -> None:
    pauses = LoginPauses()
    pauses.judged("alice", 0, is_right=False)
    assert pauses.wait_ms("alice", 0) == PAUSE_MS
    pauses.judged("alice", PAUSE_MS, is_right=True)
    assert pauses.wait_ms("alice", PAUSE_MS) == 0


async def test_a_proof_that_has_to_wait_is_looked_at_later_and_alone(
    town: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    pauses = town.node.parts.router.port_sessions._pauses
    monkeypatch.setattr(pauses, "wait_ms", lambda who, now_ms: asked.append(who) or 20)
    await town.log_in()
    assert asked == [("127.0.0.1", b"p=dledger-hello,,n=alice")]
    client, hello, answer = await challenge(town, ALICE)
    client.start(HelloProof(proof=client_final(ALICE, hello, answer)))
    with pytest.raises(ConnectionError):
        await client.ask(MetadataRequest())
    assert town.logins == ["User:alice"]
