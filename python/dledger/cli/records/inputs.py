"""Records of files and pipes: lines, frames, base64, JSON lines, whole files.

Each function gives batches of record columns: ``value``, and those of ``key``, ``headers``,
``timestamp`` and ``partition`` that are there. An error names the input and the line.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Final

import pyarrow as pa
import pyarrow.compute as pc

from dledger.errors import ConfigError, PathError, RecordTooLarge
from dledger.records.body.build import binary_column, headers_column
from dledger.records.body.one_records import gather_values
from dledger.records.body.schema import HEADERS, TIMESTAMP
from dledger.records.columns.arrays import number, numbers_of, offsets_of, repeated

CHUNK: Final = 1 << 20
"""Bytes of one read; of a pipe those that are there, so that a slow one's lines go out as they
come."""
MAX_LINE: Final = 64 << 20
_DECODE: Final = partial(binascii.a2b_base64, strict_mode=True)
_LENGTH: Final = 4
_NO_VALUE: Final = 0xFFFFFFFF
_TEXT: Final = pa.string()
_JSON_HEADERS: Final = pa.list_(
    pa.struct([("key", _TEXT), ("value", _TEXT), ("value_base64", _TEXT)])
)
JSON_SCHEMA: Final = pa.schema(
    [
        ("topic", _TEXT),
        ("partition", pa.int64()),
        ("offset", pa.int64()),
        ("timestamp", _TEXT),
        ("key", _TEXT),
        ("key_base64", _TEXT),
        ("value", _TEXT),
        ("value_base64", _TEXT),
        ("headers", _JSON_HEADERS),
    ]
)
"""Fields of a JSON line, as ``dledger tail --json`` writes them."""
_ROW: Final = re.compile(r"\bin row (\d+)")


@dataclass(frozen=True, slots=True)
class Input:
    """A file or pipe that is read."""

    name: str
    stream: IO[bytes]


@dataclass(frozen=True, slots=True)
class Lines:
    """How lines become records, as the options say it."""

    delimiter: bytes = b"\n"
    key_delimiter: bytes | None = None
    null: bytes | None = None
    """A key or value of these bytes is null."""
    base64: bool = False


def pieces(given: Input, delimiter: bytes) -> Iterator[bytes]:
    """The content in pieces that end where a delimiter stands, without that one.

    Raises:
        RecordTooLarge: there is none in `MAX_LINE` bytes.
    """
    rest = b""
    while data := given.stream.read1(CHUNK):  # type: ignore[attr-defined]
        known = max(0, len(rest) - len(delimiter) + 1)
        rest += data
        cut = rest.rfind(delimiter, known)
        if cut >= 0:
            yield rest[:cut]
            rest = rest[cut + len(delimiter) :]
        if len(rest) > MAX_LINE:
            raise RecordTooLarge(
                f"{given.name}: no delimiter {delimiter!r} in {len(rest):,} bytes: name another "
                "one with --delimiter, or make each file one record with --format file"
            )
    if rest:
        yield rest


def line_records(given: Input, how: Lines) -> Iterator[pa.RecordBatch]:
    """A record of each line."""
    first = 1
    for piece in pieces(given, how.delimiter):
        lines = piece.split(how.delimiter)
        yield records_of_lines(lines, how, given.name, first)
        first += len(lines)


def records_of_lines(lines: Sequence[bytes], how: Lines, name: str, first: int) -> pa.RecordBatch:
    """A record of each line; ``first`` is the number of the first one, for messages."""
    columns: dict[str, Sequence[bytes] | pa.Array] = {"value": lines}
    if how.key_delimiter is not None:
        columns = dict(split_keys(lines, how.key_delimiter, name, first))
    if how.base64:
        columns = {one: decoded(texts, name, first) for one, texts in columns.items()}
    made = {one: _with_nulls(binary_column(one, v), how.null) for one, v in columns.items()}
    return pa.RecordBatch.from_pydict(made)


def split_keys(
    lines: Sequence[bytes], delimiter: bytes, name: str, first: int
) -> dict[str, pa.Array]:
    """Keys and values of lines, of which ``first`` is the number of the first one. Raises
    `ConfigError` for a line without the delimiter."""
    column = binary_column("value", lines)
    keys = pc.find_substring(column, delimiter).cast(pa.int64())
    if lines and pc.min_max(keys)["min"].as_py() < 0:
        at = next(at for at, key in enumerate(numbers_of(keys)) if key < 0)
        raise ConfigError(
            f"{name}: line {first + at} ({lines[at][:60]!r}) has no key delimiter {delimiter!r}"
        )
    offsets = offsets_of(column).cast(pa.int64())
    starts, ends = offsets.slice(0, len(column)), offsets.slice(1)
    values = pc.add(pc.add(starts, keys), number(pa.int64(), len(delimiter)))
    data = column.buffers()[2] or b""
    return {
        "value": gather_values(data, numbers_of(values), numbers_of(pc.subtract(ends, values))),
        "key": gather_values(data, numbers_of(starts), numbers_of(keys)),
    }


def decoded(given: Sequence[bytes] | pa.Array, name: str, first: int) -> list[bytes]:
    """Raises `ConfigError` for a line that is no base64."""
    texts: list[bytes] = given.to_pylist() if isinstance(given, pa.Array) else list(given)
    found: list[bytes] = []
    try:
        found.extend(map(_DECODE, texts))
    except binascii.Error as error:
        at = len(found)
        raise ConfigError(
            f"{name}: line {first + at} ({texts[at][:60]!r}) is no base64: {error}"
        ) from None
    return found


def _with_nulls(column: pa.Array, null: bytes | None) -> pa.Array:
    if null is None:
        return column
    is_null = pc.equal(column, binary_column("null", null)[0])
    return pc.if_else(is_null, pa.nulls(1, pa.binary())[0], column)


def framed_records(given: Input) -> Iterator[pa.RecordBatch]:
    """A record of each value that stands behind its length: 4 bytes, the highest first; a length of
    -1 is a value that is null."""
    rest, number = b"", 0
    while True:
        data = given.stream.read1(CHUNK)  # type: ignore[attr-defined]
        rest += data
        values, at = _frames(rest)
        if values:
            yield pa.RecordBatch.from_pydict({"value": binary_column("value", values)})
        rest, number = rest[at:], number + len(values)
        if not data:
            break
        if len(rest) > MAX_LINE:
            raise _broken_frame(given, number, rest)
    if rest:
        raise _broken_frame(given, number, rest)


def _frames(data: bytes) -> tuple[list[bytes | None], int]:
    """The values that are there as a whole, and where the next frame begins."""
    values: list[bytes | None] = []
    at, end = 0, len(data)
    while (start := at + _LENGTH) <= end:
        size = int.from_bytes(data[at:start], "big")
        if size == _NO_VALUE:
            values.append(None)
            at = start
            continue
        if start + size > end:
            break
        at = start + size
        values.append(data[start:at])
    return values, at


def _broken_frame(given: Input, number: int, rest: bytes) -> ConfigError:
    told = f"says {int.from_bytes(rest[:_LENGTH], 'big'):,} bytes" if len(rest) >= _LENGTH else ""
    there = f"and {max(0, len(rest) - _LENGTH):,} are there" if told else "ends within its length"
    return ConfigError(
        f"{given.name}: frame {number + 1} {told} {there}: each value stands behind its length, "
        "4 bytes, the highest first"
    )


def json_records(given: Input) -> Iterator[pa.RecordBatch]:
    """A record of each JSON line."""
    for batch, first, piece in _parsed(given, JSON_SCHEMA):
        try:
            yield _of_json(batch)
        except pa.ArrowInvalid as error:
            raise _broken_json(given, first, piece, error, JSON_SCHEMA) from None


def json_batches(given: Input, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """A row of each JSON line."""
    for batch, _, _ in _parsed(given, schema):
        yield batch


def _parsed(given: Input, schema: pa.Schema) -> Iterator[tuple[pa.RecordBatch, int, bytes]]:
    """The rows of JSON lines, with the number of the first one of these, and the lines."""
    from pyarrow.json import ParseOptions, ReadOptions, read_json

    first = 1
    options = ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    for piece in pieces(given, b"\n"):
        block = ReadOptions(use_threads=False, block_size=len(piece) + 2)
        if piece.strip():
            try:
                table = read_json(pa.BufferReader(piece + b"\n"), block, options)
            except pa.ArrowException as error:
                raise _broken_json(given, first, piece, error, schema) from None
            for batch in table.combine_chunks().to_batches():
                yield batch, first, piece
        first += piece.count(b"\n") + 1


def _broken_json(
    given: Input, first: int, piece: bytes, error: Exception, schema: pa.Schema
) -> ConfigError:
    """The line is looked for: Arrow counts no empty ones."""
    found = _ROW.search(str(error))
    numbered = [(first + n, x) for n, x in enumerate(piece.split(b"\n")) if x.strip()]
    where = f"lines {first} and behind"
    if found is not None and int(found[1]) < len(numbered):
        number, line = numbered[int(found[1])]
        where = f"line {number} ({line[:60]!r})"
    told = f"{given.name}: {where}: {error}; a line is an object with any of "
    told += ", ".join(schema.names)
    if schema is JSON_SCHEMA:
        told += "; leave out --format json to append lines as they are"
    return ConfigError(told)


def _of_json(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = {"value": _bytes_of(batch, "value")}
    key = _bytes_of(batch, "key")
    if key.null_count < len(key):
        columns["key"] = key
    if (times := batch.column("timestamp")).null_count < len(times):
        columns["timestamp"] = times.cast(TIMESTAMP)
    if (places := batch.column("partition")).null_count < len(places):
        columns["partition"] = places
    if (headers := batch.column("headers")).null_count < len(headers):
        columns["headers"] = headers_of(headers)
    return pa.RecordBatch.from_pydict(columns)


def headers_of(column: pa.Array) -> pa.Array:
    """Headers as JSON has them in the type of records."""
    items = column.flatten()
    parts = pa.RecordBatch.from_struct_array(items)
    pairs = pa.StructArray.from_arrays(
        [parts.column("key"), _bytes_of(parts, "value")], fields=list(HEADERS.value_type)
    )
    return pa.ListArray.from_arrays(column.offsets, pairs, mask=column.is_null())


def _bytes_of(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A field as its text says, else as its base64."""
    plain = batch.column(name).cast(pa.binary())
    texts = batch.column(f"{name}_base64")
    if texts.null_count == len(texts):
        return plain
    try:
        raw = [None if text is None else _DECODE(text) for text in texts.to_pylist()]
    except binascii.Error as error:
        raise pa.ArrowInvalid(f"{name}_base64 is no base64: {error}") from None
    return pc.coalesce(plain, pa.array(raw, pa.binary()))


