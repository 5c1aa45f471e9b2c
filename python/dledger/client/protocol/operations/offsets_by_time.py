"""Offsets by time, exact to the record.

A node knows the newest time of each batch and names the first batch that holds a record as new as
is asked for; which record of it that is, is seen here, in that one body. Written once, as a
generator (see `dledger.client.protocol.client_state`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dledger.client.protocol.arguments import Time, microseconds
from dledger.client.protocol.client_state import ClientState, Operation, Request
from dledger.client.protocol.operations.offsets import offsets
from dledger.client.protocol.operations.schemas import of_body
from dledger.client.protocol.operations.topics import known_topic
from dledger.client.protocol.operations.topics import topic as current
from dledger.client.protocol.reading.fetching import Fetcher
from dledger.client.protocol.reading.reading import check_partition
from dledger.client.protocol.routing import CallPolicy
from dledger.errors import CorruptEntry, OffsetOutOfRange, TopicRecreated
from dledger.protocol.messages.client import OffsetKind, OffsetsResponse, TopicInfo
from dledger.protocol.messages.codes import Code
from dledger.records.body.header import Flag, decode_header
from dledger.records.columns.types import Columns

if TYPE_CHECKING:
    from dledger.client.protocol.reading.fetched import FetchedBodies

ONE_BATCH: Final = 1
"""As ``max_bytes``: a node answers with at least one batch."""
MORE_BYTES: Final = 4 << 20
"""For a search that goes on, where the newest records of a topic whose times fall back were
deleted."""


def offsets_at(
    core: ClientState, times_us: Mapping[str, Mapping[int, Time]], *, stale: bool = False
) -> Operation[OffsetsResponse]:
    """`offsets_for_times` for several topics (topic -> partition -> time), with the topics' log
    ids.

    Raises:
        TopicNotFound, OffsetOutOfRange: no such topic, or no such partition of it.
        TopicRecreated: a topic became another one meanwhile.
    """
    wanted = {
        name: {p: microseconds("time", time) for p, time in times.items()}
        for name, times in times_us.items()
    }
    found: dict[str, dict[int, int]] = {name: {} for name in wanted}
    log_ids: dict[str, str] = {}
    for time_us in sorted({time for times in wanted.values() for time in times.values()}):
        names = [name for name, times in wanted.items() if time_us in times.values()]
        answer = yield from offsets(core, names, OffsetKind.TIME, timestamp_us=time_us, stale=stale)
        for name in names:
            if log_ids.setdefault(name, answer.log_ids[name]) != answer.log_ids[name]:
                raise _recreated(name)
            info = yield from _described(core, name, log_ids[name])
            for partition, time in wanted[name].items():
                if time == time_us:
                    check_partition(name, partition, answer.offsets[name])
                    batch = answer.offsets[name][partition]
                    found[name][partition] = yield from _first_record(
                        core, info, partition, batch, time_us
                    )
    return OffsetsResponse(code=Code.SUCCESS, offsets=found, log_ids=log_ids)


def offsets_for_times(
    core: ClientState, topic: str, timestamp_us: Time, *, stale: bool = False
) -> Operation[dict[int, int]]:
    """First offset of each partition whose record has a time at or after ``timestamp_us``, in
    microseconds since 1970 UTC or as a datetime (one without a time zone is UTC); -1 where none
    has.

    Exact to the record. Times are the writers' and may fall back: later records can be older than
    this one.
    """
    info = yield from current(core, topic)
    times_us = {topic: dict.fromkeys(range(info.partitions), timestamp_us)}
    answer = yield from offsets_at(core, times_us, stale=stale)
    found: dict[int, int] = answer.offsets[topic]
    return found


def _described(core: ClientState, name: str, log_id: str) -> Operation[TopicInfo]:
    info = yield from known_topic(core, name)
    if info.log_id != log_id:
        info = yield from current(core, name)
    if info.log_id != log_id:
        raise _recreated(name)
    return info


def _recreated(name: str) -> TopicRecreated:
    return TopicRecreated(
        f"topic {name!r} was deleted and created again while its offsets were asked for: ask again"
    )


def _first_record(
    core: ClientState, info: TopicInfo, partition: int, batch: int, time_us: int
) -> Operation[int]:
    """The first record of that time or later, where all before the batch at offset ``batch`` are
    older."""
    what = f"offsets by time of {info.name!r} partition {partition}"
    max_bytes = ONE_BATCH
    while batch >= 0:
        fetcher = Fetcher(
            info.topic_id,
            partition,
            batch,
            None,
            max_bytes,
            what,
            core.ends.reading(info, partition),
        )
        try:
            bodies = yield from _fetch(core, fetcher, what)
        except OffsetOutOfRange:  # retention was faster
            again = yield from offsets(core, (info.name,), OffsetKind.TIME, timestamp_us=time_us)
            batch = again.offsets[info.name].get(partition, -1)
            continue
        for one, body in bodies:
            columns = None
            if info.typed:
                columns = yield from of_body(core, info, body)
            place = _place(body, time_us, columns)
            if place >= 0:
                return one.base_offset + place
        batch, max_bytes = (fetcher.position, MORE_BYTES) if bodies else (-1, 0)
    return -1


def _fetch(core: ClientState, fetcher: Fetcher, what: str) -> Operation[FetchedBodies]:
    """From the leader, which has applied all that it named; a body that is damaged there, from
    another node."""
    request = replace(fetcher.request(), wait_ms=0)
    damaged: CorruptEntry | None = None
    for address in (None, *core.routes.addresses()):
        try:
            answer, payload = yield Request(request, CallPolicy(what=what, address=address))
            return fetcher.take(answer, payload)
        except CorruptEntry as error:
            damaged = damaged or error
    assert damaged is not None
    raise damaged


def _place(body: memoryview, time_us: int, columns: Columns | None) -> int:
    """Which record of a body is the first of that time or later; -1 for none. Of a body that nobody
    can open the first one: whoever reads from there is told, or told to leave it out."""
    header = decode_header(body)
    if header.last_time_us < time_us:
        return -1
    if header.first_time_us >= time_us or not header.flags & Flag.HAS_TIMES:
        return 0
    from dledger.records.body.records import decode_batch
    from dledger.records.body.typed import decode_typed, record_times

    try:
        if columns is None:
            times = decode_batch(body)[1].column("timestamp")
        else:
            times = record_times(*decode_typed(body, lambda version: columns))
    except CorruptEntry:
        return 0
    numbers = memoryview(times.buffers()[1]).cast("q")[times.offset : times.offset + len(times)]
    return next(place for place, time in enumerate(numbers) if time >= time_us)
