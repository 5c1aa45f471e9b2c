"""The range of offsets of a whole topic: where a scan goes, and what it gives of each record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

import pyarrow as pa

from dledger.client.protocol.arguments import whole
from dledger.client.protocol.client_state import ClientState, Operation
from dledger.client.protocol.operations.offsets import offsets
from dledger.client.protocol.operations.offsets_by_time import offsets_for_times
from dledger.client.protocol.operations.schemas import schemas
from dledger.client.protocol.operations.topics import topic
from dledger.client.protocol.reading.damage import FAIL, DamagePolicy, check_on_damage
from dledger.client.protocol.reading.fetched import FetchedBodies
from dledger.client.protocol.reading.reading import check_partition
from dledger.client.protocol.reading.views import View
from dledger.errors import ConfigError, OffsetOutOfRange, TopicRecreated
from dledger.protocol.messages.client import OffsetKind, TopicInfo
from dledger.records.columns.types import Columns

Place: TypeAlias = Literal["earliest", "latest"] | Mapping[int, int] | datetime
"""Where a scan begins or ends: the first kept record or the end of each partition, an offset for
each partition, or the first record of that time or later (a datetime without a time zone is
UTC)."""


class PartitionRange(NamedTuple):
    """The offsets [start, end) of a partition."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read, in order; and how it looks."""

    info: TopicInfo
    ranges: Sequence[PartitionRange]
    view: View
    versions: Sequence[Columns]
    """Of a typed topic: all that a record of these ranges may have been written by."""
    on_damage: str = FAIL

    def damage(self, partition: int) -> DamagePolicy:
        """For the reader of a partition."""
        return DamagePolicy(self.info.name, partition, self.on_damage)

    def batches(self, bodies: FetchedBodies, one: PartitionRange) -> Iterator[pa.RecordBatch]:
        """The records of fetched bodies within a range."""
        for batch, _ in self.view.rows(bodies, *one, lambda version: self.versions[version - 1]):
            yield batch


def plan_scan(
    core: ClientState,
    name: str,
    start: Place,
    end: Place,
    partitions: Sequence[int] | None,
    columns: Sequence[str] | None,
    on_damage: str = FAIL,
) -> Operation[Scan]:
    """Where a scan goes, as the topic is now.

    Raises:
        TopicNotFound: there is none.
        OffsetOutOfRange: a partition is not there, or not with these offsets.
        ConfigError: a column is not there, or a place is none, or ``on_damage`` is no word for it.
    """
    check_on_damage(on_damage)
    info = yield from topic(core, name)
    edges = yield from offsets(core, (name,), OffsetKind.EDGES)
    if edges.log_ids[name] != info.log_id:
        raise TopicRecreated(f"topic {name!r} was deleted and created again just now: read again")
    begins, ends = edges.begins[name], edges.offsets[name]
    wanted = sorted(ends) if partitions is None else list(dict.fromkeys(partitions))
    for partition in wanted:
        check_partition(name, partition, ends)
    starts = yield from _offsets(core, name, "start", start, begins, begins, ends)
    stops = yield from _offsets(core, name, "end", end, ends, begins, ends)
    ranges = [PartitionRange(at, starts[at], max(starts[at], stops[at])) for at in wanted]
    # asked for last: a record that is there has columns that are there
    versions = (yield from schemas(core, info)) if info.typed else []
    if info.typed and not versions:
        raise ConfigError(
            f"topic {name!r} is typed and has no columns yet: they come with its first rows, or "
            f"with create_topic(..., schema=...)"
        )
    view = View(versions[-1] if info.typed else None, selected=columns)
    return Scan(info, [one for one in ranges if one.start < one.end], view, versions, on_damage)


def _offsets(
    core: ClientState,
    name: str,
    what: str,
    place: Place,
    unsaid: Mapping[int, int],
    begins: Mapping[int, int],
    ends: Mapping[int, int],
) -> Operation[Mapping[int, int]]:
    """The offset of each partition that a place means; ``unsaid`` for those that a dict leaves
    out."""
    if isinstance(place, datetime):
        found = yield from offsets_for_times(core, name, place)
        return {at: ends[at] if found.get(at, -1) < 0 else min(found[at], ends[at]) for at in ends}
    if isinstance(place, Mapping):
        given = {whole(what, at): whole(what, offset) for at, offset in place.items()}
        for at, offset in given.items():
            check_partition(name, at, ends)
            if not begins[at] <= offset <= ends[at]:
                raise OffsetOutOfRange(
                    f"{what}: topic {name!r} partition {at} has the offsets [{begins[at]}, "
                    f"{ends[at]}), not {offset}",
                    begins[at],
                    ends[at],
                )
        return {**unsaid, **given}
    if place == "earliest":
        return begins
    if place == "latest":
        return ends
    raise ConfigError(
        f"{what} is {place!r}: give 'earliest', 'latest', a dict of partition -> offset, or a "
        "datetime"
    )
