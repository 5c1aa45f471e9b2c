"""Operations on the nodes of a group, as generators."""

from __future__ import annotations

from typing import Any

from dledger.client.protocol.client_state import (
    ATTEMPT_MS,
    SERVER_MS,
    ClientState,
    Operation,
    Request,
)
from dledger.client.protocol.operations.requests import execute, metadata
from dledger.client.protocol.results import Lineage
from dledger.client.protocol.routing import CallPolicy
from dledger.config import check_name, check_rack
from dledger.errors import DLedgerError
from dledger.net.address import split_address
from dledger.protocol.messages.catalog_commands import EnforceSecret, UpgradeGroup
from dledger.protocol.messages.client import (
    AdmitRequest,
    MetadataRequest,
    StatusRequest,
    TransferRequest,
)
from dledger.protocol.messages.member_requests import AlterMemberRequest, MemberAction
from dledger.protocol.messages.membership import MemberRole
from dledger.release import FIRST_RELEASES, GROUP_VERSION
from dledger.types import NodeId


def lineage(core: ClientState) -> Operation[Lineage]:
    """Which group it is that this client talks to, and of which ones that is a copy. It never
    becomes another one; asks only when this client has met none yet."""
    if not core.routes.peers:
        yield from metadata(core, MetadataRequest(), "which group it is")
    return core.routes.lineage


def node_status(
    core: ClientState, address: str = ""
) -> Operation[tuple[dict[str, Any], dict[NodeId, str]]]:
    """The description of itself of the node at one address, ``host:port``, or at the first one
    of this client's; and the addresses of all members, as it knows them. No other node is asked,
    and no leader is needed.

    Raises:
        Unavailable: it does not answer.
    """
    address = address or core.routes.addresses()[0]
    policy = CallPolicy(what=f"status of {address}", address=address)
    patience_ms = min(ATTEMPT_MS, core.config.request_timeout_ms)
    said, _ = yield Request(StatusRequest(), policy, (), patience_ms)
    known, _ = yield Request(MetadataRequest(), policy, (), patience_ms)
    members = {NodeId(name): where for name, where in known.peers.items()}
    return {**said.status}, members


def status(core: ClientState) -> Operation[dict[NodeId, dict[str, Any]]]:
    """Each node's description of itself; ``{"error": reason}`` for one that does not answer. Needs
    no leader."""
    answer, _ = yield Request(MetadataRequest(), CallPolicy(what="status", anybody=True))
    core.routes.learned(answer)
    found: dict[NodeId, dict[str, Any]] = {}
    for node_id, address in sorted(core.routes.peers.items()):
        terms = CallPolicy(what=f"status of {node_id}", address=address)
        try:
            said, _ = yield Request(
                StatusRequest(), terms, (), 2000, core.config.connect_timeout_ms
            )
        except DLedgerError as error:
            found[NodeId(node_id)] = {"error": str(error)}
        else:
            found[NodeId(node_id)] = said.status
    return found


def transfer(core: ClientState, node_id: str) -> Operation[None]:
    """Hand leadership to a node.

    Raises:
        Unavailable: it was given up; the former leader leads on.
    """
    check_name("node id", node_id)
    terms = CallPolicy(what=f"transfer leadership to {node_id}", writes=True, repeatable=False)
    request = TransferRequest(to=NodeId(node_id))
    yield Request(request, terms, (), core.config.request_timeout_ms)
    core.routes.leader = core.routes.peers.get(node_id)


def admit(core: ClientState, node_id: str) -> Operation[None]:
    """Let a node that lost its disk, or has an older copy of it, vote and count again. It has to
    run."""
    check_name("node id", node_id)
    terms = CallPolicy(what=f"admit {node_id}", writes=True)
    request = AdmitRequest(node_id=NodeId(node_id), timeout_ms=SERVER_MS)
    yield Request(request, terms, (), core.config.request_timeout_ms)


