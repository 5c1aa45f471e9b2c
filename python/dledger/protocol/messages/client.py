"""The requests of clients and the responses of a node. Record bytes travel as the frame's payload,
beside these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import IntEnum
from typing import Any, Final

from dledger.protocol.messages.catalog_commands import Command
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloProof, HelloRequest, HelloResponse
from dledger.protocol.messages.splits import Pieces, SplitRequest, unpack_cuts, unpack_sizes
from dledger.types import Index, NodeId, OfPartitions, slots_dataclass


@slots_dataclass(kw_only=True)
class Response:
    """The fields that begin an answer; ``message`` says more than the code, to people."""

    code: Code
    message: str = ""


@slots_dataclass(kw_only=True)
class LeaderResponse(Response):
    """An answer that names the leader, as far as the node knows it: another node must be asked."""

    leader_id: NodeId = NodeId("")


class OffsetKind(IntEnum):
    """Which offsets are asked for."""

    BEGIN = 0
    END = 1
    TIME = 2
    """The first offset of the first batch that has a record of the given time or later; all before
    it is older."""
    EDGES = 3
    """END, and beside it in ``begins`` BEGIN, both at one moment."""


@slots_dataclass(kw_only=True)
class MetadataRequest:
    """The leader, the members of the group, the topics. No names: all topics."""

    topics: tuple[str, ...] = ()
    all_topics: bool = False


@slots_dataclass(kw_only=True)
class TopicInfo:
    """``topic_id`` is the number in batch headers; ``log_id`` names this life of the topic for
    ever."""

    name: str
    topic_id: int
    log_id: str
    partitions: int
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def typed(self) -> bool:
        """Whether its records are rows of columns of their own, in place of keys and values."""
        return self.settings.get("type") == "typed"


@slots_dataclass(kw_only=True)
class MetadataResponse(Response):
    """``leader_id`` is empty while there is none. Names that were asked for and are missing are not
    topics."""

    group: str = ""
    node_id: NodeId = NodeId("")
    leader_id: NodeId = NodeId("")
    term: int = -1
    peers: dict[str, str] = field(default_factory=dict)
    topics: tuple[TopicInfo, ...] = ()
    max_body_bytes: int = 0


@slots_dataclass(kw_only=True)
class AppendRequest:
    """Payload: one body (see ``dledger.records``). Answered when it is committed and applied."""

    timeout_ms: int = 2500


@slots_dataclass(kw_only=True)
class AppendResponse(LeaderResponse):
    """``base_offset`` is the first record's offset, -1 for a staged batch."""

    base_offset: int = -1
    index: Index = Index(-1)


@slots_dataclass(kw_only=True)
class ExecuteRequest:
    """Commit this command and answer with the catalog's result."""

    command: Command
    timeout_ms: int = 2500
    reset: bool = False
    """Of `CommitProgress`: an operator lets the group go on there, which is an event of the audit
    log."""


FIRST_FIELDS: Final[dict[type, int]] = {ExecuteRequest: 2}
"""How many fields of these are always there; those behind them are left out where they say
nothing."""


@slots_dataclass(kw_only=True)
class ExecuteResponse(LeaderResponse):
    result: dict[str, Any] = field(default_factory=dict)


@slots_dataclass(kw_only=True)
class FetchRequest:
    """Stored bodies that cover [start_offset, end_offset); end -1 is "all that is committed".

    With ``wait_ms`` the node holds the request until a record is there. Served by any replica; one
    that has not applied ``start_offset`` yet waits, then answers BEHIND. Below the first kept
    offset: OFFSET_OUT_OF_RANGE.
    """

    topic_id: int
    partition: int
    start_offset: int
    end_offset: int = -1
    max_bytes: int = 4 << 20
    wait_ms: int = 0
    takes_run: bool = False
    """The asker can take a `FetchedRun`."""


@slots_dataclass(kw_only=True)
class OffsetsRequest:
    """Offsets of every partition of these topics. Linearizable (leader only) unless ``stale``.

    ``newer_than`` (topic -> partition -> offset) with ``wait_ms``: answer when any end offset is
    above, or in time.
    """

    topics: tuple[str, ...]
    kind: OffsetKind = OffsetKind.END
    timestamp_us: int = 0
    stale: bool = False
    newer_than: dict[str, OfPartitions] = field(default_factory=dict)
    wait_ms: int = 0


@slots_dataclass(kw_only=True)
class OffsetsResponse(LeaderResponse):
    """``offsets``: topic -> partition -> offset; for TIME -1 where no record is that new.
    ``log_ids``: topic -> id. ``begins``: for EDGES the first kept offsets, else empty."""

    offsets: dict[str, OfPartitions] = field(default_factory=dict)
    log_ids: dict[str, str] = field(default_factory=dict)
    begins: dict[str, OfPartitions] = field(default_factory=dict)


@slots_dataclass(kw_only=True)
class SplitResponse(Response):
    """``counts`` and ``pieces`` have the pieces of each span, see `cuts`. The last end of a span is
    the asked one unless max_pieces came first, or the answer is full
    (`dledger.node.handlers.fetches.MAX_CUTS`): then the rest is to be asked for."""

    counts: bytes = b""
    pieces: bytes = b""

    def cuts(self) -> list[Pieces]:
        """The pieces of each span; raises as `unpack_cuts`."""
        return unpack_cuts(self.counts, self.pieces)

    def sizes(self) -> Sequence[int]:
        """The stored bytes of each span; raises as `unpack_cuts`."""
        return unpack_sizes(self.counts, self.pieces)


