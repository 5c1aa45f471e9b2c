"""Letting a member back in that lost its disk, and reporting its state until then.

See `dledger.raft.state.incarnations` for why a new incarnation does not count by itself, and why it
may once a leader has had it admitted.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dledger.catalog.state_machine import Catalog
from dledger.errors import CorruptEntry, ProtocolError, Unavailable
from dledger.net import Connection
from dledger.node.context import NodeContext, NodePart
from dledger.node.proposals.proposal import COMMAND_HEADER
from dledger.node.proposals.proposal_queue import ProposalQueue
from dledger.protocol.messages.catalog_commands import Admit, ChangeMembers
from dledger.protocol.messages.client import AdmitRequest, AdmitResponse, ExecuteRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import MAGIC_NORMAL, Entry
from dledger.protocol.messages.membership import Change, Member
from dledger.protocol.wire import decode_command, encode_command
from dledger.raft.state.ready import Fact
from dledger.records.body.header import (
    BODY_HEADER_SIZE,
    BODY_MAGIC,
    BODY_VERSION,
    BodyKind,
    decode_header,
)
from dledger.storage.api import Fault, LogStore
from dledger.types import NO_INDEX, NO_TERM, Index, NodeId, Role

logger = logging.getLogger(__name__)

WORDS: Final = {
    "founded": (logging.INFO, "the group {group} is founded with {members}"),
    "founding_learned": (logging.INFO, "the group's founding is known from {of}"),
    "not_admitted": (
        logging.ERROR,
        "{node} is another incarnation ({own}) than the one that the group knows ({known}): its "
        "directory is new, or was emptied. It catches up, but neither votes nor counts until "
        "somebody runs 'dledger admit {node}'",
    ),
    "stranger": (
        logging.WARNING,
        "{node} is another incarnation ({incarnation}) than the one that the group knows "
        "({known}): it has lost its "
        "disk. It gets everything, but does not count until somebody runs 'dledger admit {node}'",
    ),
    "follower_lost_data": (
        logging.ERROR,
        "{node} ends at entry {has} on its disk, but had acknowledged up to {had}: an older copy "
        "of its directory was "
        "put back. It does not count any more until somebody runs 'dledger admit {node}'",
    ),
    "data_lost": (
        logging.ERROR,
        "{leader}, the leader, knows that {node} had acknowledged more than its disk has: an older "
        "copy of its directory was put back. It gets everything again, but neither votes nor "
        "counts until somebody runs 'dledger admit {node}'",
    ),
    "damaged_push": (
        logging.ERROR,
        "what {leader} sends ({push}) is damaged, or does not continue this node's log, and is not "
        "taken. Where the group goes on behind an old commit log, each member must have adopted "
        "the same one: compare the fingerprints that 'dledger rocketmq adopt' told",
    ),
    "term_refused": (
        logging.ERROR,
        "{node} says term {term}, over {limit}, the last one that this node, which is in term "
        "{own}, believes at once: nothing that it says so is taken. Somebody gave it a false term: "
        "stop it, and run 'dledger reset-term' there",
    ),
    "term_spent": (
        logging.CRITICAL,
        "{node} is in term {term}, behind which there is no room for elections: somebody gave it a "
        "false one. Stop all members of the group, run 'dledger reset-term' on the directory of "
        "each, and start them again",
    ),
    "other_group": (
        logging.WARNING,
        "{node} speaks for the group {theirs} (name, fingerprint of its members, id), and this "
        "node is of {own}: what "
        "it says is not heard. Compare the addresses and the lists of members of both",
    ),
    "group_id_drawn": (
        logging.INFO,
        "the group was founded before groups had ids, and is {group} from now on",
    ),
    "group_id_learned": (logging.INFO, "the group has the id {group}, by what {of} says"),
    "removed": (
        logging.WARNING,
        "{node} was removed from the group by entry {index}: it gets no entries, asks for no votes "
        "and counts nowhere",
    ),
    "members_learned": (
        logging.INFO,
        "the list of members by entry {index} is known from {of}",
    ),
    "no_voter": (
        logging.WARNING,
        "this node led term {term}, is no voter any more, and found nobody to hand over to",
    ),
    "admitted": (logging.WARNING, "{node} is admitted by entry {index}: it votes and counts again"),
}
"""Facts of the core that an operator should read, by name."""
WAITS_LOG_S: Final = 10.0
"""Between two lines on members that are missing before the group's founding."""

KNOWN_S: Final = 0.02
"""Between two checks whether a quorum knows of an admission: its members say so when they answer
heartbeats."""
_COMMAND: Final = int(BodyKind.COMMAND)
READ_BYTES: Final = 1 << 20
"""How much of the log is looked through at a time for changes that are not on record."""


COMMAND_PREFIX: Final = BODY_MAGIC + bytes([BODY_VERSION, _COMMAND])


