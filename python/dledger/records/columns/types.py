"""The columns of a typed topic, as plain values and as the JSON that the catalog keeps.

The JSON is that of Spark's ``StructType``, so that ``StructType.fromJson`` reads it, with two names
beside the fields: ``key``, the column that says a record's partition, and ``time``, the one that
says its time. This module does not know Arrow: nodes read it too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from dledger.errors import ConfigError
from dledger.interrupts import is_interrupt

MAX_TEXT: Final = 256 << 10
"""Characters of one schema."""
MAX_DEPTH: Final = 32
"""Of types in types."""
MAX_PRECISION: Final = 38
INTEGERS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""Digits that hold every value of a type."""
ATOMS: Final = frozenset(
    {
        *INTEGERS,
        "boolean",
        "float",
        "double",
        "string",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
        "void",
    }
)
UNITS: Final = ("day", "hour", "minute", "second")
KEY_TYPES: Final = frozenset({*INTEGERS, "string", "binary"})
TIME_TYPES: Final = frozenset({"timestamp", "timestamp_ntz"})
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")
_TIME: Final = re.compile(r"time\(([0-6])\)")
_INTERVAL: Final = re.compile(r"interval (day|hour|minute|second)(?: to (hour|minute|second))?")
_SHORT: Final = {"integer": "int", "long": "bigint", "byte": "tinyint", "short": "smallint"}


@dataclass(frozen=True, slots=True)
class Atom:
    """A type without parts, by Spark's JSON name: ``long``, ``decimal(10,2)``, ``interval day to
    second``."""

    name: str

    @property
    def digits(self) -> tuple[int, int] | None:
        """Precision and scale of a decimal."""
        found = _DECIMAL.fullmatch(self.name)
        return (int(found[1]), int(found[2])) if found else None

    @property
    def is_interval(self) -> bool:
        return self.name.startswith("interval ")

    @property
    def is_time(self) -> bool:
        """A time of day."""
        return self.name.startswith("time(")

    def __str__(self) -> str:
        return _SHORT.get(self.name, self.name)


VOID: Final = Atom("void")
"""Of a column in which everything is null; Arrow has none that may not be."""


@dataclass(frozen=True, slots=True)
class Array:
    element: Type
    nulls: bool = True

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class Map:
    key: Type
    value: Type
    nulls: bool = True
    """Among the values; a key is never null."""

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True, slots=True)
class Struct:
    fields: tuple[Field, ...]

    def __str__(self) -> str:
        fields = (
            f"{one.name}:{one.type}" + " not null" * (not one.nullable) for one in self.fields
        )
        return f"struct<{','.join(fields)}>"


Type = Atom | Array | Map | Struct


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a part of a struct. ``metadata`` is JSON; it says nothing to evolution."""

    name: str
    type: Type
    nullable: bool = True
    metadata: str = "{}"

    def __str__(self) -> str:
        return f"{self.name} {self.type}{'' if self.nullable else ' not null'}"


@dataclass(frozen=True, slots=True)
class Columns:
    """One version of a topic's schema."""

    fields: tuple[Field, ...]
    key: str = ""
    """Column whose value, as text, says the partition; empty: none does."""
    time: str = ""
    """Column with each record's time; empty: the time of the write."""
    text: str = field(default="", compare=False, repr=False)
    """The canonical JSON; made from the rest."""

    def __post_init__(self) -> None:
        named = {"key": self.key, "time": self.time}
        data = _type_data(Struct(self.fields)) | {k: name for k, name in named.items() if name}
        object.__setattr__(self, "text", _canonical(data))

    @staticmethod
    @lru_cache(maxsize=256)
    def parse(text: str) -> Columns:
        """The columns that a JSON text says.

        Raises:
            ConfigError: it says none, or some that cannot be; the message names the column and the
                way out.
        """
        if len(text) > MAX_TEXT:
            raise ConfigError(
                f"a schema of {len(text)} characters is over {MAX_TEXT}: use fewer columns, or "
                f"shorter names"
            )
        try:
            data = json.loads(text)
            return build(data["fields"], data.get("key", ""), data.get("time", ""))
        except ConfigError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if is_interrupt(error):
                raise
            raise ConfigError(f"not the JSON of a schema: {error!r}") from error

    def find(self, name: str) -> int:
        """Place of a column, by its name in any case; -1 when there is none."""
        return find(self.fields, name)


def find(fields: Iterable[Field], name: str) -> int:
    """Place of a field, by its name in any case as in Spark; -1 when there is none."""
    lower = name.lower()
    return next((at for at, one in enumerate(fields) if one.name.lower() == lower), -1)


def by_name(fields: Sequence[Field]) -> dict[str, int]:
    """Places of all fields, by their names in lower case."""
    return {one.name.lower(): at for at, one in enumerate(fields)}


