"""Records to bodies and back.

A body is a header of 64 bytes (see `dledger.records.body.header`) and one Arrow record batch
message. Columns that say nothing are not stored: keys and headers that are all null, and times that
are all the same.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger.errors import ConfigError, ProtocolError, RecordTooLarge
from dledger.records.body.build import as_records, constant_times
from dledger.records.body.header import (
    BODY_HEADER_SIZE,
    BodyHeader,
    BodyKind,
    Codec,
    Flag,
    encode_header,
    read_header,
)
from dledger.records.body.payload import compress, deserialize
from dledger.records.body.schema import (
    HEADERS,
    READ_SCHEMA,
    RECORD_SCHEMA,
    TIMESTAMP,
    payload_schema,
)
from dledger.records.body.typed import times_in, version_of
from dledger.records.body.unpacked_size import MAX_DECODED_BYTES, MAX_RECORDS
from dledger.records.columns.arrays import counting
from dledger.types import Buffer

_TIMES: Final = int(Flag.HAS_TIMES)
_KEYS: Final = int(Flag.HAS_KEYS)
_HEADERS: Final = int(Flag.HAS_HEADERS)
_OPTIONAL: Final = _TIMES | _KEYS | _HEADERS
_SCHEMAS: Final = {
    flags: payload_schema(bool(flags & _TIMES), bool(flags & _KEYS), bool(flags & _HEADERS))
    for flags in range(16)
    if flags & ~_OPTIONAL == 0
}


def encode_batch(
    batch: pa.RecordBatch,
    *,
    topic_id: int,
    partition: int,
    producer_id: int = 0,
    epoch: int = 0,
    sequence: int = 0,
    staged: bool = False,
    codec: Codec = Codec.NONE,
    now_us: int,
) -> tuple[bytes, pa.Buffer]:
    """Header and payload of a body, which is the two back to back. Slices are stored without the
    rows that they leave out. A batch that says its schema version
    (`dledger.records.body.typed.stamped`) is a typed topic's.

    Records without a time get ``now_us``, microseconds since 1970 UTC.

    Raises:
        ConfigError: columns that are no record's, or no records.
        RecordTooLarge: over MAX_RECORDS, or to be compressed and over MAX_DECODED_BYTES before
            that.
    """
    batch = as_records(batch)
    count = batch.num_rows
    if not count:
        raise ConfigError("a batch has at least one record")
    if count > MAX_RECORDS:
        raise RecordTooLarge(f"a batch of {count} records is over the {MAX_RECORDS} of a reader")
    if codec is not Codec.NONE and batch.nbytes > MAX_DECODED_BYTES:
        raise RecordTooLarge(
            f"a batch of {batch.nbytes} bytes is over the {MAX_DECODED_BYTES} that a reader unpacks"
        )
    version = version_of(batch.schema) if batch.schema.metadata else 0
    if version:
        first_us, last_us, times = _times(times_in(batch), count, now_us)
        flags = _TIMES if times is not None else 0
    else:
        batch, flags, first_us, last_us = _stored_columns(batch, now_us)
    if codec is Codec.NONE:
        payload = batch.serialize()
    else:
        payload, codec = compress(batch, codec)
    header = BodyHeader(
        BodyKind.DATA,
        topic_id,
        partition,
        count,
        first_us,
        last_us,
        producer_id,
        epoch,
        sequence,
        codec,
        Flag(flags | staged),
        version,
    )
    return encode_header(header), payload


def _stored_columns(batch: pa.RecordBatch, now_us: int) -> tuple[pa.RecordBatch, int, int, int]:
    """The columns of records that say something, their flags, smallest and largest time."""
    count = batch.num_rows
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    first_us, last_us, times = now_us, now_us, None
    if (given := columns.get("timestamp")) is not None:
        first_us, last_us, times = _times(given, count, now_us)
    arrays, flags = [], 0
    if times is not None:
        arrays.append(times)
        flags |= _TIMES
    keys = columns.get("key")
    if keys is not None and keys.null_count < count:
        arrays.append(keys)
        flags |= _KEYS
    arrays.append(columns["value"])
    headers = columns.get("headers")
    if headers is not None and headers.null_count < count:
        arrays.append(headers)
        flags |= _HEADERS
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMAS[flags]), flags, first_us, last_us


def _times(column: pa.Array | None, count: int, now_us: int) -> tuple[int, int, pa.Array | None]:
    """Smallest and largest time, and the column when they differ."""
    if column is None or column.null_count == count:
        return now_us, now_us, None
    numbers = column.view(pa.int64())
    if column.null_count:
        numbers = pc.fill_null(numbers, now_us)
    bounds = pc.min_max(numbers)
    first, last = bounds["min"].as_py(), bounds["max"].as_py()
    return first, last, None if first == last else numbers.view(TIMESTAMP)


def decode_batch(body: Buffer) -> tuple[BodyHeader, pa.RecordBatch]:
    """A body's header and its records in the RECORD_SCHEMA. The columns lie in ``body`` itself
    unless compressed.

    Raises:
        ProtocolError: no body of records.
        CorruptEntry: the payload contradicts the header.
    """
    view = memoryview(body)
    header = read_header(view)
    if header.kind is not BodyKind.DATA or header.schema_version:
        raise ProtocolError(
            f"the body is {header.kind.name} of schema {header.schema_version}, not plain "
            f"records; see decode_typed"
        )
    flags = int(header.flags) & _OPTIONAL
    count = header.count
    stored = deserialize(view[BODY_HEADER_SIZE:], _SCHEMAS[flags], header.codec, count)
    if flags == _OPTIONAL:
        return header, stored
    columns = iter(stored.columns)
    times = next(columns) if flags & _TIMES else constant_times(header.first_time_us, count)
    keys = next(columns) if flags & _KEYS else pa.nulls(count, pa.binary())
    value = next(columns)
    headers = next(columns) if flags & _HEADERS else pa.nulls(count, HEADERS)
    return header, pa.RecordBatch.from_arrays([times, keys, value, headers], schema=RECORD_SCHEMA)


def with_offsets(
    records: pa.RecordBatch, base_offset: int, start: int | None = None, end: int | None = None
) -> pa.RecordBatch:
    """Decoded records in the READ_SCHEMA, cut to the offsets [start, end)."""
    first = 0 if start is None else min(max(0, start - base_offset), records.num_rows)
    last = records.num_rows if end is None else max(first, min(records.num_rows, end - base_offset))
    if first or last < records.num_rows:
        records = records.slice(first, last - first)
    return pa.RecordBatch.from_arrays(
        [counting(base_offset + first, last - first), *records.columns], schema=READ_SCHEMA
    )
