"""Columns of a typed topic as people have them: ``id bigint, ...``, Spark's JSON, JSON Schema, and
files of Arrow and Parquet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from dledger.config import nearest
from dledger.errors import ConfigError, PathError
from dledger.records.columns.types import ATOMS, Columns, build

_TOKEN: Final = re.compile(r"\s*([A-Za-z_][\w.-]*|`[^`]+`|\d+|[<>(),:]|\S)")
_WORDS: Final = {
    "tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long", "real": "float",
    "bool": "boolean", "text": "string", "varchar": "string", "bytes": "binary",
    **{name: name for name in ATOMS},
}  # fmt: skip
"""Names of types, and Spark's in its JSON."""
_JSON_TYPES: Final = {"integer": "long", "number": "double", "boolean": "boolean", "null": "void"}
_FORMATS: Final = {"date-time": "timestamp", "date": "date", "time": "time(6)"}
EXAMPLE: Final = "'id bigint not null, at timestamp, tags array<string>'"


def columns_of_text(given: str, key: str = "", time: str = "") -> Columns:
    """The columns of a file or of a text.

    Args:
        given: the name of a file of JSON, Arrow or Parquet, or ``name type, ...``.
        key: the column that says a record's partition.
        time: the column with each record's time.

    Raises:
        ConfigError: it says no columns, or some that cannot be; with the way out.
        PathError: the file cannot be read.
    """
    path = Path(given)
    if path.suffix.lower() in (".parquet", ".arrow", ".arrows", ".feather"):
        from dledger.cli.records.table_input import schema_of_file
        from dledger.records.frames.arrow_columns import columns_of

        return columns_of(schema_of_file(path), key, time)
    if path.suffix.lower() != ".json":
        return build(_parsed(given), key, time)
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise PathError(f"--from-schema {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"--from-schema {path} is no JSON: {error}") from None
    if not isinstance(data, dict):
        data = {}
    if isinstance(data.get("fields"), list):
        return Columns.parse(
            json.dumps(data | {n: v for n, v in (("key", key), ("time", time)) if v})
        )
    if isinstance(data.get("properties"), dict):
        return build(list(_properties(data, str(path))), key, time)
    raise ConfigError(
        f"--from-schema {path} is neither a JSON Schema (an object with properties) nor the JSON "
        "of Spark's StructType (an object with fields)"
    )


class _Tokens:
    """The words of a text, one after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = [found[1] for found in _TOKEN.finditer(text)]

    @property
    def next(self) -> str:
        return self._words[0] if self._words else ""

    def take(self) -> str:
        return self._words.pop(0) if self._words else ""

    def took(self, *words: str) -> bool:
        """Whether these come next; then they are taken."""
        if [word.lower() for word in self._words[: len(words)]] != list(words):
            return False
        del self._words[: len(words)]
        return True

    def expect(self, word: str) -> None:
        if not self.took(word):
            raise self.error(f"{word!r} is missing before {self.next or 'the end'!r}")

    def error(self, why: str) -> ConfigError:
        return ConfigError(f"--from-schema {self._text!r}: {why}; write columns as in {EXAMPLE}")


def _parsed(text: str) -> list[dict[str, Any]]:
    """The fields of ``name type [not null], ...``."""
    tokens = _Tokens(text)
    fields = list(_fields(tokens, ""))
    if tokens.next:
        raise tokens.error(f"{tokens.next!r} stands where a comma belongs")
    return fields


def _fields(tokens: _Tokens, colon: str) -> Iterator[dict[str, Any]]:
    while True:
        name = tokens.take().strip("`")
        if not re.match(r"\w", name):
            raise tokens.error(f"the name of a column is missing before {name or 'the end'!r}")
        if colon:
            tokens.took(colon)
        kind = _type(tokens, name)
        yield {"name": name, "type": kind, "nullable": not tokens.took("not", "null")}
        if not tokens.took(","):
            return


def _type(tokens: _Tokens, column: str) -> Any:
    word = tokens.take().lower()
    match word:
        case "array":
            tokens.expect("<")
            found: Any = {"type": "array", "elementType": _type(tokens, column)}
            tokens.expect(">")
            return found | {"containsNull": True}
        case "map":
            tokens.expect("<")
            key = _type(tokens, column)
            tokens.expect(",")
            found = {"type": "map", "keyType": key, "valueType": _type(tokens, column)}
            tokens.expect(">")
            return found | {"valueContainsNull": True}
        case "struct":
            tokens.expect("<")
            found = {"type": "struct", "fields": list(_fields(tokens, ":"))}
            tokens.expect(">")
            return found
        case "decimal" | "numeric":
            return _decimal(tokens)
        case "time":
            return "time(6)"
    if word not in _WORDS:
        known = sorted({*_WORDS, "array", "map", "struct", "decimal", "time"})
        raise tokens.error(
            f"column {column!r} has the type {word!r}, which there is not{nearest(word, known)}"
        )
    return _WORDS[word]


def _decimal(tokens: _Tokens) -> str:
    if not tokens.took("("):
        return "decimal(10,0)"
    precision, scale = tokens.take(), "0"
    if tokens.took(","):
        scale = tokens.take()
    tokens.expect(")")
    return f"decimal({precision},{scale})"


def _properties(schema: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """The fields of an object of JSON Schema; those that are not required may be null."""
    required = schema.get("required", [])
    for name, one in schema["properties"].items():
        kind, nullable = _json_type(one, f"{where}: property {name!r}")
        yield {"name": name, "type": kind, "nullable": nullable or name not in required}


def _json_type(schema: Any, where: str) -> tuple[Any, bool]:
    """The type, and whether it may be null."""
    given = schema.get("type") if isinstance(schema, dict) else None
    names = [name for name in (given if isinstance(given, list) else [given]) if name != "null"]
    nullable = isinstance(given, list) and "null" in given
    match names:
        case ["string"]:
            if schema.get("contentEncoding") == "base64":
                return "binary", nullable
            return _FORMATS.get(schema.get("format", ""), "string"), nullable
        case [name] if name in _JSON_TYPES:
            return _JSON_TYPES[name], nullable
        case ["array"]:
            element, nulls = _json_type(schema.get("items"), f"{where}, items")
            return {"type": "array", "elementType": element, "containsNull": nulls}, nullable
        case ["object"] if isinstance(schema.get("properties"), dict):
            return {"type": "struct", "fields": list(_properties(schema, where))}, nullable
        case ["object"] if isinstance(schema.get("additionalProperties"), dict):
            value, nulls = _json_type(schema["additionalProperties"], f"{where}, values")
            found = {"type": "map", "keyType": "string", "valueType": value}
            return found | {"valueContainsNull": nulls}, nullable
    raise ConfigError(
        f"--from-schema {where} has no one type that a column can have: give it one of string, "
        f"{', '.join(_JSON_TYPES)}, array with items, or object with properties"
    )