def build(fields: list[dict[str, Any]], key: str = "", time: str = "") -> Columns:
    """Columns from the fields of Spark's JSON.

    Raises:
        ConfigError: they cannot be a topic's; the message names the column and the way out.
    """
    if not fields:
        raise ConfigError("a typed topic has at least one column")
    columns = Columns(tuple(_fields(fields, "", 0)), str(key), str(time))
    if len(columns.text) > MAX_TEXT:
        raise ConfigError(
            f"the schema has {len(columns.text)} characters of JSON, over {MAX_TEXT}: use fewer "
            f"columns"
        )
    for what, name, allowed in (
        ("key", columns.key, KEY_TYPES),
        ("time", columns.time, TIME_TYPES),
    ):
        if name:
            _check_named(columns, what, name, allowed)
    return columns


def _check_named(columns: Columns, what: str, name: str, allowed: frozenset[str]) -> None:
    at = columns.find(name)
    if at < 0:
        names = ", ".join(one.name for one in columns.fields)
        raise ConfigError(f"the {what} column {name!r} is none of the columns, {names}")
    kind = columns.fields[at].type
    if not isinstance(kind, Atom) or kind.name not in allowed:
        way = "CAST(... AS STRING)" if what == "key" else "CAST(... AS TIMESTAMP)"
        raise ConfigError(
            f"the {what} column {name!r} is {kind}; it can be {', '.join(sorted(allowed))}: make "
            f"one with {way}"
        )


def _fields(given: list[dict[str, Any]], path: str, depth: int) -> Iterator[Field]:
    names: dict[str, str] = {}
    for one in given:
        name, nullable = one["name"], one["nullable"]
        if not isinstance(name, str) or not isinstance(nullable, bool):
            raise TypeError("a field has a name and says whether it may be null")
        full = f"{path}{name}"
        if name.lower() in names:
            raise ConfigError(
                f"columns {names[name.lower()]!r} and {full!r} have one name to Spark: rename one"
            )
        names[name.lower()] = full
        metadata = one.get("metadata") or {}
        if not isinstance(metadata, dict):
            raise TypeError("a field's metadata is an object")
        kind = _type(one["type"], full, depth + 1)
        yield Field(name, kind, nullable or kind == VOID, _canonical(metadata))


def _type(given: Any, path: str, depth: int) -> Type:
    if depth > MAX_DEPTH:
        raise ConfigError(f"column {path!r} nests deeper than {MAX_DEPTH} types")
    if isinstance(given, str):
        return _atom(given, path)
    kind = given["type"]
    if kind == "struct":
        return Struct(tuple(_fields(given["fields"], f"{path}.", depth)))
    if kind == "array":
        element = _type(given["elementType"], f"{path}[]", depth + 1)
        return Array(element, bool(given["containsNull"]) or element == VOID)
    if kind == "map":
        key = _type(given["keyType"], f"{path}.key", depth + 1)
        value = _type(given["valueType"], f"{path}.value", depth + 1)
        if key == VOID:
            raise _not_carried(path, "a map of no keys")
        return Map(key, value, bool(given["valueContainsNull"]) or value == VOID)
    raise _not_carried(path, f"a {kind} type")


def _atom(name: str, path: str) -> Atom:
    if name in ATOMS or _TIME.fullmatch(name):
        return Atom(name)
    if decimal := _DECIMAL.fullmatch(name):
        precision, scale = int(decimal[1]), int(decimal[2])
        if 1 <= precision <= MAX_PRECISION and scale <= precision:
            return Atom(name)
    interval = _INTERVAL.fullmatch(name)
    if interval and (not interval[2] or UNITS.index(interval[1]) < UNITS.index(interval[2])):
        return Atom(name)
    raise _not_carried(path, name)


def _not_carried(path: str, what: str) -> ConfigError:
    return ConfigError(
        f"column {path!r} is {what}, which a topic cannot carry: cast it, as in CAST({path} AS "
        "STRING), or drop it; it can be of any type of Spark's but calendar and year-month "
        "intervals, variants, geometries and classes of the user's own"
    )


def _type_data(kind: Type) -> Any:
    match kind:
        case Atom():
            return kind.name
        case Array():
            return {
                "type": "array",
                "elementType": _type_data(kind.element),
                "containsNull": kind.nulls,
            }
        case Map():
            return {
                "type": "map",
                "keyType": _type_data(kind.key),
                "valueType": _type_data(kind.value),
                "valueContainsNull": kind.nulls,
            }
        case Struct():
            fields = [
                {
                    "name": one.name,
                    "type": _type_data(one.type),
                    "nullable": one.nullable,
                    "metadata": json.loads(one.metadata),
                }
                for one in kind.fields
            ]
            return {"type": "struct", "fields": fields}


def _canonical(data: Any) -> str:
    """The same text for the same value, on every machine."""
    return json.dumps(data, separators=(",", ":"), sort_keys=True)