def change_of(entry: Entry) -> Change | None:
    """The change of the counted incarnations by an entry, as the core asks it of every one that is
    written: few bytes tell that it is no command."""
    body = entry.body
    if (
        len(body) <= BODY_HEADER_SIZE
        or body[3] != _COMMAND
        or body[:2] != BODY_MAGIC
        or entry.magic != MAGIC_NORMAL
    ):
        return None
    # else it is another program's body, and no command for the catalog either
    with suppress(ValueError, ProtocolError):
        decode_header(body)
        command = decode_command(body[BODY_HEADER_SIZE:])
        if isinstance(command, ChangeMembers) and command.members:
            after, members = Index(command.after), command.members
            return Change(entry.position, after, NodeId(""), 0, members)
        if isinstance(command, Admit) and command.node_id in command.members:
            node = NodeId(command.node_id)
            return Change(
                entry.position, Index(command.after), node, command.members[command.node_id]
            )
    return None


def body_of(after: Index, members: tuple[Member, ...]) -> bytes:
    """The body of the entry that makes these the group's members."""
    return COMMAND_HEADER + encode_command(ChangeMembers(after=after, members=members))


def put_on_record(store: LogStore, catalog: Catalog) -> tuple[Fault, ...]:
    """Release 0.1 kept no record of the changes in its log that it had not applied: a node with its
    files reads them once, before it takes messages. An entry that cannot be read may be one, so it
    is given back as damaged."""
    known = store.membership
    if known.changes or known.group_id or known.term != NO_TERM:
        return ()
    changes: list[Change] = []
    faults: list[Fault] = []
    at = Index(max(store.begin_index, catalog.applied_index + 1))
    while at <= store.end.position.index:
        try:
            entries = store.read(at, READ_BYTES)
            changes += [change for entry in entries if (change := change_of(entry)) is not None]
            at = Index(entries[-1].index + 1)
        except CorruptEntry as error:
            first = faults.pop() if faults and faults[-1].last == at - 1 else None
            whole = first or Fault(at, at, -1, str(store.identity.node_id), str(error))
            faults.append(replace(whole, last=at))
            at = Index(at + 1)
    if later := tuple(change for change in changes if change.index > known.index):
        logger.info(
            "admissions in the log of an older release: %s",
            ", ".join(f"entry {c.index}" for c in later),
        )
        store.save_membership(replace(known, changes=later))
    return tuple(faults)


def explain(fact: Fact) -> None:
    """Log a fact that is worth it."""
    words = WORDS.get(fact.event)
    if words is not None:
        logger.log(words[0], "%s", words[1].format(**dict(fact.about)))


@dataclass(slots=True, eq=False)
class AdmissionWait:
    """A client that waits for an admission."""

    connection: Connection
    request_id: int
    node_id: NodeId
    incarnation: int
    timer: asyncio.TimerHandle = field(init=False)