def add_member(
    core: ClientState,
    node_id: str,
    address: str,
    *,
    observer: bool = False,
    rack: str | None = None,
    replaces: str = "",
) -> Operation[None]:
    """Add a node to the group as a learner, which gets the whole log and does not count before it
    is promoted; nothing is done where it is one already.

    Args:
        address: where it listens, or will, ``host:port``.
        observer: it is no learner, but an observer, which never votes.
        rack: where it stands; readers of the same rack ask it first.
        replaces: the member whose place it is to take, in whose role. It has to run then. The list
            of members remembers this until that one is removed and the new one has its role.

    Raises:
        ConfigError: the change is not possible; the leader says why.
        Unavailable: with ``replaces``, it does not answer at the address.
    """
    host, port = split_address(address)
    role = MemberRole.OBSERVER if observer else MemberRole.LEARNER
    place: dict[str, Any] = {"host": host, "port": port, "role": role}
    if rack is not None:
        place["rack"] = check_rack(rack)
    if replaces:
        place["replaces"] = check_name("node id", replaces)
    yield from _alter(core, MemberAction.ADD, node_id, **place)


def readdress_member(core: ClientState, node_id: str, address: str) -> Operation[None]:
    """A member is reached at another address, ``host:port``, from now on. It has to answer there,
    and to have its disk with it; all nodes and clients learn the address.

    Raises:
        ConfigError: another node answers there, or it has another disk; or there is no such member.
        Unavailable: it does not answer there.
    """
    host, port = split_address(address)
    yield from _alter(core, MemberAction.READDRESS, node_id, host=host, port=port)


def label_member(core: ClientState, node_id: str, *, rack: str | None) -> Operation[None]:
    """A member stands in this rack from now on; None: in none that is known. Readers of the same
    rack ask it first, and learn it within a minute.

    Raises:
        ConfigError: there is no such member, or no rack can have this name.
    """
    name = "" if rack is None else check_rack(rack)
    yield from _alter(core, MemberAction.LABEL, node_id, rack=name)


def promote_member(core: ClientState, node_id: str) -> Operation[None]:
    """Let a learner vote and count, once it has caught up.

    Raises:
        ConfigError: it is none; the leader says so.
        Unavailable: it has not caught up in time.
    """
    yield from _alter(core, MemberAction.PROMOTE, node_id)


def demote_member(core: ClientState, node_id: str) -> Operation[None]:
    """Let a voter be a learner, which does not count.

    Raises:
        ConfigError: fewer than a majority of voters that live would be left.
    """
    yield from _alter(core, MemberAction.DEMOTE, node_id)


def remove_member(core: ClientState, node_id: str) -> Operation[None]:
    """Remove a member: it stops by itself, and never counts again. Nothing is done where there is
    none of this id.

    Raises:
        ConfigError: fewer than a majority of voters that live would be left.
    """
    yield from _alter(core, MemberAction.REMOVE, node_id)


def _alter(core: ClientState, action: MemberAction, node_id: str, **more: Any) -> Operation[None]:
    check_name("node id", node_id)
    terms = CallPolicy(what=f"{action.name.lower()} {node_id}", writes=True)
    request = AlterMemberRequest(
        node_id=NodeId(node_id), action=action, timeout_ms=SERVER_MS, **more
    )
    yield Request(request, terms, (), core.config.request_timeout_ms)


def enforce_secret(_: ClientState) -> Operation[None]:
    """Take no member any more that does not prove the group's secret, for ever.

    Raises:
        DLedgerError: the leader has no secret, does not reach a member, or one has not proved it;
            with the names.
    """
    yield from execute(EnforceSecret(), "enforce the secret")


def upgrade_group(_: ClientState, version: int = GROUP_VERSION) -> Operation[int]:
    """Make a group version active, by default the newest that this release knows; where the group
    has it already, nothing happens. Returns the active one, which never falls again: from then on
    no node of a release without it is taken.

    Raises:
        DLedgerError: a member does not support it, or was not seen since the leader's node started;
            with the names, and what to install.
        ConfigError: there is no such version.
    """
    command = UpgradeGroup(version=version, release=FIRST_RELEASES.get(version, ""))
    what = f"upgrade the group to version {version}"
    result = yield from execute(command, what, since=FIRST_RELEASES[1])
    active: int = result["version"]
    return active
