"""The state of a group, for its operators: partitions, consumer groups' lag, commits, entries."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, TypeVar

from dledger.client.protocol.client_state import ClientState, Operation, Request
from dledger.client.protocol.results import Spans, spans_of
from dledger.client.protocol.routing import CallPolicy
from dledger.config import check_name
from dledger.protocol.messages.client import Listing, ListRequest
from dledger.times import datetime_of

T = TypeVar("T")
_PLACE: Final = attrgetter("topic", "partition")


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition: offsets [begin_offset, end_offset) are kept, in ``bytes`` stored bytes."""

    topic: str
    partition: int
    begin_offset: int
    end_offset: int
    bytes: int
    newest_us: int
    """Largest time of a record that it ever had, in microseconds since 1970 UTC; 0: it never had
    one."""

    @property
    def newest(self) -> datetime | None:
        """`newest_us` as a datetime in UTC; None: it never had one."""
        return datetime_of(self.newest_us) if self.newest_us else None


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a consumer group is behind in one partition."""

    group: str
    topic: str
    partition: int
    offset: int
    """Everything below is processed."""
    begin_offset: int
    """First offset that is kept; above ``offset``: the records between are lost to the group."""
    end_offset: int
    rows: int
    """Records that are not processed: ``end_offset - offset``."""
    bytes: int
    """Stored bytes of the kept batches that hold such records, whole batches."""
    seconds: float
    """How long ago the first of these batches was written, by the newest record time up to its end
    and this machine's clock; 0.0 without lag."""
    committed_ms: int
    """When the group last said how far it is, in ms since 1970 UTC; 0: not known."""
    holds: bool
    """Whether it holds retention back."""

    @property
    def committed(self) -> datetime | None:
        """`committed_ms` as a datetime in UTC; None: not known."""
        return datetime_of(1000 * self.committed_ms) if self.committed_ms else None


@dataclass(frozen=True, slots=True)
class CommitState:
    """A committed transaction, as far as its topics are still there and its records kept."""

    index: int
    """Of the log's entry that committed it."""
    writer_id: str
    sequence: int
    time_ms: int
    """Of the commit, in ms since 1970 UTC, by the leader's clock."""
    offsets: Spans = field(default_factory=dict)

    @property
    def time(self) -> datetime:
        """`time_ms` as a datetime in UTC."""
        return datetime_of(1000 * self.time_ms)

    @property
    def records(self) -> int:
        return sum(end - start for spans in self.offsets.values() for start, end in spans.values())


@dataclass(frozen=True, slots=True)
class EntryState:
    """An entry of the log. A field that its kind does not have is empty, 0, or -1."""

    index: int
    term: int
    pos: int
    size: int
    """Bytes, header included."""
    kind: str
    """data, staged, command, noop, other: as `dledger dump` has them."""
    topic: str = ""
    """Empty for a topic that was deleted."""
    partition: int = -1
    offset: int = -1
    """Of its first record; -1 for staged records that no commit has placed."""
    records: int = 0
    command: str = ""
    fields: str = ""


@dataclass(frozen=True, slots=True)
class MemberState:
    """A member of a consumer group."""

    member_id: str
    instance_id: str
    """Of a static member; else empty."""
    label: str
    """Its program: machine and process."""
    epoch: int
    """The group's: it grows with each change of members, topics or partitions."""
    state: str
    """"reads", or "waits" for partitions that others have not given back; of a static member "away"
    while it has left for a moment, "replaced" when another program has its instance id."""
    partitions: dict[str, list[int]]
    """topic -> the partitions that it reads."""


def partitions(core: ClientState) -> Operation[list[PartitionState]]:
    """All partitions of all topics, with their content, by topic and number."""
    rows = yield from list_rows(Listing.PARTITIONS, "list partitions")
    return sorted((_state(PartitionState, row) for row in rows), key=_PLACE)


def lag(core: ClientState, group: str) -> Operation[list[Lag]]:
    """How far a consumer group is behind, by partition, in rows, stored bytes and seconds; empty
    for a group that has committed nothing."""
    check_name("consumer group", group)

    def state(row: dict[str, Any]) -> Lag:
        behind = row["end_offset"] - row["offset"]
        seconds = max(0.0, (core.environment.wall_us() - row["oldest_us"]) / 1e6) if behind else 0.0
        return _state(Lag, row, group=group, rows=behind, seconds=seconds)

    rows = yield from list_rows(Listing.PROGRESS, f"lag of group {group!r}", group)
    return sorted(map(state, rows), key=_PLACE)


def members(_: ClientState, group: str) -> Operation[list[MemberState]]:
    """The members of a consumer group, and what each reads; none of one that only a Spark query
    tells how far it is."""
    check_name("consumer group", group)
    rows = yield from list_rows(Listing.MEMBERS, f"members of group {group!r}", group)
    for row in rows:
        row["partitions"] = {topic: list(some) for topic, some in row["partitions"].items()}
    return [_state(MemberState, row) for row in rows]


def commits(_: ClientState, start: int = 0) -> Operation[list[CommitState]]:
    """The committed transactions that the log still has, oldest first, from the entry ``start`` on:
    whose they are, and the offsets that they gave their records."""
    rows = yield from list_rows(Listing.COMMITS, "list commits", start=start)
    return [_state(CommitState, row, offsets=spans_of(row)) for row in rows]


def entries(_: ClientState, start: int = 0, end: int | None = None) -> Operation[list[EntryState]]:
    """Committed entries [start, end) of the log, without the records in them."""
    rows = yield from list_rows(Listing.ENTRIES, "list entries", start=start, end=end)
    return [_state(EntryState, row) for row in rows]


def _state(kind: type[T], row: dict[str, Any], **own: Any) -> T:
    """A row of an answer, of which a later release may give more columns, with the client's own."""
    values = row | own
    names = [field.name for field in fields(kind) if field.name in values]  # type: ignore[arg-type]
    return kind(**{name: values[name] for name in names})


def list_rows(
    listing: Listing, what: str, name: str = "", start: int = 0, end: int | None = None
) -> Operation[list[dict[str, Any]]]:
    """The rows, page after page."""
    found: list[dict[str, Any]] = []
    while start >= 0 and (end is None or start < end):
        limit = 1000 if end is None else min(1000, end - start)
        request = ListRequest(listing=listing, name=name, start=start, limit=limit)
        answer, _ = yield Request(request, CallPolicy(what=what))
        found += answer.rows
        start = answer.next_start
    return found