@slots_dataclass(kw_only=True)
class GroupRequest:
    """A consumer group's committed offsets; an empty name lists the groups."""

    consumer_group: str = ""


@slots_dataclass(kw_only=True)
class GroupResponse(LeaderResponse):
    groups: tuple[str, ...] = ()
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)


class Listing(IntEnum):
    """The part of a group's state that is listed. Each row is a dict of the values named here;
    times are 0 where unknown."""

    PARTITIONS = 0
    """topic, topic_id, partition, begin_offset, end_offset, bytes (stored, kept), newest_us
    (largest record time)."""
    PROGRESS = 1
    """Of the consumer group that is named: topic, topic_id, partition, offset, begin_offset,
    end_offset, bytes (stored, of the batches with unread records), oldest_us (newest time up to the
    end of the first of these batches), committed_ms, holds."""
    COMMITS = 2
    """Of transactions, by the entry that committed: index, writer_id, sequence, time_ms, offsets
    (topic -> partition -> (start, end)) as far as the topics are still there and the records
    kept."""
    ENTRIES = 3
    """index, term, pos, size, kind (as `dledger dump` has them); of records topic, partition,
    offset (-1 while they have none) and records; of a command its name and fields as text."""
    MEMBERS = 4
    """Of the consumer group that is named: member_id, instance_id, label, epoch (the group's),
    state ("reads", "waits" for partitions of others, "away" or "replaced" as a static member), and
    partitions (topic -> those that it reads)."""
    QUOTAS = 7
    """entity (a principal, `ALL_USERS` or `WHOLE_GROUP`) and quotas (name -> value)."""
    USERS = 23
    """user, token_id (empty: the user itself, followed by its tokens), changed_ms (when its
    password was set, or it was issued), until_ms (of a token: when it ends; of a user: until when
    its former password is good), and of a user salt and iterations (RFC 5802). Times are the
    catalog's."""
    ACLS = 26
    """effect, principal, operation, resource_type, resource: the rules, sorted."""
    SETTINGS = 82
    """name, value, source ("set" at run time; "founding": of the leader that took the first change;
    "node": the answering node's own), version (of the group's settings): the dynamic ones."""
    SETTING_CHANGES = 83
    """version, time_ms, principal, changes (name -> (before, after), None: each node's own): the
    changes of dynamic settings that are remembered, oldest first."""


@slots_dataclass(kw_only=True)
class ListRequest:
    """Rows of one listing, linearizable, from the place ``start`` on, at most ``limit``. The first
    place is 0; those of COMMITS and ENTRIES are entries' indices."""

    listing: Listing
    name: str = ""
    start: int = 0
    limit: int = 1000


@slots_dataclass(kw_only=True)
class ListResponse(LeaderResponse):
    """``next_start`` is where to go on, -1 at the end. There may be no row although there is more
    to come."""

    rows: tuple[dict[str, Any], ...] = ()
    next_start: int = -1


@slots_dataclass(kw_only=True)
class StatusRequest:
    """How this one node is doing."""


@slots_dataclass(kw_only=True)
class StatusResponse:
    """``status``: plain values by name (role, term, leader, begin, end, durable and commit index,
    peers' watermarks, disk level, ...), documented in docs/operations.md."""

    code: Code
    status: dict[str, Any] = field(default_factory=dict)


@slots_dataclass(kw_only=True)
class TransferRequest:
    """Hand leadership to ``to``; answered when it leads or the attempt is given up."""

    to: NodeId


@slots_dataclass(kw_only=True)
class TransferResponse(LeaderResponse):
    """SUCCESS: the other node leads."""


@slots_dataclass(kw_only=True)
class AdmitRequest:
    """Let ``node_id`` vote and count again as the incarnation that it is now; answered when that is
    committed."""

    node_id: NodeId
    timeout_ms: int = 2500


@slots_dataclass(kw_only=True)
class AdmitResponse(LeaderResponse):
    """SUCCESS: that incarnation counts."""


@slots_dataclass(kw_only=True)
class SchemasRequest:
    """The schemas of a typed topic, from version ``after`` + 1 on."""

    topic_id: int
    after: int = 0


@slots_dataclass(kw_only=True)
class SchemasResponse(LeaderResponse):
    """``schemas``: the JSON of each version, in order (`dledger.records.columns.types`); perhaps
    not all of them up to ``newest``: ask again behind the last one."""

    schemas: tuple[str, ...] = ()
    newest: int = 0


ClientRequest = (
    HelloRequest
    | HelloProof
    | MetadataRequest
    | AppendRequest
    | ExecuteRequest
    | FetchRequest
    | OffsetsRequest
    | SplitRequest
    | GroupRequest
    | StatusRequest
    | TransferRequest
    | AdmitRequest
    | ListRequest
    | SchemasRequest
)
ClientResponse = Response | HelloResponse | StatusResponse
