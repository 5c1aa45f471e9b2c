"""The hard state beside the log (``state``). It must never be lost or go back, so it stands in both
slots before a save returns (D5)."""

from __future__ import annotations

import struct
from typing import Final

from dledger.protocol.messages.entry import HardState
from dledger.storage.api import Identity
from dledger.types import Index, NodeId, Term, slots_dataclass

STATE_FILE: Final = "state"
STATE_MAGIC: Final = b"DLhs"
_STATE: Final = struct.Struct(">qqQQQHHH")
_VERSION: Final = ", version "
_INSTALL: Final = ": install dledger "


@slots_dataclass()
class StateRecord:
    """The node's identity and its promises; the file sizes too, because files of another size mean
    another log."""

    identity: Identity
    hard_state: HardState
    segment_bytes: int
    index_file_bytes: int
    group_version: int = 0
    """The active one, as far as this node had applied it. It stands behind the group's name, which
    each release compares first: one that knows no versions says with it what to install, and
    changes nothing."""
    release: str = ""
    """The first one that supports it."""

    def pack(self) -> bytes:
        vote = b"" if self.hard_state.voted_for is None else self.hard_state.voted_for.encode()
        name, node = self.identity.group, self.identity.node_id.encode()
        if self.group_version:
            name += f"{_VERSION}{self.group_version}{_INSTALL}{self.release} or newer"
        group = name.encode()
        return (
            _STATE.pack(
                self.hard_state.term,
                self.hard_state.commit_hint,
                self.identity.incarnation,
                self.segment_bytes,
                self.index_file_bytes,
                len(group),
                len(node),
                len(vote),
            )
            + group
            + node
            + vote
        )

    @staticmethod
    def unpack(data: bytes) -> StateRecord:
        term, commit, incarnation, segment, index_file, groups, nodes, votes = _STATE.unpack_from(
            data
        )
        at = _STATE.size
        group, node = (
            data[at : at + groups].decode(),
            data[at + groups : at + groups + nodes].decode(),
        )
        vote = data[at + groups + nodes : at + groups + nodes + votes].decode()
        group, _, told = group.partition(_VERSION)
        version, _, release = told.partition(_INSTALL)
        return StateRecord(
            Identity(group, NodeId(node), incarnation),
            HardState(Term(term), NodeId(vote) if vote else None, Index(commit)),
            segment,
            index_file,
            int(version or 0),
            release.removesuffix(" or newer"),
        )


def parse_properties(text: str) -> dict[str, str]:
    """DLedger's ``key=value`` lines."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def imported_hard_state(currterm: bytes, checkpoint: bytes) -> HardState:
    """The hard state out of DLedger's ``currterm`` and ``checkpoint`` files.

    Raises:
        ValueError: they are not of that form.
    """
    votes = parse_properties(currterm.decode())
    commit = parse_properties(checkpoint.decode()).get("committedIndex", "-1")
    vote = votes.get("voteLeader", "")
    return HardState(
        Term(int(votes["currTerm"])), NodeId(vote) if vote else None, Index(int(commit))
    )
