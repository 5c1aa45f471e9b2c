"""SCRAM-SHA-256 (RFC 5802, RFC 7677): a user and a node prove to one another that the one knows a
password, and the other one what that is checked by. The password itself is never sent.

It travels within the hello, so its messages are these::

    HelloRequest.authentication    client-first-message   p=dledger-hello,,n=alice,r=...
    HelloResponse.proof            server-first-message   r=...,s=...,i=...
    HelloProof.proof               client-final-message   c=...,r=...,p=...
    HelloResponse.proof            server-final-message   v=...

The nonces are those of the hello and its answer, and the channel binding is the hash of what both
say: an exchange is good for one connection to one node. A token is a user of the exchange with the
extension ``tokenauth=true``, as in Kafka. Pure, but for `make_verifier`'s dice.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dledger.config import Credentials
from dledger.errors import ConfigError
from dledger.net.secret import said
from dledger.protocol.messages.hello import HelloRequest, HelloResponse
from dledger.protocol.messages.user_commands import ITERATIONS, SALT_BYTES, ScramVerifier
from dledger.protocol.wire.msgpack import pack

GS2: Final = "p=dledger-hello,,"
TOKEN: Final = "tokenauth=true"
MOST_BYTES: Final = 1024
"""Of one message."""
NONCE_BYTES: Final = 16


class ScramError(ValueError):
    """The other side's message is none of this exchange."""


# ---- both sides


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("a value is no base64") from None
    if _base64(data) != text:  # bits that say nothing may be others
        raise ScramError("a value is no base64 of its own")
    return data


def _attributes(message: bytes, names: str) -> list[str]:
    """The values of a message that has these attributes in this order and no other."""
    if len(message) > MOST_BYTES:
        raise ScramError(f"a message of {len(message)} bytes")
    try:
        parts = message.decode("ascii").split(",")
    except UnicodeDecodeError:
        raise ScramError("a message that is no text") from None
    if [part[:2] for part in parts] != [f"{name}=" for name in names]:
        raise ScramError(f"a message without the attributes {', '.join(names)}")
    return [part[2:] for part in parts]


def _hmac(key: bytes, text: str | bytes) -> bytes:
    return hmac.digest(key, text.encode() if isinstance(text, str) else text, "sha256")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def binding(hello: HelloRequest, answer: HelloResponse) -> bytes:
    """The channel binding: what both sides have said of themselves, their nonces among it."""
    return hashlib.sha256(pack(said("scram", hello, answer))).digest()


def _nonce(hello: HelloRequest, answer: HelloResponse) -> str:
    return _base64(hello.nonce) + _base64(answer.nonce)


def _without_proof(hello: HelloRequest, answer: HelloResponse) -> str:
    channel = _base64(GS2.encode() + binding(hello, answer))
    return f"c={channel},r={_nonce(hello, answer)}"


def _auth_message(hello: HelloRequest, answer: HelloResponse) -> str:
    bare = hello.authentication.decode().removeprefix(GS2)
    return f"{bare},{answer.proof.decode()},{_without_proof(hello, answer)}"


# ---- passwords

_FORBIDDEN: Final = ("a1", "c12", "c21_c22", "c3", "c4", "c5", "c6", "c7", "c8", "c9")
"""Tables of RFC 3454."""


def prepared(password: str) -> bytes:
    """The bytes of a password, alike on every keyboard: SASLprep (RFC 4013).

    Raises:
        ConfigError: it is empty, or has characters that no password may have.
    """
    import stringprep  # with tables that few programs need
    import unicodedata

    mapped = "".join(
        " " if stringprep.in_table_c12(one) else one
        for one in password
        if not stringprep.in_table_b1(one)
    )
    text = unicodedata.normalize("NFKC", mapped)
    if not text or len(text) > MOST_BYTES:
        raise ConfigError(f"a password has 1 to {MOST_BYTES} characters")
    is_rtl = [stringprep.in_table_d1(one) for one in text]
    is_mixed = any(is_rtl) and (
        any(map(stringprep.in_table_d2, text)) or not (is_rtl[0] and is_rtl[-1])
    )
    forbidden = [getattr(stringprep, f"in_table_{table}") for table in _FORBIDDEN]
    if is_mixed or any(forbids(one) for forbids in forbidden for one in text):
        raise ConfigError(
            "the password has a character that a password may not have, as a control character, "
            "or mixes directions of writing (RFC 4013)"
        )
    return text.encode()


@lru_cache(maxsize=32)
def _salted(password: str, salt: bytes, iterations: int) -> bytes:
    """The slow part, once for each password of a process."""
    return hashlib.pbkdf2_hmac("sha256", prepared(password), salt, iterations)


