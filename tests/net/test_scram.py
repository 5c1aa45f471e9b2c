"""SCRAM-SHA-256 within the hello: what both sides take, and what neither does."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.config import Credentials
from dledger.errors import AccessDenied, ConfigError
from dledger.net import scram
from dledger.net.connections.handshake import Greeting, LoginRefused
from dledger.net.scram import (
    Claim,
    ScramError,
    claim_of,
    client_final,
    is_node,
    make_verifier,
    prepared,
    proved_by,
    server_first,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloProof, HelloRequest, HelloResponse
from dledger.protocol.messages.user_commands import ScramVerifier
from dledger.types import NodeId

ALICE = Credentials("alice", "down the rabbit hole")
BOB = Credentials("bob", "down the rabbit hole")
KEY = make_verifier(ALICE.secret, 4096)


def hello_of(credentials: Credentials = ALICE, nonce: bytes = b"c" * 16) -> HelloRequest:
    first = scram.client_first(credentials, nonce)
    return HelloRequest(group="g", nonce=nonce, authentication=first)


def answer_to(
    hello: HelloRequest, verifier: ScramVerifier = KEY, nonce: bytes = b"s" * 16
) -> HelloResponse:
    return HelloResponse(
        code=Code.SUCCESS,
        group="g",
        node_id=NodeId("n0"),
        nonce=nonce,
        proof=server_first(hello, nonce, verifier),
        proof_wanted=True,
    )


def test_keys_and_proof_are_those_of_the_rfcs_example() -> None:
    """RFC 7677, section 3."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    message = (
        "n=user,r=rOprNGfwEbeRWgbNEkqO,"
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    found = make_verifier("pencil", 4096, salt)
    signature = hmac.digest(found.server_key, message.encode(), "sha256")
    assert base64.b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_signature = hmac.digest(found.stored_key, message.encode(), "sha256")
    key = bytes(a ^ b for a, b in zip(proof, client_signature, strict=True))
    assert hashlib.sha256(key).digest() == found.stored_key


def test_both_sides_prove_to_one_another_that_they_know_the_password() -> None:
    hello = hello_of()
    answer = answer_to(hello)
    assert claim_of(hello) == Claim("alice", is_token=False)
    found = proved_by([KEY], hello, answer, client_final(ALICE, hello, answer))
    assert found is not None
    verifier, last = found
    assert verifier is KEY
    assert is_node(ALICE, hello, answer, last)
    assert not is_node(ALICE, hello, answer, last[:-6] + b"AAAAA=")
    assert not is_node(ALICE, hello, answer, b"")
    assert not is_node(ALICE, hello, answer, b"e=other-error")


def test_a_former_password_passes_beside_the_new_one() -> None:
    new = make_verifier("through the looking-glass", KEY.iterations, KEY.salt)
    hello = hello_of()
    answer = answer_to(hello, new)
    found = proved_by([new, KEY], hello, answer, client_final(ALICE, hello, answer))
    assert found is not None
    assert found[0] is KEY
    assert is_node(ALICE, hello, answer, found[1])


def test_a_proof_is_good_for_one_exchange_and_one_user() -> None:
    hello = hello_of()
    answer = answer_to(hello)
    final = client_final(ALICE, hello, answer)
    others: dict[str, tuple[HelloRequest, HelloResponse]] = {
        "another connection": (hello, answer_to(hello, nonce=b"t" * 16)),
        "another nonce of the client": (hello_of(nonce=b"d" * 16), answer),
        "another node": (hello, replace(answer, node_id=NodeId("n1"))),
        "another group of that name": (hello, replace(answer, group_id="other")),
        "another user": (hello_of(BOB), answer),
        "a token": (hello_of(replace(ALICE, is_token=True)), answer),
    }
    for what, (its_hello, its_answer) in others.items():
        assert proved_by([KEY], its_hello, its_answer, final) is None, what
    wrong = client_final(replace(ALICE, secret="up the rabbit hole"), hello, answer)
    assert proved_by([KEY], hello, answer, wrong) is None


def test_a_message_that_is_cut_or_changed_proves_nothing() -> None:
    hello = hello_of()
    answer = answer_to(hello)
    final = client_final(ALICE, hello, answer)
    for at in range(len(final)):
        assert proved_by([KEY], hello, answer, final[:at]) is None
        other = final[:at] + bytes([final[at] ^ 1]) + final[at + 1 :]
        assert proved_by([KEY], hello, answer, other) is None
        first = hello.authentication
        for changed in (first[:at], first[:at] + b"," + first[at:]):
            if changed != first:
                with pytest.raises(ScramError):
                    claim_of(replace(hello, authentication=changed))
    for at in range(len(answer.proof)):
        with pytest.raises(ScramError):
            client_final(ALICE, hello, replace(answer, proof=answer.proof[:at] + b","))


