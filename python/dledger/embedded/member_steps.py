"""Steps by which a program changes the members of a path's group. Each is done at once where it is
done already, so that a change which was interrupted is said again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from dledger.catalog.versions import SINCE
from dledger.client import Client
from dledger.client.catching_up import Moved, show_nothing, wait_until_near
from dledger.embedded.groupfile import GroupFile
from dledger.embedded.settings import TLS_SETTINGS
from dledger.errors import ConfigError, DLedgerError, Unavailable
from dledger.protocol.messages.catalog_commands import ChangeMembers
from dledger.types import NodeId

VOTER: Final = "VOTER"
OBSERVER: Final = "OBSERVER"
LOOK_S: Final = 0.1
FOUNDING_S: Final = 3.0
"""After its founding a group gets its version."""
Tell = Callable[[str], object]
MakeClient = Callable[[GroupFile, float], Client]
"""A client for the group that a file names, which gives up after so many seconds."""


def group_client(file: GroupFile, timeout_s: float, **settings: Any) -> Client:
    """One that shows the certificates of the group's nodes, where ``settings`` name no others."""
    tls = {name: file.settings[name] for name in TLS_SETTINGS if file.settings.get(name)}
    chosen: dict[str, Any] = {**tls, **settings, "request_timeout_ms": int(timeout_s * 1000)}
    return Client(file.bootstrap_servers, group=file.group, **chosen)


def say_nothing(_: str) -> None:
    """Of a caller that wants no progress."""


@dataclass(frozen=True, slots=True)
class MembersNow:
    """The members by the leader's word."""

    leader: NodeId
    addresses: Mapping[NodeId, str]
    roles: Mapping[NodeId, str]
    version: int
    """Of the group."""


@dataclass(slots=True)
class MemberSteps:
    """Questions and changes to one group.

    Args:
        client: for the group; of the caller's, who closes it.
        patience_s: how long a learner may get no further.
        tell: a line about the progress.
        moved: the bytes that a learner has got.
    """

    client: Client
    patience_s: float = 15.0
    tell: Tell = field(default=say_nothing)
    moved: Moved = field(default=show_nothing)

    def now(self) -> MembersNow:
        """The members, and who leads them.

        Raises:
            Unavailable: nobody leads, for longer than an election takes.
        """
        deadline = time.monotonic() + self.patience_s
        while True:
            for node, said in self.client.status().items():
                if said.get("role") == "LEADER":
                    return _by_leader(node, said, self.client.core.routes.peers)
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"nobody leads the group at {self.client.bootstrap_servers}: 'dledger status' "
                    "says more"
                )
            time.sleep(LOOK_S)

    def check_version(self) -> None:
        """Raises `ConfigError` for a group whose older members do not know changes of members."""
        needed, deadline = SINCE[ChangeMembers], time.monotonic() + FOUNDING_S
        while (version := self.now().version) < needed:
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"the group has version {version}, and members change from version {needed} "
                    "on: 'dledger upgrade' makes that active"
                )
            time.sleep(LOOK_S)

    def join(self, node: NodeId, address: str, before_vote: Callable[[], object] = bool) -> None:
        """Make a node that runs, or will, a voter; ``before_vote`` is called before it counts.

        Raises:
            ConfigError: the group does not take it; the text says why.
            Unavailable: it does not catch up.
        """
        role = self.now().roles.get(node)
        if role is None:
            self.client.add_member(node, address)
            self.tell(f"{node} at {address} is a learner, and gets the log")
        if role != VOTER:
            wait_until_near(self.client, node, self.patience_s, self.tell, self.moved)
        before_vote()
        self.client.promote_member(node)  # of a voter, too: that may not be committed yet
        if role != VOTER:
            self.tell(f"{node} is a voter")

    def lead(self, nodes: Sequence[NodeId]) -> None:
        """Let one of these voters lead, the first that can."""
        for node in nodes:
            if self.now().leader in nodes:
                return
            with suppress(DLedgerError):  # it is behind, or away: another one, or none
                self.client.transfer(node)
                self.tell(f"{node} leads")

    def leave(self, node: NodeId) -> None:
        """Take a node out of the group. When this returns, that is committed: a list that a leader
        has alone may be undone, and with it the removal.

        Raises:
            ConfigError: too few voters that live would be left.
        """
        self.client.remove_member(node)
        self.tell(f"{node} is no member")


def _by_leader(node: NodeId, said: Mapping[str, Any], peers: Mapping[str, str]) -> MembersNow:
    return MembersNow(
        leader=node,
        addresses={NodeId(name): address for name, address in peers.items()},
        roles={NodeId(name): role for name, role in said["member_roles"].items()},
        version=said["group_version"]["active"],
    )
