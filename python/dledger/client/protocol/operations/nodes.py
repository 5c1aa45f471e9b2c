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
from dledger.config import check_name
from dledger.errors import DLedgerError
from dledger.protocol.messages.catalog_commands import EnforceSecret, UpgradeGroup
from dledger.protocol.messages.client import (
    AdmitRequest,
    MetadataRequest,
    StatusRequest,
    TransferRequest,
)
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
