"""The two records beside the log: the hard state (``state``) and the mark (``mark``).

The hard state must never be lost or go back, so it stands in both slots before a save returns (D5).
The mark only ever says too little, never too much: it is written without waiting after each sync
and settled now and then.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Final

from dledger.protocol.messages.entry import HardState, LogEnd
from dledger.storage.api import Identity
from dledger.types import NO_INDEX, NO_TERM, Index, NodeId, Position, Term, slots_dataclass

STATE_FILE: Final = "state"
MARK_FILE: Final = "mark"
STATE_MAGIC: Final = b"DLhs"
MARK_MAGIC: Final = b"DLmk"
EMPTY_LOG: Final = LogEnd()
FIRST: Final = Index(0)
_STATE: Final = struct.Struct(">qqQQQHHH")
_MARK: Final = struct.Struct(">qqqIqqqIq16sqqqB")


@slots_dataclass()
class StateRecord:
    """The node's identity and its promises; the file sizes too, because files of another size mean
    another log."""

    identity: Identity
    hard_state: HardState
    segment_bytes: int
    index_file_bytes: int

    def pack(self) -> bytes:
        vote = b"" if self.hard_state.voted_for is None else self.hard_state.voted_for.encode()
        group, node = self.identity.group.encode(), self.identity.node_id.encode()
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
        return StateRecord(
            Identity(group, NodeId(node), incarnation),
            HardState(Term(term), NodeId(vote) if vote else None, Index(commit)),
            segment,
            index_file,
        )


@slots_dataclass()
class RecoveryPoint:
    """How far the disk is known to hold the written log.

    Whenever it can be read it is true, even if it was never synced itself: it is written after the
    sync it tells of, and lowered, durably, before anything below it is cut.
    """

    durable: LogEnd = EMPTY_LOG
    """Data up to here was synced without error."""
    indexed: LogEnd = EMPTY_LOG
    """Data and index up to here were; recovery scans from here."""
    commit: Index = NO_INDEX
    """Committed and durable here."""
    boot_id: bytes = b""
    """The run of the operating system that wrote it: in the same one no written page can have been
    lost."""
    begin_index: Index = FIRST
    begin_pos: int = 0
    begin_chain: int = 0
    """chainCrc of the entry before the first kept one, -1 when unknown."""

    @property
    def begin(self) -> LogEnd:
        """The place before the first kept entry."""
        return before_first(self.begin_index, self.begin_pos, self.begin_chain)

    def raised(self, durable: LogEnd, commit: Index) -> RecoveryPoint:
        """The same with these two, as at each sync: `dataclasses.replace` takes several times as
        long."""
        return RecoveryPoint(
            durable,
            self.indexed,
            commit,
            self.boot_id,
            self.begin_index,
            self.begin_pos,
            self.begin_chain,
        )

    def pack(self) -> bytes:
        durable, indexed = self.durable, self.indexed
        return _MARK.pack(
            durable.position.term,
            durable.position.index,
            durable.end_pos,
            durable.chain_crc,
            indexed.position.term,
            indexed.position.index,
            indexed.end_pos,
            indexed.chain_crc,
            self.commit,
            self.boot_id,
            self.begin_index,
            self.begin_pos,
            self.begin_chain,
            len(self.boot_id),
        )

    @staticmethod
    def unpack(data: bytes) -> RecoveryPoint:
        f = _MARK.unpack(data)
        return RecoveryPoint(
            LogEnd(Position(Term(f[0]), Index(f[1])), f[2], f[3]),
            LogEnd(Position(Term(f[4]), Index(f[5])), f[6], f[7]),
            Index(f[8]),
            f[9][: f[13]],
            Index(f[10]),
            f[11],
            f[12],
        )


def before_first(index: int, pos: int, chain: int) -> LogEnd:
    """The place before the first kept entry, which is the one at ``index``: the term of the entry
    before it is not known any more. ``chain`` -1: its chainCrc is not either."""
    return LogEnd(Position(NO_TERM, Index(index - 1)), pos, chain)


def empty_log(begin: LogEnd) -> LogEnd:
    """The end of a log that begins there and has no entry yet."""
    return replace(begin, chain_crc=max(begin.chain_crc, 0))


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