@given(st.binary(max_size=1200))
def test_no_bytes_end_in_another_error(data: bytes) -> None:
    hello = hello_of()
    answer = answer_to(hello)
    assert proved_by([KEY], hello, answer, data) is None
    assert not is_node(ALICE, hello, answer, data)
    assert not is_node(ALICE, hello, replace(answer, proof=data), b"v=")
    for call in (
        lambda: claim_of(replace(hello, authentication=data)),
        lambda: client_final(ALICE, hello, replace(answer, proof=data)),
    ):
        with pytest.raises(ScramError):
            call()


@pytest.mark.parametrize(
    "count", ["1", "4095", "1000001", "1000000000", "-4096", "4_096", "٤٠٩٦", ""]
)
def test_a_node_that_asks_for_too_little_or_too_much_work_is_refused(
    count: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", lambda *args: pytest.fail("it works"))
    hello = hello_of()
    answer = answer_to(hello)
    asked = answer.proof.rpartition(b"i=")[0] + b"i=" + count.encode()
    with pytest.raises(ScramError):
        client_final(ALICE, hello, replace(answer, proof=asked))


def test_nonces_that_are_short_or_of_another_exchange_are_refused() -> None:
    hello = hello_of(nonce=b"")
    with pytest.raises(ScramError, match="nonce"):
        claim_of(hello)
    hello = hello_of()
    with pytest.raises(ScramError, match="nonce"):
        client_final(ALICE, hello, answer_to(hello, nonce=b""))
    with pytest.raises(ScramError, match="nonce"):
        claim_of(replace(hello, nonce=b"d" * 16))


@pytest.mark.parametrize(
    ("typed", "bytes_"),
    [
        ("I\u00adX", b"IX"),
        ("user", b"user"),
        ("\u00aa", b"a"),
        ("\u2168", b"IX"),
        ("a\u00a0b", b"a b"),
        ("pa=ss,word", b"pa=ss,word"),
    ],
)
def test_a_password_is_the_same_on_every_keyboard(typed: str, bytes_: bytes) -> None:
    """The examples of RFC 4013, and one with the marks of SCRAM's messages."""
    assert prepared(typed) == bytes_


@pytest.mark.parametrize("typed", ["", "\u0007", "\u06271", "a\u202eb", "x" * 1025])
def test_a_password_of_improper_characters_is_refused_and_not_shown(typed: str) -> None:
    with pytest.raises(ConfigError) as refused:
        prepared(typed)
    assert not typed or typed not in str(refused.value)


def greeted(greeting: Greeting, **answers: Any) -> HelloProof | None:
    return greeting.answered(answer_to(greeting.hello, **answers))


def test_a_client_goes_on_only_when_the_node_has_proved_itself() -> None:
    greeting = Greeting(HelloRequest(group="g"), credentials=ALICE)
    answer = answer_to(greeting.hello)
    words = greeting.answered(answer)
    assert words is not None
    assert (greeting.welcome, greeting.proved) == (None, False)
    found = proved_by([KEY], greeting.hello, answer, words.proof)
    assert found is not None
    with pytest.raises(LoginRefused, match="no node of the group"):
        greeting.answered(HelloResponse(code=Code.SUCCESS, proof=b"v=AAAA"))
    assert greeting.welcome is None
    greeting.answered(HelloResponse(code=Code.SUCCESS, proof=found[1]))
    assert greeting.welcome is answer
    assert greeting.proved


def test_a_node_that_asks_for_no_password_is_not_taken() -> None:
    greeting = Greeting(HelloRequest(group="g"), credentials=ALICE)
    with pytest.raises(LoginRefused, match="knows no users"):
        greeting.answered(HelloResponse(code=Code.SUCCESS, node_id=NodeId("n0")))
    with pytest.raises(LoginRefused, match="wrong"):
        greeting.answered(HelloResponse(code=Code.ACCESS_DENIED, message="wrong"))
    assert issubclass(LoginRefused, AccessDenied)


def test_no_text_that_is_made_of_credentials_or_keys_shows_them() -> None:
    texts = [repr(ALICE), str(ALICE), f"{[ALICE]}", repr(KEY), repr({"credentials": ALICE})]
    assert not any(ALICE.secret in text for text in texts)
    assert not any(repr(KEY.stored_key) in text or "key" in text for text in texts)
