"""How a connection begins: a hello and its answer, and a proof and its answer where the node wants
one.

Programs of different releases must understand these, if only to say which of them is too old. So
their first fields are for ever, fields are added at the end only, and an end that a program does
not know, or that is not there, is taken as it is (`dledger.protocol.wire.fields.OpenTable`).
"""

from __future__ import annotations

from typing import Final

from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.group_version import NO_VERSIONS, Versions
from dledger.protocol.messages.membership import Ancestors, Member
from dledger.types import NO_INDEX, Index, NodeId, slots_dataclass

PROTOCOL_VERSION: Final = 2
"""1 was that of the releases up to 0.1.0, whose hello and its answer end with ``version`` and
``node_id``."""


@slots_dataclass(kw_only=True)
class HelloRequest:
    """The first frame on every connection; nothing else is sent before it is answered."""

    group: str = ""
    """May be empty for a client that takes any group."""
    node_id: str = ""
    """Set by a peer, empty for a client."""
    version: int = PROTOCOL_VERSION
    release: str = ""
    group_id: str = ""
    """The id drawn at the group's founding; empty for one that is not founded, and for a client
    that knows none."""
    members: tuple[str, ...] = ()
    """Of a peer: the ids of the group's nodes, in its opinion."""
    ancestors: Ancestors = ()
    nonce: bytes = b""
    """Drawn for this connection alone; the other side's proof is made over it."""
    takes_notices: bool = False
    """Of a client: it knows what a `ThrottleNotice` is."""
    as_node: str = ""
    """Of a node that asks another one as a client does: its id, which it proves as a peer does."""
    authentication: bytes = b""
    """Of a client that is a user of the group: the first message of SCRAM (`dledger.net.scram`).
    Its later ones take the place of the proofs."""
    versions: Versions = NO_VERSIONS
    """Of a node."""
    group_version: int = 0
    """Of a node: the one that is active, as far as it knows."""


@slots_dataclass(kw_only=True)
class HelloResponse:
    """Whether the node goes on with this connection, and the same of itself. With ``proof_wanted``
    it does not know yet and waits for a `HelloProof`, whose answer, a HelloResponse again, is the
    last word: its first four fields."""

    code: Code
    message: str = ""
    group: str = ""
    node_id: NodeId = NodeId("")
    release: str = ""
    group_id: str = ""
    members: tuple[str, ...] = ()
    ancestors: Ancestors = ()
    nonce: bytes = b""
    proof: bytes = b""
    proof_wanted: bool = False
    versions: Versions = NO_VERSIONS
    group_version: int = 0
    removed_by: Index = NO_INDEX
    """To a node that is none of the group's list: the committed entry that says so, where the node
    may have been one. ``proof``, where there is a secret, is that of `Side.REMOVES` then."""
    listed: tuple[Member, ...] = ()
    """The list by that entry, for a node that knows the group's id."""


@slots_dataclass(kw_only=True)
class HelloProof:
    """The proof that this side has the secret required of its kind. A client whose node has proved
    the secret by then may send its first request right behind; a node that refuses the proof takes
    no frame behind it."""

    proof: bytes


FIRST_FIELDS: Final[dict[type, int]] = {HelloRequest: 3, HelloResponse: 4, HelloProof: 1}
"""How many fields of each are always there."""