def file_records(paths: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """A record of each file."""
    for path in paths:
        try:
            yield pa.RecordBatch.from_pydict({"value": binary_column("value", path.read_bytes())})
        except OSError as error:
            raise PathError(f"{path}: {error.strerror}") from None


class Decoration:
    """Key and headers of every record, as the options say them.

    Args:
        headers: ``name=value``, or ``name`` for one without a value.
    """

    def __init__(self, key: str | None, headers: Sequence[str]) -> None:
        self._key = key
        self._headers: list[tuple[str, bytes | None]] = []
        for text in headers:
            name, equals, value = text.partition("=")
            if not name:
                raise ConfigError(f"--header {text!r} has no name: write name=value")
            self._headers.append((name, value.encode() if equals else None))

    def put_on(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same records with them, in place of their own."""
        if self._key is not None:
            batch = _with(batch, "key", binary_column("key", self._key.encode()))
        if self._headers:
            batch = _with(batch, "headers", headers_column(self._headers, 1))
        return batch


def _with(batch: pa.RecordBatch, name: str, one: pa.Array) -> pa.RecordBatch:
    """A column of ``one`` for all rows."""
    column = one.take(repeated(pa.int8(), 0, batch.num_rows))
    at = batch.schema.get_field_index(name)
    return batch.append_column(name, column) if at < 0 else batch.set_column(at, name, column)
