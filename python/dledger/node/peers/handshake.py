"""The check of a new connection: how a node introduces itself, and which peers and clients it
accepts."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from typing import Any

from dledger.config import GroupConfig, NodeConfig
from dledger.environment import REAL, Environment
from dledger.errors import ConfigError, StorageError
from dledger.net.connections.certificates import node_certificates
from dledger.net.connections.handshake import (
    Greeting,
    other_group,
    other_protocol,
    other_version,
)
from dledger.net.connections.tls import Shown
from dledger.net.reloaded import Reloaded
from dledger.net.scram import ScramError
from dledger.net.secret import Secret, Side, read_secret
from dledger.node.peers.certified import certified, not_shown
from dledger.node.peers.logins import Login, Logins
from dledger.node.peers.members import GroupMembers
from dledger.node.peers.secret_enforcement import Enforcement, is_enforced
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.group_version import SUPPORTED
from dledger.protocol.messages.hello import HelloProof, HelloRequest, HelloResponse
from dledger.protocol.messages.membership import Membership, fingerprint, ids_of
from dledger.release import RELEASE
from dledger.storage.disk.disk import Disk
from dledger.types import OWNER, NodeId, Principal

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Visit:
    """A connection that has said hello and must prove the secret."""

    hello: HelloRequest
    answer: HelloResponse


class Gate:
    """The accepting side of the handshake; `dledger.net.connections.handshake` is the other one.

    Raises:
        ConfigError: the secret's file is not there, or not a secret's.
    """

    def __init__(
        self,
        group: GroupConfig,
        node: NodeConfig,
        *,
        members: GroupMembers,
        disk: Disk,
        environment: Environment = REAL,
    ) -> None:
        self._group = group
        self._node = node
        self._members = members
        self._environment = environment
        self.logins = Logins()
        self.known: Callable[[], Membership] = Membership
        """The node's knowledge of its group."""
        self.versions = SUPPORTED
        self.group_version: Callable[[], int] = int
        """The active one, as far as this node has applied it."""
        self.supporting: dict[NodeId, HelloRequest] = {}
        """The last hello of each member that was taken, with the versions that it supports; of
        this life."""
        self._introduction: tuple[Membership, tuple[bool, int], HelloRequest] | None = None
        self._welcome = HelloResponse(code=Code.SUCCESS)
        """The answer to an accepted hello; made with `_introduction`."""
        self.refused: dict[str, str] = {}
        """Why the last connection of each member, by the name that it gave, was not taken; of this
        life."""
        tls = node.tls
        self.certificates = node_certificates(tls, node.node_id) if tls is not None else None
        """Those of its connections; None: they are plain."""
        self.secrets = Reloaded([node.secret_file], self._read_secret)
        self._enforcement = Enforcement(disk, node.directory) if self._secret is not None else None
        if self._secret is None and node.tls is None and is_enforced(disk, node.directory):
            raise ConfigError(
                f"{node.directory}: this node's group takes only members that prove its secret: "
                f"name it (--secret-file)"
            )
        self.unproved: dict[NodeId, str] = {}
        """Members that were taken without a proof, since the group came before secrets: their
        releases."""

    def _read_secret(self) -> Secret | None:
        return read_secret(self._node.secret_file) if self._node.secret_file else None

    @property
    def _secret(self) -> Secret | None:
        return self.secrets.value

    def accepts(self) -> ssl.SSLContext | None:
        """The context of connections to this node's port; None for plain ones."""
        return None if self.certificates is None else self.certificates.value.accepts

    def connects(self) -> ssl.SSLContext | None:
        """The context of a connection to another node; None for a plain one."""
        return None if self.certificates is None else self.certificates.value.connects

    def introduction(self) -> HelloRequest:
        """This node's description of itself."""
        known, version = self.known(), self.group_version()
        is_listed, made = self._members.is_listed, self._introduction
        if made is None or made[0] is not known or made[1] != (is_listed, version):
            own = HelloRequest(
                group=self._group.group,
                node_id=self._node.node_id,
                # of a list that changes, two members may know different states
                members=() if is_listed else self._members.ids,
                group_id=known.group_id,
                ancestors=known.ancestors,
                release=RELEASE,
                versions=self.versions,
                group_version=version,
            )
            self._introduction = made = known, (is_listed, version), own
            self._welcome = HelloResponse(
                code=Code.SUCCESS,
                group=own.group,
                node_id=NodeId(own.node_id),
                release=RELEASE,
                group_id=own.group_id,
                members=own.members,
                ancestors=own.ancestors,
                versions=own.versions,
                group_version=version,
            )
        return made[2]

    def to_peer(self, peer: NodeId) -> Greeting:
        """How a connection to another node begins."""
        return self._greeting(self.introduction(), peer)

    def as_client(self, peer: NodeId, *, named: bool = True) -> Greeting:
        """How a connection to another node begins that carries a client's requests. There it is
        this node's, if this node has what proves that, and unless it is not to be ``named``."""
        can_prove = named and (self._secret is not None or self._node.tls is not None)
        own = replace(
            self.introduction(), node_id="", as_node=self._node.node_id if can_prove else ""
        )
        return self._greeting(own, peer)

    def other_version(self, answer: HelloResponse) -> str:
        """Why the node that gave this answer cannot be of this group; empty when it can."""
        return other_version(self.introduction(), answer)

    def _greeting(self, own: HelloRequest, peer: NodeId) -> Greeting:
        strict = bool(own.node_id) and self._required
        return Greeting(
            own, peer=peer, secret=self._found, strict=strict, environment=self._environment
        )

    @property
    def _required(self) -> bool:
        return self._enforcement is not None and self._enforcement.on

    def _found(self, answer: HelloResponse) -> Secret | None:
        return self._secret

    def wants_proof(self, hello: HelloRequest) -> bool:
        """Whether the connection that says so has to prove the secret, if it is not refused for
        another reason."""
        if hello.authentication:
            return False
        must = hello.node_id or hello.as_node or self._node.clients_prove
        return self._secret is not None and bool(must)

    def answer(self, hello: HelloRequest, shown: Shown | None = None) -> HelloResponse:
        """The answer to the first frame of a connection. Any other code than SUCCESS ends it, and
        with ``proof_wanted`` it is no session before `proved` says so. ``shown``: by the other
        side, under TLS."""
        code, text = self._judge(hello)
        if code is Code.SUCCESS and (text := not_shown(hello, shown)):
            code = Code.ACCESS_DENIED
        own = self.introduction()
        if code is not Code.SUCCESS and hello.node_id:
            self.refused[hello.node_id] = text
        elif hello.node_id:
            self.refused.pop(hello.node_id, None)
        if hello.version == 1:  # its programs take these four fields and no more
            return HelloResponse(
                code=code, message=text, group=own.group, node_id=NodeId(own.node_id)
            )
        if code is not Code.SUCCESS:
            return self._refusal(hello, replace(self._welcome, code=code, message=text), shown)
        if hello.authentication:
            return self._challenge(hello)
        if self._secret is None or not self.wants_proof(hello):
            return self._welcome
        nonce = bytes.fromhex(self._environment.unique())
        proof = self._secret.proof(Side.ACCEPTS, hello, self._welcome, nonce)
        return replace(self._welcome, nonce=nonce, proof=proof, proof_wanted=True)

    def _refusal(
        self, hello: HelloRequest, refusal: HelloResponse, shown: Shown | None
    ) -> HelloResponse:
        """With the list where the node may have been in it: it is to end."""
        known = self.known()
        is_here = refusal.code is not Code.UNKNOWN_MEMBER or not hello.node_id
        if is_here or hello.node_id in ids_of(known.listed) or not_shown(hello, shown):
            return refusal
        if not was_member(hello, known):
            return refusal
        listed = known.listed if hello.group_id else ()
        refusal = replace(refusal, removed_by=known.index, listed=listed)
        if self._secret is None:
            return refusal
        nonce = bytes.fromhex(self._environment.unique())
        proof = self._secret.proof(Side.REMOVES, hello, refusal, nonce)
        return replace(refusal, nonce=nonce, proof=proof)

    def _challenge(self, hello: HelloRequest) -> HelloResponse:
        nonce = bytes.fromhex(self._environment.unique())
        try:
            first = self.logins.challenge(hello, nonce)
        except ScramError as error:
            return replace(self._welcome, code=Code.ACCESS_DENIED, message=f"no login: {error}")
        return replace(self._welcome, nonce=nonce, proof=first, proof_wanted=True)

    def logged_in(self, visit: Visit, message: HelloProof) -> tuple[HelloResponse, Login | None]:
        """The last word on a connection that says it is a user's, and the login where it is."""
        found = self.logins.check(visit.hello, visit.answer, message.proof)
        if found is not None:
            login, last = found
            return replace(self._last(visit.answer), proof=last), login
        if self.logins.is_current():
            text = "there is no such user, or this is not its password: the same goes for tokens"
            return self._last(visit.answer, text), None
        text = f"{self._node.node_id} does not know yet who the group's users are: ask again"
        return replace(self._last(visit.answer, text), code=Code.LEADER_NOT_READY), None

    def proved(self, visit: Visit, message: HelloProof) -> HelloResponse:
        """The last word on a connection that was asked for its proof of the secret."""
        hello, answer = visit.hello, visit.answer
        assert self._secret is not None
        peer = NodeId(hello.node_id)
        if self._secret.is_proof(message.proof, Side.OPENS, hello, answer):
            self.unproved.pop(peer, None)
            return self._last(answer)
        if message.proof:
            who = hello.node_id or "this client"
            text = f"{who} has another secret than {self._node.node_id}: give both the same file"
            return self._last(answer, text)
        if peer and not self._required:
            if peer not in self.unproved:
                logger.warning(
                    "%s proves no secret and is taken all the same, since this group came before "
                    "secrets: start it "
                    "with the others' --secret-file, then say 'dledger secret enforce'",
                    peer,
                )
            self.unproved[peer] = hello.release
            return self._last(answer)
        text = (
            f"{hello.node_id or 'this client'} has no secret to prove, which this group wants: "
            f"give it the file that {self._node.node_id} has, as secret_file (--secret-file)"
        )
        return self._last(answer, text)

    def principal(self, hello: HelloRequest, shown: Shown | None = None) -> Principal:
        """Who has opened a connection that was taken. ``shown``: by the other side, under TLS."""
        if hello.node_id:
            return Principal(f"Node:{hello.node_id}")
        if hello.authentication:
            return self.logins.principal(hello)
        if hello.as_node and (shown is not None or self._secret is not None):
            return Principal(f"Node:{hello.as_node}")
        if self.wants_proof(hello):
            return OWNER
        return certified(shown)

    def _last(self, answer: HelloResponse, refusal: str = "") -> HelloResponse:
        """The code, and whose word it is; ``answer`` has said the rest."""
        code = Code.ACCESS_DENIED if refusal else Code.SUCCESS
        return HelloResponse(code=code, message=refusal, group=answer.group, node_id=answer.node_id)

    def status(self) -> dict[str, Any]:
        """Whether it has a secret, requires one of members, and which members had none to prove."""
        return {
            "has": self._secret is not None,
            "required": self._required,
            "unproved": sorted(self.unproved),
        }

    def shut_out(self, reached: Set[NodeId], proved: Set[NodeId]) -> str:
        """The reasons against `enforce`, with the names of the members that the group would lose;
        empty when there are none. ``reached``: those that this node has a connection to;
        ``proved``: that have proved the secret on it."""
        own = self._node.node_id
        if self._secret is None:
            return (
                f"{own}, which leads, has no secret itself: start it with the group's --secret-file"
            )
        others = [member for member in self._members.ids if member != own]
        lost = [f"{member} (is not reached)" for member in others if member not in reached]
        lost += [
            f"{member} (proves no secret)"
            for member in others
            if member in reached and (member not in proved or member in self.unproved)
        ]
        if not lost:
            return ""
        return (
            f"{', '.join(lost)} would be shut out for ever: first let it run with the group's "
            f"--secret-file"
        )

    def enforce(self) -> None:
        """The group has said that no member is taken without a proof: so it is here, now and after
        every start.

        Raises:
            StorageError: that cannot be kept.
        """
        try:
            if self._enforcement is not None:
                self._enforcement.enforce()
        except OSError as error:
            raise StorageError(f"{self._node.directory}: {error.strerror}") from None

    def _judge(self, hello: HelloRequest) -> tuple[Code, str]:
        own, members = self._group.group, self._members.reached
        if text := other_protocol(hello):
            return Code.UNSUPPORTED, text
        if hello.group != own and (hello.group or hello.node_id):
            return Code.UNKNOWN_GROUP, f"this node belongs to group {own!r}, not {hello.group!r}"
        if hello.node_id and hello.node_id not in members:
            text = f"{hello.node_id!r} is not a member; members: {', '.join(members)}"
            return Code.UNKNOWN_MEMBER, other_group(self.introduction(), hello) or text
        if hello.as_node and hello.as_node not in members:
            text = f"{hello.as_node!r} is not a member; members: {', '.join(members)}"
            return Code.UNKNOWN_MEMBER, text
        if hello.node_id == self._node.node_id:
            text = (
                f"{hello.node_id} is this node itself: two nodes have one id, or an address "
                f"is wrong"
            )
            return Code.UNEXPECTED_MEMBER, text
        if text := other_group(self.introduction(), hello):
            return Code.UNKNOWN_GROUP, text
        if hello.node_id and (text := other_version(self.introduction(), hello)):
            return Code.UNSUPPORTED, text
        return Code.SUCCESS, ""


def was_member(hello: HelloRequest, known: Membership) -> bool:
    """Whether a node that is not in the group's list may once have been: it knows the group, or has
    lost its disk and was told one of the group's lists."""
    if not known.listed:
        return False
    if hello.group_id:
        return hello.group_id == known.group_id
    lists = {fingerprint(known.members), *known.former}
    return bool(hello.members) and fingerprint(hello.members) in lists
