"""Records as rows of a page that stays small, whatever they hold."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import escape

from dledger.console.views.text import clipped, visible

VALUE_FORMS: Final = ("text", "hex", "json")
PAGE_BYTES: Final = 64 << 10
"""Of all cells of a table, as they are sent."""
PAGE_CELLS: Final = 2000
SHOWN_COLUMNS: Final = 40
"""Of a typed topic in a table; the others are on the record's own page."""
CELL: Final = (12, 300)
"""Fewest and most characters of one cell."""
RECORD_BYTES: Final = 96 << 10
"""Of the value on a record's own page, as it is sent."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A record as it was read; of a large value only the beginning."""

    offset: int
    time_us: int
    key: bytes | None
    value: bytes | None
    size: int
    """Bytes of the whole value."""
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def whole(self) -> bool:
        return self.value is None or len(self.value) == self.size


@dataclass(frozen=True, slots=True)
class Cell:
    """Text of a table, without hidden characters; null where there is none."""

    text: str
    null: bool = False


@dataclass(frozen=True, slots=True)
class RecordRow:
    """One record of a table."""

    offset: int
    time_us: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class RecordTable:
    """Records with the heads of their cells."""

    heads: tuple[str, ...]
    rows: tuple[RecordRow, ...]
    more_columns: int = 0
    """Of a typed topic, that are not shown here."""


def most_rows(columns: Sequence[str]) -> int:
    """How many rows a table may have: wide ones have fewer."""
    return PAGE_CELLS // max(1, min(len(columns), SHOWN_COLUMNS))


def record_table(taken: Sequence[Taken], columns: Sequence[str] | None, form: str) -> RecordTable:
    """A table of key, value and headers, or of a typed topic's ``columns``."""
    if columns is None:
        heads: tuple[str, ...] = ("key", "value", "headers")
        texts = [[_text(one.key), value_text(one, form), _headers(one)] for one in taken]
    else:
        heads = tuple(columns[:SHOWN_COLUMNS])
        texts = [_typed(one, heads) for one in taken]
    share = PAGE_BYTES // max(1, len(taken) * len(heads))
    limit = min(max(share, CELL[0]), CELL[1])
    rows = tuple(
        RecordRow(one.offset, one.time_us, tuple(_cell(text, limit) for text in row))
        for one, row in zip(taken, texts, strict=True)
    )
    return RecordTable(heads, rows, max(0, len(columns or ()) - len(heads)))


def _cell(text: str | None, limit: int) -> Cell:
    return Cell("null", null=True) if text is None else Cell(fitting(text, limit))


def fitting(text: str, limit: int) -> str:
    """The beginning of a text, in at most some ``limit`` bytes of a page."""
    return _within(visible(text[: limit + 1]), limit)


def _within(text: str, limit: int) -> str:
    text = clipped(text, limit)
    # no character takes more than five bytes, and the mark takes three
    while 5 * len(text) > limit and len(str(escape(text)).encode()) > limit + 3:
        text = clipped(text, 3 * len(text) // 4)
    return text


def fitting_lines(text: str, limit: int) -> list[str]:
    """As `fitting`, of all lines of a text together."""
    whole = "\n".join(visible(line) for line in text[: limit + 1].split("\n"))
    return _within(whole, limit).split("\n")


def value_text(one: Taken, form: str, *, indent: int | None = None) -> str | None:
    """The value as text, hex or JSON; as text where it is no JSON."""
    if one.value is None:
        return None
    if form == "hex":
        return one.value.hex(" ")
    text = _text(one.value)
    if form == "json" and one.whole and text is not None:
        parsed = _parsed(text)
        if parsed is not _NO_JSON:
            return _dumped(parsed, indent)
    return text


def field_rows(one: Taken, columns: Sequence[str]) -> list[tuple[str, Cell]]:
    """A typed record's columns, one below the other."""
    share = max(64, RECORD_BYTES // max(1, len(columns)))
    texts = _typed(one, columns)
    return [(name, _cell(text, share)) for name, text in zip(columns, texts, strict=True)]


def header_rows(one: Taken) -> list[tuple[str, Cell]]:
    """The headers of a record, one below the other."""
    share = max(64, RECORD_BYTES // 4 // max(1, len(one.headers)))
    return [(fitting(name, share), _cell(_text(value), share)) for name, value in one.headers]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def _headers(one: Taken) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in one.headers)


def _typed(one: Taken, columns: Sequence[str]) -> list[str | None]:
    """The columns of a row that was read as JSON."""
    row = _parsed(_text(one.value) or "") if one.whole else _NO_JSON
    if not isinstance(row, dict):  # too large to be taken apart
        return [_text(one.value), *[""] * (len(columns) - 1)]
    found = {name.lower(): value for name, value in row.items()}
    return [_one_value(found.get(name.lower())) for name in columns]


def _one_value(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value and value.removeprefix(_POINT)
    return str(value) if type(value) is int else _dumped(value)


_NO_JSON: Final = object()
_POINT: Final = "\ue000"
"""In front of a number with a point: its digits stay as they are written, all of them."""


def _parsed(text: str) -> Any:
    """What a JSON text says, or `_NO_JSON`."""
    if _POINT in text or "\\ue000" in text.lower():
        return _NO_JSON
    try:
        return json.loads(text, parse_float=lambda digits: _POINT + digits)
    except (ValueError, RecursionError):
        return _NO_JSON


def _dumped(value: Any, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return re.sub(f'"{_POINT}([^"]*)"', r"\1", text)
