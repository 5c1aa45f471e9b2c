"""Format strings with kcat's letters, as one join of Arrow columns for a whole batch.

`Template.render` gives the text of all records of a batch in one piece of memory: no record is
touched by Python.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from dledger.config import nearest
from dledger.errors import ConfigError
from dledger.records.body.build import binary_column
from dledger.records.columns.arrays import numbers_of
from dledger.records.columns.json_text import lists_joined

Part: TypeAlias = pa.Array | pa.Scalar
"""A binary column without nulls, or what is the same for each record."""

_ESCAPE: Final = re.compile(r"\\(x[0-9A-Fa-f]{2}|.?)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\"}
_PIECE: Final = re.compile(rb"%(.?)|[^%]+", re.DOTALL)


def constant(content: bytes) -> pa.Scalar:
    """Not by ``pa.scalar``: its first call imports pandas."""
    return binary_column("text", content)[0]


EMPTY: Final = constant(b"")


@dataclass(frozen=True, slots=True)
class PrintedRecords:
    """Records of a partition, as they are printed."""

    topic: str
    partition: int
    batch: pa.RecordBatch
    """In the READ_SCHEMA."""
    null: pa.Scalar = field(default=EMPTY)
    """Stands for a key or value that is null."""

    def column(self, name: str) -> pa.Array:
        return self.batch.column(name)

    def filled(self, name: str) -> Part:
        column = self.column(name)
        return pc.fill_null(column, self.null) if column.null_count else column


def _sizes(records: PrintedRecords, name: str) -> pa.Array:
    """Bytes of each key or value; -1 for null."""
    return pc.fill_null(pc.binary_length(records.column(name)), -1)


def _text(numbers: pa.Array) -> pa.Array:
    return numbers.cast(pa.string()).cast(pa.binary())


def _framed(records: PrintedRecords) -> pa.Array:
    """The length of each value as 4 bytes, the highest first."""
    sizes = array("i", numbers_of(_sizes(records, "value")))
    if sys.byteorder == "little":
        sizes.byteswap()
    framed = pa.Array.from_buffers(pa.binary(4), len(sizes), [None, pa.py_buffer(sizes)])
    return framed.cast(pa.binary())


def _milliseconds(records: PrintedRecords) -> pa.Array:
    times = pc.fill_null(records.column("timestamp").cast(pa.int64()), -1000)
    return _text(pc.divide(times, 1000))


def _headers(records: PrintedRecords) -> Part:
    """``name=value,...``; a header without a value is its name."""
    column = records.column("headers")
    if column.null_count == len(column):
        return EMPTY
    names, values = column.flatten().flatten()
    told = pc.binary_join_element_wise(constant(b"="), values, EMPTY)
    pairs = pc.binary_join_element_wise(names.cast(pa.binary()), pc.fill_null(told, EMPTY), EMPTY)
    return lists_joined(column, pairs, constant(b","))


LETTERS: Final[dict[str, Callable[[PrintedRecords], Part]]] = {
    "s": lambda records: records.filled("value"),
    "S": lambda records: _text(_sizes(records, "value")),
    "R": _framed,
    "k": lambda records: records.filled("key"),
    "K": lambda records: _text(_sizes(records, "key")),
    "T": _milliseconds,
    "h": _headers,
    "t": lambda records: constant(records.topic.encode()),
    "p": lambda records: constant(str(records.partition).encode()),
    "o": lambda records: _text(records.column("offset")),
}
MEANINGS: Final = (
    "%s value, %S its bytes (-1: null), %R the same as 4 bytes, %k key, %K its bytes, %T time in "
    "ms, %h headers, %t topic, %p partition, %o offset, %% a percent sign"
)


def unescape(option: str, text: str) -> bytes:
    """Text with ``\\n``, ``\\r``, ``\\t``, ``\\0``, ``\\\\`` and ``\\xNN`` as its bytes.

    Raises:
        ConfigError: another letter stands behind a backslash.
    """
    parts: list[bytes] = []
    at = 0
    for found in _ESCAPE.finditer(text):
        parts.append(text[at : found.start()].encode())
        at, what = found.end(), found[1]
        if what in _ESCAPES:
            parts.append(_ESCAPES[what].encode())
        elif len(what) == 3:
            parts.append(bytes([int(what[1:], 16)]))
        else:
            raise ConfigError(
                f"{option} {text!r}: \\{what} means nothing: write \\n, \\r, \\t, \\0, \\xNN, or "
                "\\\\ for a backslash"
            )
    return b"".join([*parts, text[at:].encode()])


class Template:
    """A format string, ready to be filled in.

    Args:
        option: whose text it is, for messages.

    Raises:
        ConfigError: a letter that means nothing; the message has all of them.
    """

    def __init__(self, option: str, text: str) -> None:
        self._parts: list[bytes | Callable[[PrintedRecords], Part]] = []
        for found in _PIECE.finditer(unescape(option, text)):
            letter = found[1]
            if letter is None:
                self._parts.append(found[0])
            elif letter == b"%":
                self._parts.append(b"%")
            elif (name := letter.decode("latin-1")) in LETTERS:
                self._parts.append(LETTERS[name])
            else:
                hint = nearest(name.swapcase(), list(LETTERS)) if name else ""
                raise ConfigError(
                    f"{option} {text!r}: %{name} means nothing{hint}; the letters are {MEANINGS}"
                )

    def render(self, records: PrintedRecords) -> memoryview:
        """The text of all records, one behind the other."""
        return joined(
            [constant(p) if isinstance(p, bytes) else p(records) for p in self._parts],
            records.batch.num_rows,
        )


def joined(parts: list[Part], rows: int) -> memoryview:
    """The parts of each row one behind the other, all rows in one piece of memory."""
    if not any(isinstance(part, pa.Array) for part in parts):
        return memoryview(b"".join(part.as_py() for part in parts) * rows)
    text = pc.binary_join_element_wise(*parts, EMPTY)
    _, offsets, data = text.buffers()
    places = memoryview(offsets).cast("i")
    return memoryview(data)[places[text.offset] : places[text.offset + len(text)]]
