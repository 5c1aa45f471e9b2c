"""Batches of the right size: large ones cut by slicing, small ones put together; no row is looked
at by itself."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from dledger.errors import ConfigError, RecordTooLarge
from dledger.records.body.build import as_records
from dledger.records.body.header import BODY_HEADER_SIZE
from dledger.records.body.schema import RECORD_SCHEMA
from dledger.records.body.typed import version_of
from dledger.records.body.unpacked_size import MAX_RECORDS

OVERHEAD: Final = BODY_HEADER_SIZE + 1024
"""Most that a body has beside its columns: header, Arrow's metadata, and padding of its buffers."""


def split_batch(batch: pa.RecordBatch, max_bytes: int) -> list[pa.RecordBatch]:
    """Slices, in order, whose bodies have up to ``max_bytes`` bytes each; no rows: no slices.

    Raises:
        RecordTooLarge: one record alone is over.
        ConfigError: columns that are no record's, or ``max_bytes`` too small for any record.
    """
    limit = max_bytes - OVERHEAD
    if limit <= 0:
        raise ConfigError(
            f"max_bytes {max_bytes}: a body needs {OVERHEAD} bytes beside its records"
        )
    batch = as_records(batch)
    pieces: list[pa.RecordBatch] = []
    start, rows = 0, batch.num_rows
    guess = rows
    while start < rows:
        take = _fitting(batch, start, min(guess, rows - start, MAX_RECORDS), limit)
        if not take:
            size = batch.slice(start, 1).nbytes
            raise RecordTooLarge(
                f"record {start} has {size} bytes, a body of {max_bytes} bytes has room for {limit}"
            )
        pieces.append(batch.slice(start, take))
        start += take
        guess = 2 * take
    return pieces


def _fitting(batch: pa.RecordBatch, start: int, most: int, limit: int) -> int:
    """How many rows from ``start`` on fit, up to ``most``."""
    if batch.slice(start, most).nbytes <= limit:
        return most
    return bisect_right(range(1, most), limit, key=lambda rows: batch.slice(start, rows).nbytes)


def coalesce(batches: Iterable[pa.RecordBatch], max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same records in the same order, neighbours put together while their body stays within
    ``max_bytes``. A batch that is larger by itself comes as it is.

    Raises:
        ConfigError: columns that are no record's.
    """
    held: list[pa.RecordBatch] = []
    total = OVERHEAD
    for each in batches:
        batch = as_records(each)
        if not batch.num_rows:
            continue
        size = batch.nbytes
        if held and (total + size > max_bytes or not _alike(held[0].schema, batch.schema)):
            yield _together(held)
            held, total = [], OVERHEAD
        held.append(batch)
        total += size
    if held:
        yield _together(held)


def _alike(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether batches can be put together: both of records, or of one version of a typed topic."""
    version = version_of(one)
    return version == version_of(other) and (not version or one.equals(other))


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch; a column that only some have is null for the others."""
    if len(batches) == 1:
        return batches[0]
    if version_of(batches[0].schema):
        return pa.concat_batches(batches)
    present = {name for batch in batches for name in batch.schema.names}
    arrays, fields = [], []
    for field in RECORD_SCHEMA:
        if field.name in present:
            fields.append(field)
            arrays.append(pa.concat_arrays([_column(batch, field) for batch in batches]))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    there = field.name in batch.schema.names
    return batch.column(field.name) if there else pa.nulls(batch.num_rows, field.type)