class Admissions(NodePart):
    """Answers `AdmitRequest` and carries the catalog's members into the core."""

    def __init__(self, context: NodeContext, proposals: ProposalQueue) -> None:
        super().__init__(context)
        self._proposals = proposals
        context.events.members_changed.subscribe(self.members_changed)
        context.events.fact.subscribe(explain)
        context.status.add(lambda: {"admission": self.status()})
        self._waiting: list[AdmissionWait] = []
        self._looking: set[asyncio.Task[None]] = set()
        self._told = NO_INDEX
        """The newest entry with a membership of the catalog that the core has been told of."""
        self._timer: asyncio.TimerHandle | None = None
        self._look_again: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.members_changed()
        self._timer = self._loop.call_later(WAITS_LOG_S, self._look)

    def stop(self) -> None:
        for timer in (self._timer, self._look_again):
            if timer is not None:
                timer.cancel()
        for task in self._looking:
            task.cancel()
        for waiting in list(self._waiting):
            self._answer(waiting, Code.TERM_CHANGED)

    def _look(self) -> None:
        """Report why a group that cannot begin waits."""
        self._timer = self._loop.call_later(WAITS_LOG_S, self._look)
        if self._raft.not_heard_yet:
            logger.warning(
                "the group cannot begin before all of its members have been there once; missing: "
                "%s",
                ", ".join(self._raft.not_heard_yet),
            )

    def admit(self, connection: Connection, request_id: int, request: AdmitRequest) -> None:
        """Let a member count by its present incarnation."""
        node_id = request.node_id
        code, text = self._refusal(node_id)
        if code is not Code.SUCCESS or node_id == self._raft.node_id:
            self._reply(connection, request_id, node_id, code, text)
            return
        task = self._loop.create_task(self._look_at(connection, request_id, request))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _look_at(
        self, connection: Connection, request_id: int, request: AdmitRequest
    ) -> None:
        """Ask the member which incarnation it is now: what this leader has heard last may be of
        the disk of before, which counts."""
        node_id = request.node_id
        try:
            status = await self._peers.status_of(node_id)
        except Unavailable as error:
            text = f"{node_id} does not answer; start it first, then admit it ({error})"
            self._reply(connection, request_id, node_id, Code.ILLEGAL_MEMBER_STATE, text)
            return
        code, text = self._refusal(node_id)
        heard = self._raft.heard.get(node_id, 0)
        # where rules keep its status from a node that cannot prove who it is, it says nothing
        own = status.get("admission", {}).get("incarnation", heard)
        if code is Code.SUCCESS and own != heard:
            code = Code.LEADER_NOT_READY
            text = f"the leader has not heard {node_id} since its disk was replaced; ask again"
        if code is not Code.SUCCESS or self._raft.membership.of(node_id) == heard:
            self._reply(connection, request_id, node_id, code, text)
            return
        self._propose(connection, request_id, request, heard)

    def _propose(
        self, connection: Connection, request_id: int, request: AdmitRequest, heard: int
    ) -> None:
        known = self._raft.membership
        members = {str(member): incarnation for member, incarnation in known.bound}
        members[str(request.node_id)] = heard
        command = Admit(node_id=request.node_id, members=members, after=known.index)
        waiting = AdmissionWait(connection, request_id, request.node_id, heard)
        late, text = Code.WAIT_QUORUM_ACK_TIMEOUT, "no quorum has acknowledged it in time"
        waiting.timer = self._loop.call_later(
            request.timeout_ms / 1000, self._answer, waiting, late, text
        )
        self._waiting.append(waiting)
        self._proposals.execute(
            None, 0, ExecuteRequest(command=command, timeout_ms=request.timeout_ms)
        )

    def _refusal(self, node_id: NodeId) -> tuple[Code, str]:
        raft = self._raft
        if node_id not in self._members.ids:
            text = f"{node_id!r} is not a member; members: {', '.join(self._members.ids)}"
            return Code.UNEXPECTED_ARGUMENT, text
        if raft.role is not Role.LEADER:
            whom = raft.leader_id or "again, there is no leader now"
            return Code.NOT_LEADER, f"this node does not lead; ask {whom}"
        if not self._proposals.caught_up:
            return Code.LEADER_NOT_READY, "the new leader is still catching up; ask again"
        if raft.change is not None or self._waiting:
            return Code.LEADER_NOT_READY, "another member is being admitted; ask again"
        if node_id == raft.node_id or node_id in raft.heard:
            return Code.SUCCESS, ""
        text = f"{node_id} has not answered this leader; start it first, then admit it"
        return Code.ILLEGAL_MEMBER_STATE, text

    def _answer(self, waiting: AdmissionWait, code: Code, text: str = "") -> None:
        self._waiting.remove(waiting)
        waiting.timer.cancel()
        self._reply(waiting.connection, waiting.request_id, waiting.node_id, code, text)

    def _reply(
        self, connection: Connection, request_id: int, node_id: NodeId, code: Code, text: str
    ) -> None:
        self._context.audit.record_request(connection, "admit", code, text, node=node_id)
        answer = AdmitResponse(code=code, message=text, leader_id=self._leader_id)
        connection.send(answer, request_id)

    def members_changed(self) -> None:
        """The core must know which incarnations count by the catalog."""
        catalog = self._catalog
        if catalog.members_index > self._told:
            self._told = catalog.members_index
            bound = {NodeId(member): incarnation for member, incarnation in catalog.members.items()}
            listed = catalog.group_list
            self._ready_loop.feed(
                self._raft.set_members,
                catalog.members_index,
                bound,
                self._now_ms(),
                listed.members,
                listed.former,
            )
        if self._waiting and self._look_again is None:
            self._answer_known()

    def _answer_known(self) -> None:
        """Answer when a quorum knows: from then on the group goes on with any quorum that lives."""
        self._look_again = None
        for waiting in list(self._waiting):
            if self._raft.membership.of(waiting.node_id) != waiting.incarnation:
                continue
            if self._raft.is_known(self._raft.membership.index):
                self._answer(waiting, Code.SUCCESS)
            else:
                self._look_again = self._loop.call_later(KNOWN_S, self._answer_known)

    def status(self) -> dict[str, Any]:
        """For the node's status; see docs/operations.md."""
        known = self._raft.membership
        return {
            "incarnation": known.incarnation,
            "admitted": self._context.is_admitted,
            "members": {str(member): incarnation for member, incarnation in known.bound},
            "not_admitted": sorted(
                str(node)
                for node, incarnation in self._raft.heard.items()
                if known.of(node) != incarnation
            ),
            "missing": [str(node) for node in self._raft.not_heard_yet],
        }
