"""Reading, as far as it needs neither socket nor thread: fetchers, records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.reading.fetching import Fetcher, elsewhere
from dledger.errors import DLedgerError, FrameTooLarge, OffsetOutOfRange, ProtocolError, Unavailable
from dledger.net.connections.blocking import Lost
from dledger.protocol.messages.client import TopicInfo
from dledger.protocol.messages.fetched import FetchResponse
from dledger.records.columns.types import Columns

if TYPE_CHECKING:
    import pyarrow as pa

    from dledger.client.protocol.reading.damage import DamagePolicy
    from dledger.client.protocol.reading.fetched import FetchedBodies


def reader(
    core: ClientState,
    topic: TopicInfo | int,
    partition: int,
    start: int,
    end: int | None,
    max_bytes: int,
    damage: DamagePolicy | None = None,
) -> Fetcher:
    """Of a topic that is described, or of an id alone: then its offsets do not bind later
    answers."""
    if isinstance(topic, int):
        what = f"read '#{topic}' partition {partition}"
        return Fetcher(topic, partition, start, end, max_bytes, what, damage=damage)
    what, seen = f"read {topic.name!r} partition {partition}", core.ends.reading(topic, partition)
    return Fetcher(
        topic.topic_id, partition, start, end, max_bytes, what, seen, damage, topic=topic
    )


def unanswered(fetcher: Fetcher, address: str, error: Lost | ProtocolError) -> Unavailable:
    """The error for a question without an answer that can be read. An answer of more batches than
    its header may name, as a node from before `MOST_ROWS` gives, is asked for in halves."""
    cause = error.error if isinstance(error, Lost) else error
    if isinstance(cause, FrameTooLarge):
        fetcher.max_bytes = max(1, fetcher.max_bytes // 2)
    return Unavailable(f"{address}: {error}")


def take(fetcher: Fetcher, answer: FetchResponse, payload: memoryview) -> FetchedBodies:
    """`Fetcher.take`; an error carries ``elsewhere``: whether another replica may know better."""
    try:
        return fetcher.take(answer, payload)
    except DLedgerError as error:
        refused = answer.code is not answer.code.SUCCESS
        error.elsewhere = elsewhere(answer.code) if refused else True  # type: ignore[attr-defined]
        raise


def records(
    bodies: FetchedBodies, start: int, end: int | None, columns: Columns | None = None
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The records of fetched bodies within [start, end), in the READ_SCHEMA, with the offset behind
    them; a typed topic's, which were written under ``columns``, as keys and JSON."""
    if columns is None:
        if len(bodies) == 1 and (one := bodies.one_record(start, end)) is not None:
            yield one, bodies.batches.base_offset + 1
            return
        decoded = bodies.plain_records()
    else:
        from dledger.records.body.json_rows import as_records  # other readers need not load it

        decoded = bodies.decoded(lambda body: as_records(body, lambda version: columns))
    from dledger.records.body.records import with_offsets

    for found, batches in decoded:
        base = batches.base_offset
        behind = base + found.num_rows
        yield with_offsets(found, base, start, end), behind if end is None else min(behind, end)


def check_partition(topic: str, partition: int, known: Mapping[int, int]) -> None:
    if partition not in known:
        raise OffsetOutOfRange(
            f"topic {topic!r} has partitions 0 to {len(known) - 1}, not {partition}"
        )
