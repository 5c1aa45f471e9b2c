"""Tables as programs have them: pyarrow's, those of any library with the Arrow PyCapsule interface
(Polars, DuckDB, pandas), and rows of Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias, TypeGuard

import pyarrow as pa

from dledger.config import MIB
from dledger.errors import ConfigError, SchemaMismatch
from dledger.interrupts import is_interrupt
from dledger.records.body.build import as_records, make_records
from dledger.records.frames.python_rows import are_rows, columns_of_rows, table_of

AT_ONCE: Final = 16 * MIB
"""Bytes of a batch that are prepared together."""
_TABLES: Final = ("__arrow_c_stream__", "__arrow_c_array__", "to_reader", "scanner")
"""What a table has: the last two are those of `pyarrow.dataset`."""
NOT_STORED: Final = frozenset({"offset"})
"""Columns of a read that the log assigns itself."""


class ArrowStream(Protocol):
    """A table of any library: Polars, DuckDB, pandas from 2.2 on, pyarrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class ArrowArray(Protocol):
    """A batch of any library."""

    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...


class DataclassRow(Protocol):
    """An instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Rows: TypeAlias = (
    ArrowStream
    | ArrowArray
    | Mapping[str, Any]
    | Sequence[Mapping[str, Any]]
    | DataclassRow
    | Sequence[DataclassRow]
)
"""A table (of pyarrow, Polars, pandas, DuckDB, ...), a dict of columns, each a list or an array, a
list of rows that are dicts or instances of a dataclass, or one such instance."""


class GivenTable(NamedTuple):
    """A table on its way into a topic."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


def is_frame(data: Any) -> TypeGuard[Rows]:
    """Whether data is a table or rows, and not the bytes of records."""
    if isinstance(data, (pa.Array, pa.ChunkedArray, bytes, str)):
        return False
    return (
        isinstance(data, (pa.RecordBatch, Mapping))
        or any(hasattr(data, name) for name in _TABLES)
        or are_rows(data)
    )


def frame_of(data: Any, known: pa.Schema | None = None) -> GivenTable:
    """The table that is meant; batches are not larger than `AT_ONCE`, or of one row.

    Args:
        known: the schema of the topic, for values of Python.

    Raises:
        SchemaMismatch: rows of Python that are no table.
        ConfigError: the object gives no table.
    """
    if are_rows(data):
        columns, hints = columns_of_rows(data)
        data = table_of(columns, known, hints)
    elif isinstance(data, Mapping):
        data = table_of(data, known)
    if isinstance(data, pa.RecordBatch):
        return GivenTable(data.schema, _cut((data,)))
    if isinstance(data, pa.Table):
        return GivenTable(data.schema, _cut(data.to_batches()))
    try:
        reader = _reader(data)
    except (TypeError, ValueError, pa.ArrowException) as error:
        if is_interrupt(error):
            raise
        raise ConfigError(f"{type(data).__name__} is no table of Arrow: {error}") from error
    return GivenTable(reader.schema, _cut(reader))


def _reader(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    return (data if hasattr(data, "to_reader") else data.scanner()).to_reader()


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with values in place of dictionaries, whose casts Arrow does not have for all
    types."""
    for at, column in enumerate(batch.columns):
        if isinstance(column, pa.DictionaryArray):
            values, kind = column.dictionary, column.dictionary.type
            if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
                values = values.cast(pa.string() if pa.types.is_string_view(kind) else pa.binary())
            decoded = pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
            field = batch.schema.field(at).with_type(decoded.type)
            batch = batch.set_column(at, field, decoded)
    return batch


def _cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in map(_plain, batches):
        rows = batch.num_rows
        most = max(1, rows * AT_ONCE // max(batch.nbytes, 1))
        for start in range(0, rows, most):
            yield batch.slice(start, most) if most < rows else batch


class Records(NamedTuple):
    """Rows as they are stored, their keys as bytes where any has one, and the partitions that they
    ask for where any does."""

    batch: pa.RecordBatch
    keys: pa.Array | None
    partitions: pa.Array | None


def _records(batch: pa.RecordBatch, asked: pa.Array | None) -> Records:
    at, keys = batch.schema.get_field_index("key"), None
    if at >= 0 and batch.column(at).null_count < batch.num_rows:
        keys = batch.column(at).cast(pa.binary())
    return Records(batch, keys, _partitions(asked))


def records_of_frame(topic: str, data: Any) -> Iterator[Records]:
    """A table of ``value`` and any of ``key``, ``headers``, ``timestamp`` and ``partition`` as
    records; ``offset`` is left out.

    Raises:
        SchemaMismatch: other columns, which a topic of keys and values has no place for.
        ConfigError: a column has a type that cannot be.
    """
    if are_rows(data) or isinstance(data, Mapping):
        columns = columns_of_rows(data)[0] if are_rows(data) else dict(data)
        _check_names(topic, list(columns))
        yield _records_of_columns(columns)
        return
    frame = frame_of(data)
    _check_names(topic, frame.schema.names)
    names = [name for name in frame.schema.names if name not in NOT_STORED | {"partition"}]
    for batch in frame.batches:
        asked = batch.column("partition") if "partition" in batch.schema.names else None
        yield _records(as_records(batch.select(names)), asked)


def _records_of_columns(columns: dict[str, Any]) -> Records:
    asked = columns.get("partition")
    records = make_records(
        columns["value"],
        keys=columns.get("key"),
        headers=columns.get("headers"),
        timestamps=columns.get("timestamp"),
    )
    return _records(records, None if asked is None else pa.array(asked))


def _partitions(asked: pa.Array | None) -> pa.Array | None:
    """The column ``partition`` as numbers.

    Raises:
        ConfigError: it has something else.
    """
    if asked is None or pa.types.is_null(asked.type):
        return None
    if not pa.types.is_integer(asked.type):
        raise ConfigError(f"column 'partition' has type {asked.type}; it has whole numbers")
    return asked.cast(pa.int64())


def _check_names(topic: str, names: list[str]) -> None:
    record = {"value", "key", "headers", "timestamp", "partition"}
    others = [name for name in names if name not in record | NOT_STORED]
    if others or "value" not in names:
        what = f"not {', '.join(others)}" if others else "and value must be among them"
        raise SchemaMismatch(
            f"topic {topic!r} is of keys and values: its columns are value, key, headers, "
            f"timestamp and partition, {what}. For columns of their own create a typed topic: "
            f"client.create_topic({topic + '-rows'!r}, schema=data)"
        )
