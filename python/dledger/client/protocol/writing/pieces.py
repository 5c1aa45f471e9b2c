"""A table that is appended: its rows by partition, in batches of a good size, under the columns
that the table and its topic agree on."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from dledger.client.protocol.appending import Appendable, place, spread
from dledger.client.protocol.client_state import ClientState, Operation
from dledger.client.protocol.operations.schemas import TypedTopic, agree_schema, schemas
from dledger.client.protocol.operations.topics import known_topic
from dledger.client.protocol.results import Appended, Committed
from dledger.client.protocol.writing.record_accumulator import max_body
from dledger.errors import ConfigError
from dledger.protocol.messages.client import TopicInfo
from dledger.records.body.build import Headers, Times, Values
from dledger.records.body.one_record import OneRecord
from dledger.records.body.sizer import split_batch
from dledger.records.body.typed import arrow_schema
from dledger.records.columns.partitioner import whole
from dledger.records.frames.arrow_columns import columns_of
from dledger.records.frames.coalescing import Coalescer
from dledger.records.frames.frames import GivenTable, Records, frame_of, records_of_frame
from dledger.records.frames.spreading import Spread

Piece: TypeAlias = tuple[int, Appendable]
"""A partition, and what goes there as one entry."""


class Pieces(NamedTuple):
    """The pieces of one append, in order; those of a table are made as they are taken."""

    info: TopicInfo
    pieces: Iterator[Piece]

    def first_two(self) -> tuple[Piece, Pieces | None]:
        """The only piece; or the first one, and all of them where there are several."""
        first = next(self.pieces)
        second = next(self.pieces, None)
        if second is None:
            return first, None
        return first, Pieces(self.info, itertools.chain((first, second), self.pieces))


def writer_of_one_append(core: ClientState) -> str:
    """The name of a writer of transactions that commits once."""
    return f"job/{core.environment.unique()}"


def appended_by(info: TopicInfo, done: Committed) -> Appended:
    """Where a transaction has put the records of one append."""
    spans = done.offsets[info.name].items()
    return Appended.of(info.name, [(partition, *span) for partition, span in spans])


def several_of(core: ClientState, name: str, records: Appendable) -> Operation[Pieces | None]:
    """Records by the partitions that their keys belong to; None where that is one, or they have no
    keys."""
    if isinstance(records, OneRecord) or "key" not in records.schema.names:
        return None
    info = yield from known_topic(core, name)
    parts = spread(core, info, None, records)
    return Pieces(info, iter(parts)) if len(parts) > 1 else None


def check_alone(**others: Values | Headers | Times | None) -> None:
    """Refuse what a table has as columns.

    Raises:
        ConfigError: with the name of the argument.
    """
    for name, given in others.items():
        if given is not None:
            raise ConfigError(
                f"{name} is for values of bytes: a table has its keys, headers and times as columns"
            )


def pieces_of(
    core: ClientState, topic: str | TopicInfo, data: Any, partition: int | None, evolve: bool
) -> Operation[Pieces]:
    """A table on its way into a topic.

    Args:
        partition: of all rows; None: by their keys.
        evolve: whether new and wider columns of the table become the topic's.

    Raises:
        TopicNotFound: there is no such topic.
        SchemaMismatch: the table does not fit the topic.
        ConfigError: it has no rows, or is no table.
    """
    info = topic
    if isinstance(info, str):
        info = yield from known_topic(core, info, partition)
    if info.typed:
        typed, frame = yield from _agreed(core, info, data, evolve)
        batches = _typed_rows(typed, frame)
    else:
        batches = records_of_frame(info.name, data)
        batches = itertools.chain((_first(info, batches),), batches)
    return Pieces(info, _cut(core, info, partition, batches))


def _agreed(
    core: ClientState, info: TopicInfo, data: Any, evolve: bool
) -> Operation[tuple[TypedTopic, GivenTable]]:
    known = core.schemas.get(info.log_id) or (yield from schemas(core, info))
    frame = frame_of(data, arrow_schema(known[-1]) if known else None)
    first = _first(info, frame.batches)  # an empty table changes no columns
    typed = yield from agree_schema(core, info, columns_of(frame.schema), evolve=evolve)
    return typed, GivenTable(frame.schema, itertools.chain((first,), frame.batches))


def _first(info: TopicInfo, batches: Iterator[Any]) -> Any:
    first = next(batches, None)
    if first is None:
        raise ConfigError(f"append to {info.name!r}: the table has no rows")
    return first


def _typed_rows(typed: TypedTopic, frame: GivenTable) -> Iterator[Records]:
    for batch in frame.batches:
        rows = typed.rows(batch)
        yield Records(rows, typed.keys(rows), None)


def _cut(
    core: ClientState, info: TopicInfo, partition: int | None, batches: Iterable[Records]
) -> Iterator[Piece]:
    """Rows without a key go to one partition, another one for each call."""
    core.turn += 1
    spreads, coalescer = Spread(first=core.turn), Coalescer()
    full: Iterable[tuple[str, int, pa.RecordBatch]]
    for batch, keys, asked in batches:
        rows = batch.num_rows
        if partition is not None:
            division = whole(place(core, info, partition, batch), rows)
        else:
            division = spreads.spread(info.name, info.partitions, rows, keys, asked)
        full = coalescer.add(info.name, batch, division)
        yield from _limited(core, full)
    yield from _limited(core, coalescer.rest())


def _limited(
    core: ClientState, bodies: Iterable[tuple[str, int, pa.RecordBatch]]
) -> Iterator[Piece]:
    for _, at, batch in bodies:
        for piece in split_batch(batch, max_body(core)):
            yield at, piece