def make_verifier(password: str, iterations: int, salt: bytes = b"") -> ScramVerifier:
    """What a node checks this password by; without ``salt`` with a new one.

    Raises:
        ConfigError: as `prepared`.
    """
    salt = salt or secrets.token_bytes(SALT_BYTES[0])
    salted = _salted(password, salt, iterations)
    return ScramVerifier(
        salt=salt,
        iterations=iterations,
        stored_key=hashlib.sha256(_hmac(salted, "Client Key")).digest(),
        server_key=_hmac(salted, "Server Key"),
    )


# ---- the client's side


def client_first(credentials: Credentials, nonce: bytes) -> bytes:
    """The client's first message; ``nonce``: the hello's."""
    extension = f",{TOKEN}" if credentials.is_token else ""
    return f"{GS2}n={credentials.name},r={_base64(nonce)}{extension}".encode()


def _asked(hello: HelloRequest, answer: HelloResponse) -> tuple[bytes, int]:
    """The salt and iterations in the node's first message.

    Raises:
        ScramError: it is none, or asks for too little or too much work.
    """
    nonce, salt_text, count = _attributes(answer.proof, "rsi")
    if nonce != _nonce(hello, answer) or len(answer.nonce) < NONCE_BYTES:
        raise ScramError("the node's nonce is not that of its hello")
    salt = _bytes(salt_text)
    if len(salt) not in SALT_BYTES:
        raise ScramError(f"the node's salt has {len(salt)} bytes")
    iterations = int(count) if count.isdecimal() and len(count) < 12 else -1
    if iterations not in ITERATIONS:
        raise ScramError(
            f"the node asks for {count[:20]} iterations, and {ITERATIONS[0]} to "
            f"{ITERATIONS[-1]} are taken"
        )
    return salt, iterations


def client_final(credentials: Credentials, hello: HelloRequest, answer: HelloResponse) -> bytes:
    """The client's proof; raises as `_asked`."""
    key = _hmac(_salted(credentials.secret, *_asked(hello, answer)), "Client Key")
    signature = _hmac(hashlib.sha256(key).digest(), _auth_message(hello, answer))
    proof = _base64(_xor(key, signature))
    return f"{_without_proof(hello, answer)},p={proof}".encode()


def is_node(
    credentials: Credentials, hello: HelloRequest, answer: HelloResponse, last: bytes
) -> bool:
    """Whether the node's last message proves that it knows what the password is checked by.
    ``answer``: its first one."""
    try:
        salted = _salted(credentials.secret, *_asked(hello, answer))
        (found,) = _attributes(last, "v")
        signature = _bytes(found)
    except ScramError:
        return False
    wanted = _hmac(_hmac(salted, "Server Key"), _auth_message(hello, answer))
    return hmac.compare_digest(wanted, signature)


# ---- the node's side


@dataclass(frozen=True, slots=True)
class Claim:
    """Who a client says that it is: a user's name, or a token's id."""

    name: str
    is_token: bool


def claim_of(hello: HelloRequest) -> Claim:
    """The claim in a client's first message.

    Raises:
        ScramError: it is none.
    """
    message = hello.authentication
    if not message.startswith(GS2.encode()):
        raise ScramError(f"a first message that does not begin with {GS2!r}")
    bare = message.removeprefix(GS2.encode())
    is_token = bare.endswith(b"," + TOKEN.encode())
    name, nonce = _attributes(bare.removesuffix(b"," + TOKEN.encode()), "nr")
    if nonce != _base64(hello.nonce) or len(hello.nonce) < NONCE_BYTES:
        raise ScramError("its nonce is not that of the hello")
    return Claim(name, is_token)


def server_first(hello: HelloRequest, nonce: bytes, verifier: ScramVerifier) -> bytes:
    """The node's first message; ``nonce``: that of its answer."""
    both = _base64(hello.nonce) + _base64(nonce)
    return f"r={both},s={_base64(verifier.salt)},i={verifier.iterations}".encode()


def proved_by(
    verifiers: Sequence[ScramVerifier], hello: HelloRequest, answer: HelloResponse, final: bytes
) -> tuple[ScramVerifier, bytes] | None:
    """The verifier that the client's proof passes, and the node's last message; None where none
    does. Times do not tell where a proof differs."""
    try:
        channel, nonce, proof_text = _attributes(final, "crp")
        proof = _bytes(proof_text)
    except ScramError:
        return None
    said_before = f"c={channel},r={nonce}"
    is_this_one = hmac.compare_digest(said_before, _without_proof(hello, answer))
    if not is_this_one or len(proof) != hashlib.sha256().digest_size:
        return None
    message = _auth_message(hello, answer)
    for verifier in verifiers:
        key = _xor(proof, _hmac(verifier.stored_key, message))
        if hmac.compare_digest(hashlib.sha256(key).digest(), verifier.stored_key):
            return verifier, f"v={_base64(_hmac(verifier.server_key, message))}".encode()
    return None
