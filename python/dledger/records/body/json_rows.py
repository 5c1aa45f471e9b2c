"""Bodies of typed topics as records, for a reader of keys and values: the key column's text, and
the row as JSON."""

from __future__ import annotations

import pyarrow as pa

from dledger.records.body.schema import HEADERS, RECORD_SCHEMA
from dledger.records.body.typed import Schemas, decode_typed, key_bytes, record_times
from dledger.records.columns.json_text import rows_as_json
from dledger.types import Buffer


def as_records(body: Buffer, schemas: Schemas) -> pa.RecordBatch:
    """A typed topic's body in the RECORD_SCHEMA.

    Raises:
        ProtocolError: no body of a typed topic, or of an unknown version.
        CorruptEntry: the payload contradicts the header.
    """
    header, columns, batch = decode_typed(body, schemas)
    key = key_bytes(columns, batch)
    return pa.RecordBatch.from_arrays(
        [
            record_times(header, columns, batch),
            pa.nulls(header.count, pa.binary()) if key is None else key,
            rows_as_json(columns, batch).cast(pa.binary()),
            pa.nulls(header.count, HEADERS),
        ],
        schema=RECORD_SCHEMA,
    )
