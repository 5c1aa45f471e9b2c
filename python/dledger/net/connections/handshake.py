"""How a connection begins, seen from the side that opens it: pure, so that blocking and asyncio
programs share it."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from typing import Any, Final

from dledger.config import Credentials
from dledger.environment import REAL, Environment
from dledger.errors import (
    AccessDenied,
    ConfigError,
    DLedgerError,
    Unavailable,
    UnsupportedVersion,
    WrongGroup,
)
from dledger.net.scram import ScramError, client_final, client_first, is_node
from dledger.net.secret import Secret, Side
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.group_version import lacking
from dledger.protocol.messages.hello import (
    PROTOCOL_VERSION,
    HelloProof,
    HelloRequest,
    HelloResponse,
)
from dledger.protocol.messages.membership import Member
from dledger.release import RELEASE
from dledger.types import NO_INDEX, Index

FindSecret = Callable[[HelloResponse], Secret | None]
"""The secret to prove to a node that has answered so, or None."""
_REFUSALS: Final[dict[Code, type[DLedgerError]]] = {
    Code.UNSUPPORTED: ConfigError,
    Code.ACCESS_DENIED: AccessDenied,
    Code.LEADER_PENDING_FULL: Unavailable,
    Code.LEADER_NOT_READY: Unavailable,
}


class LoginRefused(AccessDenied):
    """A node does not take a user, or is none that knows it."""


class Unlisted(WrongGroup):
    """A member of this side's group says that this side is none."""

    def __init__(self, message: str, *, index: Index, members: tuple[Member, ...]) -> None:
        super().__init__(message)
        self.index = index
        """The committed entry that says so."""
        self.members = members
        """The list by that entry; empty for a side that knows no group yet."""


class Greeting:
    """One connection's beginning::

        send greeting.hello
        until greeting.welcome is there: give greeting.answered the answer, and send its result

    Args:
        own: this program's description of itself; release and nonce are added here.
        peer: the node that must be there; empty: any one.
        secret: proved to a node that wants it; that node must prove it first.
        strict: a node that wants no proof, and so gives none, is not taken.
        credentials: of the user that this side is to be for the node, which must prove that it
            knows them.
    """

    def __init__(
        self,
        own: HelloRequest = HelloRequest(),
        *,
        peer: str = "",
        secret: FindSecret | None = None,
        strict: bool = False,
        credentials: Credentials | None = None,
        environment: Environment = REAL,
    ) -> None:
        nonce = bytes.fromhex(environment.unique())
        first = b"" if credentials is None else client_first(credentials, nonce)
        self.hello = replace(own, release=RELEASE, nonce=nonce, authentication=first)
        self.welcome: HelloResponse | None = None
        """The node's description of itself, once it accepts this side."""
        self.proved = False
        """Both sides have proved the secret, as far as this one can know."""
        self._said: HelloResponse | None = None
        self._peer = peer
        self._secret = secret
        self._strict = strict
        self._credentials = credentials

    @property
    def is_slow(self) -> bool:
        """Whether `answered` may take some 40 ms, or up to ten times that: as long as a password's
        work is."""
        return self._credentials is not None

    def answered(self, answer: Any, certified: Set[str] | None = None) -> HelloProof | None:
        """The proof to send next, if any. ``certified``: the nodes that the other side's
        certificate is for, under TLS.

        Raises:
            WrongGroup: it is another group's node, or another node of the group.
            ConfigError: it is of a release that does not understand this one.
            UnsupportedVersion: of two members, one does not support the other's group version.
            Unavailable: it has no place for this connection now.
            Unlisted: this side was removed from the group.
            AccessDenied: it does not take this side, or has not proved the secret.
            LoginRefused: as AccessDenied, of a user.
        """
        if not isinstance(answer, HelloResponse):
            raise WrongGroup("is no node of ours")
        if answer.code is not Code.SUCCESS:
            if self._credentials is not None and answer.code is Code.ACCESS_DENIED:
                raise LoginRefused(answer.message)
            if self._tells_removal(answer, certified):
                raise Unlisted(answer.message, index=answer.removed_by, members=answer.listed)
            raise _REFUSALS.get(answer.code, WrongGroup)(answer.message or answer.code.name)
        if self._said is None:
            self._check(answer, certified)
            self._said = answer
            if self._credentials is not None:
                return self._log_in(self._credentials, answer)
            if answer.proof_wanted:
                return self._prove(answer)
        elif self._credentials is not None and not self.proved:
            if not is_node(self._credentials, self.hello, self._said, answer.proof):
                raise LoginRefused(
                    f"{self._said.node_id} does not know what the password of "
                    f"{self._credentials.name!r} is checked by: it is no node of the group"
                )
            self.proved = True
        if self._strict and not self.proved:
            raise AccessDenied(
                f"{self._said.node_id} has no secret to prove, and this group's members must"
            )
        self.welcome = self._said
        return None

    def _tells_removal(self, answer: HelloResponse, certified: Set[str] | None) -> bool:
        """Whether a refusal is the word of a node of this side's group, which has not this side in
        its list. Whoever has not the secret, or the certificate, has nothing to say."""
        own, secret = self.hello, self._secret(answer) if self._secret is not None else None
        return (
            answer.code is Code.UNKNOWN_MEMBER
            and answer.removed_by != NO_INDEX
            and answer.group == own.group
            and (not own.group_id or answer.group_id == own.group_id)
            and (certified is None or answer.node_id in certified)
            and (secret is None or secret.is_proof(answer.proof, Side.REMOVES, own, answer))
        )

    def _check(self, answer: HelloResponse, certified: Set[str] | None) -> None:
        if self._peer and answer.node_id != self._peer:
            raise WrongGroup(
                f"{answer.node_id} answers where {self._peer} should: is an address wrong?"
            )
        if text := other_group(self.hello, answer):
            raise WrongGroup(text)
        if self.hello.node_id and (text := other_version(self.hello, answer)):
            raise UnsupportedVersion(text)
        if certified is not None and answer.node_id not in certified:
            raise AccessDenied(
                f"it says that it is node {answer.node_id}, and its certificate, which is for "
                f"{', '.join(sorted(certified)) or 'no node'}, has no URI "
                f"dledger://node/{answer.node_id}"
            )

    def _log_in(self, credentials: Credentials, answer: HelloResponse) -> HelloProof:
        if not answer.proof_wanted:
            raise LoginRefused(
                f"{answer.node_id} asks for no password: it is of a release that knows no users"
            )
        try:
            return HelloProof(proof=client_final(credentials, self.hello, answer))
        except ScramError as error:
            raise LoginRefused(f"{answer.node_id}: {error}") from None

    def _prove(self, answer: HelloResponse) -> HelloProof:
        secret = self._secret(answer) if self._secret is not None else None
        if secret is None:
            if not self.hello.node_id:
                raise AccessDenied(
                    f"group {answer.group!r} takes only programs that have its secret. Those of "
                    "the Unix user who owns it find it by themselves; others name its file as "
                    "secret_file (dledger.secret.file in Spark, DLEDGER_SECRET_FILE for commands)"
                )
            # a group that came before secrets takes it, until that is changed
            return HelloProof(proof=b"")
        if not secret.is_proof(answer.proof, Side.ACCEPTS, self.hello, answer):
            raise AccessDenied(
                f"{answer.node_id or 'the node'} has another secret than this program, or none"
            )
        self.proved = True
        return HelloProof(proof=secret.proof(Side.OPENS, self.hello, answer))


