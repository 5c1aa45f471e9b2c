"""Records of tables: CSV, Arrow and Parquet, as batches of columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import pyarrow as pa

from dledger.cli.records.format_string import constant, joined
from dledger.cli.records.inputs import JSON_SCHEMA, Input, headers_of
from dledger.errors import ConfigError, PathError
from dledger.records.body.schema import RECORD_SCHEMA, TIMESTAMP

RECORD_COLUMNS: Final = ("partition", *RECORD_SCHEMA.names)
LEFT_OUT: Final = ("topic", "offset")
"""Columns of a table of records that an append does not take: it gives offsets of its own."""
_MOST_TOLD: Final = 10
_ARROW_FILE: Final = b"ARROW1"


def table_batches(
    given: Input, form: str, types: dict[str, pa.DataType]
) -> Iterator[pa.RecordBatch]:
    """The rows of a table.

    Args:
        form: csv, arrow or parquet.
        types: of columns of CSV; others are found out from the first rows.

    Raises:
        ConfigError: it is no such table, or has a broken row; the message has its number.
    """
    if form == "csv":
        if given.stream.seekable():  # a broken row is found before anything is appended
            for _ in _csv(given, types):
                continue
            given.stream.seek(0)
        yield from _csv(given, types)
        return
    try:
        if form == "arrow":
            yield from _arrow(given)
        else:
            from pyarrow.parquet import ParquetFile

            yield from ParquetFile(given.stream).iter_batches()
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"{given.name} is no {form} file, or a damaged one: {error}") from None


def _arrow(given: Input) -> Iterator[pa.RecordBatch]:
    """A stream, or a file of Arrow (Feather)."""
    if _is_arrow_file(given.stream):
        found = pa.ipc.open_file(given.stream)
        for at in range(found.num_record_batches):
            yield found.get_batch(at)
        return
    yield from pa.ipc.open_stream(given.stream)


def _is_arrow_file(stream: IO[bytes]) -> bool:
    """Of Arrow's two forms a pipe has the stream alone."""
    if not stream.seekable():
        return False
    head = stream.read(len(_ARROW_FILE))
    stream.seek(0)
    return head == _ARROW_FILE


def schema_of_file(path: Path) -> pa.Schema:
    """The schema of a file of Arrow or Parquet, by its name.

    Raises:
        PathError: it cannot be read.
        ConfigError: it is no such file.
    """
    form = "parquet" if path.suffix.lower() == ".parquet" else "arrow"
    try:
        with path.open("rb") as stream:
            if form == "parquet":
                from pyarrow.parquet import read_schema

                return read_schema(stream)
            is_file = _is_arrow_file(stream)
            return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(stream).schema
    except pa.ArrowException as error:
        raise ConfigError(f"{path} is no {form} file, or a damaged one: {error}") from None
    except OSError as error:
        raise PathError(f"{path}: {error.strerror or error}") from None


def _csv(given: Input, types: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, open_csv

    broken: list[str] = []

    def note(row: Any) -> str:
        if len(broken) < _MOST_TOLD:
            broken.append(f"row {row.number} ({row.text[:60]!r})")
        return "skip"

    try:
        rows = open_csv(
            given.stream,
            ReadOptions(use_threads=False, block_size=4 << 20),
            ParseOptions(newlines_in_values=True, invalid_row_handler=note),
            ConvertOptions(
                column_types=types,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        for batch in rows:
            if broken:
                break
            yield batch
    except pa.ArrowException as error:
        raise ConfigError(
            f"{given.name}: {_with_row(str(error))}; the header is row 1: mend the row, or give "
            "the column another type"
        ) from None
    if broken:
        raise ConfigError(
            f"{given.name}: {', '.join(broken)}: not as many columns as the header, which is row "
            "1: mend them, or quote what has commas in it"
        )


def _with_row(text: str) -> str:
    return text.replace("Row #", "row ").replace("In CSV column #", "column ")


CSV_TYPES: Final = {
    "topic": pa.string(), "offset": pa.int64(), "partition": pa.int64(), "key": pa.binary(),
    "value": pa.binary(), "headers": pa.string(), "timestamp": TIMESTAMP,
}  # fmt: skip
"""Columns of records in CSV."""


def record_columns(given: Input, topic: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of records.

    Raises:
        ConfigError: the table has others, or no values.
    """
    names = batch.schema.names
    others = [name for name in names if name not in (*RECORD_COLUMNS, *LEFT_OUT)]
    if others or "value" not in names:
        raise ConfigError(
            f"{given.name} has the columns {', '.join(names)}, and topic {topic!r} takes records "
            f"of value and any of {', '.join(n for n in RECORD_COLUMNS if n != 'value')}: rename "
            "them, or append to a typed topic, which --create makes of the table's columns"
        )
    kept = batch.select([name for name in RECORD_COLUMNS if name in names])
    at = kept.schema.get_field_index("headers")
    if at >= 0 and pa.types.is_string(kept.schema.field(at).type):
        kept = kept.set_column(at, "headers", _parsed(given, kept.column(at)))
    return kept


def _parsed(given: Input, texts: pa.Array) -> pa.Array:
    """Headers of their JSON, all at once."""
    import pyarrow.compute as pc
    from pyarrow.json import ParseOptions, ReadOptions, read_json

    filled = pc.fill_null(texts.cast(pa.binary()), constant(b"null"))
    lines = bytes(joined([constant(b'{"headers": '), filled, constant(b"}\n")], len(texts)))
    schema = pa.schema([JSON_SCHEMA.field("headers")])
    options = ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    block = ReadOptions(use_threads=False, block_size=len(lines) + 1)
    try:
        found = read_json(pa.BufferReader(lines), block, options)
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"{given.name}: a column headers holds lists as in "
            f'[{{"key": "trace", "value": "7"}}]: {error}'
        ) from None
    return headers_of(found.column("headers").combine_chunks())
