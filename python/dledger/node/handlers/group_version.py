"""What a node does about the group version: the first one of a new group, what its files say, and
members that do not support it."""

from __future__ import annotations

import logging
from typing import Any, Final

from dledger.net.connections.handshake import other_version
from dledger.node.context import NodeContext, NodePart
from dledger.node.handlers.port_sessions import PortSessions
from dledger.node.peers.handshake import Gate
from dledger.node.proposals.proposal_queue import ProposalQueue
from dledger.protocol.messages.catalog_commands import UpgradeGroup
from dledger.protocol.messages.client import ExecuteRequest
from dledger.protocol.messages.entry import MAGIC_NOOP
from dledger.protocol.messages.group_version import SUPPORTED
from dledger.raft.state.ready import RoleChange
from dledger.release import FIRST_RELEASES, GROUP_VERSION, RELEASE
from dledger.types import NO_TERM, Index, Role, Term

logger = logging.getLogger(__name__)

PROPOSED_MS: Final = 60_000


class GroupVersions(NodePart):
    """One node's part in them."""

    def __init__(
        self,
        context: NodeContext,
        proposals: ProposalQueue,
        *,
        gate: Gate,
        sessions: PortSessions,
    ) -> None:
        super().__init__(context)
        self._proposals = proposals
        self._gate = gate
        self._sessions = sessions
        self._founds_in: Term = NO_TERM
        """The term in which this node leads on a new log whose version is still to be proposed."""
        context.events.version_raised.subscribe(self._raised)
        context.events.role.subscribe(self._role)
        context.events.member_taken.subscribe(lambda member: self._found())
        context.status.add(lambda: {"group_version": self.status()})

    def start(self) -> None:
        """The catalog may be a state of the leader's, or of a life that ended behind the entry."""
        if self._catalog.version:
            self._keep()

    def _keep(self) -> None:
        version = self._catalog.version
        self._ready_loop.log_writer.save_group_version(version.active, version.release)

    def _raised(self) -> None:
        """From this entry on no member is talked to that does not support the version. The leader
        has asked for none, so this ends connections of one that has become older meanwhile."""
        self._keep()
        logger.info("the group has version %d from now on", self._catalog.version.active)
        for member, hello in list(self._gate.supporting.items()):
            if text := other_version(self._gate.introduction(), hello):
                self._sessions.end_member(member, text)
                if (link := self._peers.links.get(member)) is not None:
                    link.reconnect()

    # --- a new group ------------------------------------------------------------------------------

    def _role(self, change: RoleChange) -> None:
        is_new = change.role is Role.LEADER and self._is_new_log()
        self._founds_in = change.term if is_new else NO_TERM
        self._found()

    def _is_new_log(self) -> bool:
        """Whether it has nothing but what leaders of this node's life began with. A broker's log
        has no place for more than its messages."""
        entries = self._raft.log.cached(Index(0), Index(self._raft.noop_index + 1))
        is_empty = entries is not None and all(run.magic == MAGIC_NOOP for run in entries.runs)
        return is_empty and self._group.commit_log == "topics"

    def _found(self) -> None:
        """Give a new group the newest version that all of its members support, once each of them
        has been here."""
        if self._founds_in == NO_TERM or len(self._gate.supporting) < len(self._peers.links):
            return
        self._founds_in = NO_TERM
        newest = min(
            (one.versions[1] for one in self._gate.supporting.values()), default=GROUP_VERSION
        )
        version = min(newest, self._group.founding_version)
        if version > 0:
            command = UpgradeGroup(version=version, release=FIRST_RELEASES[version])
            self._proposals.execute(
                None, 0, ExecuteRequest(command=command, timeout_ms=PROPOSED_MS)
            )

    # --- status -----------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """For the node's status; see docs/operations.md."""
        seen = self._gate.supporting.items()
        is_newest = self._catalog.version.active >= GROUP_VERSION
        return {
            "active": self._catalog.version.active,
            "release": RELEASE,
            "supported": list(SUPPORTED),
            "members": {
                str(member): {"release": hello.release, "supported": list(hello.versions)}
                for member, hello in sorted(seen)
            },
            "obstacle": "" if is_newest else self._peers.not_supporting(GROUP_VERSION),
        }