def other_group(own: HelloRequest, theirs: HelloRequest | HelloResponse) -> str:
    """Why two programs that give one group's name are not of one group; empty when they may be. A
    list of members is compared where both sides are members. A part that either side does not know
    is no contradiction. A copy of a group is another one for a client of it, which knows offsets:
    they mean nothing there behind the entry up to which both share the log. For nodes it is another
    one as well: no vote and no entry of the one may count in the other."""
    if (
        own.members
        and theirs.members
        and theirs.node_id
        and set(own.members) != set(theirs.members)
    ):
        return (
            f"{theirs.node_id} was told that the group's members are "
            f"{', '.join(sorted(theirs.members))}, {own.node_id or 'this program'} that they are "
            f"{', '.join(sorted(own.members))}: a majority of the one need not meet a majority of "
            "the other. Start all of them with the same list"
        )
    if not own.group_id or not theirs.group_id or own.group_id == theirs.group_id:
        return ""
    if not own.node_id and (copied := dict(theirs.ancestors).get(own.group_id)) is not None:
        return (
            f"{theirs.node_id or 'the node'} belongs to the group {theirs.group_id}, which was "
            f"made from a backup of the group {own.group_id}, or recovered from its last disk, as "
            f"of entry {copied}. Offsets that this program knows need not hold there: open a new "
            "client; a query that is started anew goes on where both groups have its offsets"
        )
    mine, others = ({ancestor for ancestor, _ in one.ancestors} for one in (own, theirs))
    if own.group_id not in others and theirs.group_id not in mine:
        return (
            f"{theirs.node_id or 'the program that connects'} belongs to the group "
            f"{theirs.group_id}, and {own.node_id or 'this program'} to the group {own.group_id}: "
            f"both are called {own.group or theirs.group!r}, but they were founded apart. Is an "
            "address or a directory wrong?"
        )
    if own.node_id and theirs.node_id:
        return (
            f"{theirs.node_id} belongs to the group {theirs.group_id}, and {own.node_id} to the "
            f"group {own.group_id}: one was made from a backup or the last disk of the other, and "
            "no node is of both. Empty the directory of the one that is to join"
        )
    return ""


def other_version(one: HelloRequest, other: HelloRequest | HelloResponse) -> str:
    """Why two members cannot be of one group: the version of which one knows that the group has it
    is none that the other supports. Empty when they can."""
    for knows, supports in ((one, other), (other, one)):
        text = lacking(supports.node_id, supports.release, supports.versions, knows.group_version)
        if text:
            return text
    return ""


def unanswered(tls: bool) -> str:
    """The likely reason of a connection that ends, or stays silent, in place of an answer to the
    hello, and the remedy. ``tls``: this side is under TLS."""
    certificates = (
        "does its tls_ca know this side's certificate?"
        if tls
        else "if it wants TLS, give tls_ca, tls_certificate, tls_key"
    )
    return (
        f"before its first answer: {certificates}; if it is a node of release 0.1.0, which does "
        f"not know what dledger {RELEASE} says first, upgrade all nodes of the group, and then "
        "its clients; else: does its process hang? is it a dledger node?"
    )


def other_protocol(hello: HelloRequest) -> str:
    """The text for a program that speaks another protocol; empty when it speaks this one."""
    if hello.version == PROTOCOL_VERSION:
        return ""
    release = hello.release or ("0.1.0" if hello.version == 1 else "")
    theirs = f"dledger {release}" if release else "another release"
    return (
        f"this node is dledger {RELEASE} and speaks protocol version {PROTOCOL_VERSION}, the "
        f"program that connects is {theirs} and speaks {hello.version}: upgrade the older one"
    )
