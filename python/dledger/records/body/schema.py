"""A record in Arrow. The offset is not stored with it: it follows from the batch's place in its
partition."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("timestamp", TIMESTAMP),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""The schema of written records. Only ``value`` must be there; a null in it is a record without a
value."""
READ_SCHEMA: Final = pa.schema([pa.field("offset", pa.int64()), *RECORD_SCHEMA])
"""The schema of read records."""


def payload_schema(times: bool, keys: bool, headers: bool) -> pa.Schema:
    """The columns of a payload, in order, by the optional ones it has."""
    present = {"timestamp": times, "key": keys, "value": True, "headers": headers}
    return pa.schema([field for field in RECORD_SCHEMA if present[field.name]])
