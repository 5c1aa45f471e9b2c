"""The connecting side of a connection's beginning."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dledger.errors import ConfigError, WrongGroup
from dledger.net.connections.handshake import Greeting, Unlisted, other_protocol
from dledger.net.secret import Secret, Side
from dledger.protocol.messages.client import StatusResponse
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest, HelloResponse
from dledger.protocol.messages.membership import Member, MemberRole
from dledger.release import RELEASE
from dledger.types import Index, NodeId

OWN = HelloRequest(
    group="g", node_id="n1", group_id="id", members=("n0", "n1"), ancestors=(("a", 3),)
)


def test_a_hello_says_all_that_a_program_says_of_itself() -> None:
    hello = Greeting(OWN).hello
    assert hello == replace(OWN, release=RELEASE, nonce=hello.nonce)


def test_no_two_connections_have_one_nonce() -> None:
    drawn = {Greeting(OWN).hello.nonce for _ in range(100)}
    assert len(drawn) == 100
    assert {len(nonce) for nonce in drawn} == {16}


def test_a_node_that_takes_us_is_welcome_and_what_it_said_is_kept() -> None:
    answer = HelloResponse(code=Code.SUCCESS, group="g", node_id=NodeId("n0"), group_id="id")
    greeting = Greeting(OWN, peer="n0")
    assert greeting.answered(answer) is None
    assert greeting.welcome == answer


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (HelloResponse(code=Code.UNKNOWN_GROUP, message="of 'other'"), WrongGroup, "of 'other'"),
        (HelloResponse(code=Code.UNSUPPORTED, message="upgrade"), ConfigError, "upgrade"),
        (HelloResponse(code=Code.UNKNOWN_MEMBER), WrongGroup, "UNKNOWN_MEMBER"),
        (
            HelloResponse(code=Code.SUCCESS, node_id=NodeId("n2")),
            WrongGroup,
            "n2 answers where n0 should",
        ),
        (StatusResponse(code=Code.SUCCESS), WrongGroup, "no node of ours"),
    ],
)
def test_a_refusal_or_another_node_ends_it(
    answer: object, error: type[Exception], said: str
) -> None:
    greeting = Greeting(OWN, peer="n0")
    with pytest.raises(error, match=said):
        greeting.answered(answer)
    assert greeting.welcome is None


@pytest.mark.parametrize(
    ("hello", "theirs"),
    [
        (HelloRequest(version=1), "dledger 0.1.0 and speaks 1"),
        (HelloRequest(version=7, release="9.1.0"), "dledger 9.1.0 and speaks 7"),
        (HelloRequest(version=0), "another release and speaks 0"),
    ],
)
def test_another_protocol_is_named_with_both_releases(hello: HelloRequest, theirs: str) -> None:
    said = other_protocol(hello)
    assert theirs in said
    assert f"this node is dledger {RELEASE}" in said
    assert other_protocol(HelloRequest()) == ""


KEY = Secret(b"s" * 32)
LISTED = (Member(NodeId("n0"), "h", 7001, MemberRole.VOTER, 5),)


def removal(greeting: Greeting, **fields: object) -> HelloResponse:
    """The refusal of a member that has the secret."""
    said: dict[str, object] = {"group": "g", "node_id": NodeId("n0"), "group_id": "id"}
    said |= {"removed_by": Index(7), "listed": LISTED, "nonce": b"n"} | fields
    answer = HelloResponse(code=Code.UNKNOWN_MEMBER, message="is no member", **said)  # type: ignore[arg-type]
    return replace(answer, proof=KEY.proof(Side.REMOVES, greeting.hello, answer))


def test_a_removed_node_is_told_the_list_by_which_it_is_none() -> None:
    greeting = Greeting(OWN, peer="n0", secret=lambda _: KEY)
    with pytest.raises(Unlisted, match="is no member") as caught:
        greeting.answered(removal(greeting))
    assert (caught.value.index, caught.value.members) == (7, LISTED)


def test_who_has_not_proved_the_secret_ends_no_node() -> None:
    greeting = Greeting(OWN, peer="n0", secret=lambda _: KEY)
    true = removal(greeting)
    hello, other = greeting.hello, Secret(b"t" * 32)
    for forged in (
        replace(true, proof=b""),
        replace(true, proof=other.proof(Side.REMOVES, hello, true)),
        replace(true, proof=KEY.proof(Side.ACCEPTS, hello, true)),
        replace(true, listed=()),
        replace(true, removed_by=Index(8)),
        removal(Greeting(OWN, peer="n0")),
    ):
        with pytest.raises(WrongGroup) as caught:
            greeting.answered(forged)
        assert type(caught.value) is WrongGroup


def test_who_shows_no_certificate_of_a_member_ends_no_node() -> None:
    greeting = Greeting(OWN, peer="n0")
    answer = removal(greeting)
    with pytest.raises(WrongGroup) as caught:
        greeting.answered(answer, certified=frozenset({"n1"}))
    assert type(caught.value) is WrongGroup
    with pytest.raises(Unlisted):
        greeting.answered(answer, certified=frozenset({"n0"}))


def test_another_group_removes_nobody() -> None:
    greeting = Greeting(OWN, peer="n0")
    for fields in ({"group_id": "feed"}, {"group": "other"}):
        with pytest.raises(WrongGroup) as caught:
            greeting.answered(removal(greeting, **fields))
        assert type(caught.value) is WrongGroup
