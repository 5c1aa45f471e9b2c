"""How each annotation of a message field travels: its msgpack type, and the steps to and from it.

The tables are made once, from the dataclasses themselves, so that a new field cannot be forgotten
here.
"""

from __future__ import annotations

import struct
import types
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from functools import cache
from typing import Any, Final, NewType, Union, cast, get_args, get_origin, get_type_hints

from dledger.protocol.messages.entry import Entry
from dledger.protocol.messages.entry_runs import pack_sizes
from dledger.protocol.messages.fetched import FETCHED_ROW, FetchedBatch, FetchedBatches
from dledger.protocol.messages.membership import FIRST_FIELDS
from dledger.protocol.wire.message_numbers import COMMAND_TAGS, COMMANDS
from dledger.types import Index, OfPartitions, Term

INT_MIN: Final = -(1 << 63)
INT_MAX: Final = (1 << 63) - 1
Step = Callable[[Any], Any]


class WrongField(ValueError):
    """A value that no correct program sends; the caller adds where."""


@dataclass(frozen=True, slots=True)
class FieldCodec:
    """``wire`` is the exact type that msgpack gives; a step of None leaves the value as it is."""

    wire: type
    encode: Step | None = None
    decode: Step | None = None


def field_codec(annotation: Any) -> FieldCodec:
    """The codec of a field with this annotation.

    Raises:
        TypeError: the annotation has no form on the wire.
    """
    if isinstance(annotation, NewType):
        return (
            FieldCodec(int, None, _index)
            if annotation in (Index, Term)
            else field_codec(annotation.__supertype__)
        )
    if annotation == OfPartitions:
        return FieldCodec(bytes, _pack_offsets, _unpack_offsets)
    if annotation is int:
        return FieldCodec(int, None, _integer)
    if annotation in (str, bool, float, bytes):
        return FieldCodec(annotation)
    if isinstance(annotation, type) and issubclass(annotation, IntEnum):
        return FieldCodec(int, None, _Members(annotation).__getitem__)
    if is_dataclass(annotation):
        table = table_of(cast(type[Any], annotation))
        return FieldCodec(tuple, table.values, table.build)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Sequence and args == (Entry,):
        return FieldCodec(bytes, pack_sizes)  # `codec.decode` makes entries of them
    if origin in (Union, types.UnionType):
        return _union(args)
    if origin is tuple:
        return _tuple(args)
    if origin is Collection and args == (FetchedBatch,):
        return FieldCodec(bytes, _pack_fetched, _unpack_fetched)
    if origin is dict:
        return _dict(*args)
    raise TypeError(f"{annotation!r} has no form on the wire")


def _integer(value: int) -> int:
    if value > INT_MAX:  # msgpack's smallest is INT_MIN already
        raise WrongField(f"{value} is over 64 bits")
    return value


def _index(value: int) -> int:
    if not -1 <= value <= INT_MAX:
        raise WrongField(f"{value} is not -1 or above")
    return value


class _Members(dict[int, IntEnum]):
    """The members of an enumeration by their numbers."""

    def __init__(self, enum: type[IntEnum]) -> None:
        super().__init__({int(member): member for member in enum})
        self._name = enum.__name__

    def __missing__(self, value: int) -> IntEnum:
        raise WrongField(f"{value} is no {self._name}")


def _check(value: Any, codec: FieldCodec) -> Any:
    if type(value) is not codec.wire:
        raise WrongField(f"{type(value).__name__} where {codec.wire.__name__} belongs")
    return codec.decode(value) if codec.decode else value


def _union(args: tuple[Any, ...]) -> FieldCodec:
    """A union of commands: the command's tag, then its fields."""
    if any(arg not in COMMAND_TAGS for arg in args):
        raise TypeError(f"a union of {args} has no form on the wire")
    return FieldCodec(tuple, command_values, build_command)


def _tuple(args: tuple[Any, ...]) -> FieldCodec:
    if len(args) == 2 and args[1] is Ellipsis:
        return _row(field_codec(args[0]))
    items = tuple(map(field_codec, args))

    def decode(values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(values) != len(items):
            raise WrongField(f"{len(values)} values where {len(items)} belong")
        return tuple(map(_check, values, items))

    return FieldCodec(tuple, None, decode)


def _row(item: FieldCodec) -> FieldCodec:
    """Any number of values of one kind. Plain ones, names mostly, are taken as they came."""
    step, only = item.encode, {item.wire}
    encode = (lambda values: tuple(map(step, values))) if step else None

    def decode(values: tuple[Any, ...]) -> tuple[Any, ...]:
        if not values or (item.decode is None and set(map(type, values)) <= only):
            return values
        return tuple([_check(value, item) for value in values])

    return FieldCodec(tuple, encode, decode)


def _dict(key: Any, value: Any) -> FieldCodec:
    keys = field_codec(key)
    if value is Any:
        return FieldCodec(dict, None, lambda found: {_check(k, keys): v for k, v in found.items()})
    values = field_codec(value)
    step = values.encode
    return FieldCodec(
        dict,
        (lambda given: {k: step(v) for k, v in given.items()}) if step else None,
        lambda found: {_check(k, keys): _check(v, values) for k, v in found.items()},
    )


def _pack_offsets(offsets: dict[int, int]) -> bytes:
    """The partitions, then their offsets."""
    try:
        return struct.pack(f"<{2 * len(offsets)}q", *offsets, *offsets.values())
    except struct.error as error:
        raise WrongField(str(error)) from None


def _unpack_offsets(packed: bytes) -> dict[int, int]:
    count, rest = divmod(len(packed), 16)
    if rest:
        raise WrongField(f"{len(packed)} bytes are no offsets of partitions")
    numbers = struct.unpack(f"<{2 * count}q", packed)
    return dict(zip(numbers[:count], numbers[count:], strict=True))


def _pack_fetched(batches: Collection[FetchedBatch]) -> bytes:
    try:
        return FetchedBatches.of(batches).packed
    except struct.error as error:
        raise WrongField(str(error)) from None


def _unpack_fetched(packed: bytes) -> FetchedBatches:
    if len(packed) % FETCHED_ROW.size:
        raise WrongField(f"{len(packed)} bytes are no row of {FETCHED_ROW.size}-byte batches")
    return FetchedBatches(packed)


class FieldTable:
    """How one dataclass travels: an array of its fields, in order."""

    def __init__(self, cls: type[Any]) -> None:
        hints = get_type_hints(cls, include_extras=True)
        self.cls = cls
        self.names = tuple(field.name for field in fields(cls))
        codecs = [field_codec(hints[name]) for name in self.names]
        self.wire = tuple(codec.wire for codec in codecs)
        self.encoders = [(at, codec.encode) for at, codec in enumerate(codecs) if codec.encode]
        self.decoders = [(at, codec.decode) for at, codec in enumerate(codecs) if codec.decode]
        self.values: Step = _taker(self)
        """The message's fields as msgpack can pack them."""
        self.build: Step = _builder(self)
        """The message with these unpacked fields. Raises `WrongField`: a field is missing, too
        many, or of another type; the text names it."""

    def complain(self, values: tuple[Any, ...]) -> None:
        """Name the fault of unpacked fields.

        Raises:
            WrongField: always, for fields that `build` does not take.
        """
        if len(values) != len(self.names):
            raise WrongField(f"{len(values)} fields where {len(self.names)} belong")
        for name, value, wire in zip(self.names, values, self.wire, strict=True):
            if type(value) is not wire:
                raise WrongField(f"{name}: {type(value).__name__} where {wire.__name__} belongs")
        for at, decode in self.decoders:
            try:
                decode(values[at])
            except WrongField as error:
                raise WrongField(f"{self.names[at]}: {error}") from None


def _same(value: Any) -> Any:
    return value


class OpenTable(FieldTable):
    """How a message travels between programs of different releases. Its first ``required`` fields
    are always there. Of the others, those at the end that have their defaults stay away; on the way
    in, a missing field has its default, and a field that this release does not know is left out."""

    def __init__(self, cls: type[Any], required: int) -> None:
        super().__init__(cls)
        least, encoders = cls(**dict.fromkeys(self.names[:required])), dict(self.encoders)
        later = [
            (encoders.get(at, _same), getattr(least, name))
            for at, name in enumerate(self.names)
            if at >= required
        ]
        defaults = (None,) * required + tuple(encode(value) for encode, value in later)
        self.values = _taker(self, required, defaults)
        self.build = _builder(self, required, defaults)


def table_of(part: type[Any]) -> FieldTable:
    """The table of a dataclass within a message or command."""
    first = FIRST_FIELDS.get(part)
    return FieldTable(part) if first is None else OpenTable(part, first)


def _taker(table: FieldTable, required: int = -1, defaults: tuple[Any, ...] = ()) -> Step:
    """A function that gives the fields of one class; written out as `_builder` does. With
    ``required`` as `OpenTable` has it."""
    encoders = dict(table.encoders)
    items = [
        f"encode{at}(message.{name})" if at in encoders else f"message.{name}"
        for at, name in enumerate(table.names)
    ]
    known: dict[str, Any] = {f"encode{at}": encode for at, encode in table.encoders}
    known |= {"__name__": __name__, "defaults": defaults}  # the name is for `is_interrupt`
    lines = ["def values(message):", f"    found = ({''.join(f'{item}, ' for item in items)})"]
    if required >= 0:
        lines += [
            f"    end = {len(items)}",
            f"    while end > {required} and found[end - 1] == defaults[end - 1]:",
            "        end -= 1",
            "    found = found[:end]",
        ]
    exec("\n".join([*lines, "    return found"]), known)
    return cast(Step, known["values"])


def _builder(table: FieldTable, required: int = -1, defaults: tuple[Any, ...] = ()) -> Step:
    """A function that checks the fields of one class and makes the message. It is written out field
    by field, as `dataclasses` does it with ``__init__``, because every message that arrives goes
    through it. With ``required`` as `OpenTable` has it."""
    fields_of = [f"f{at}" for at in range(len(table.names))]
    ranges, steps = [], []
    known: dict[str, Any] = {
        "cls": table.cls, "new": object.__new__, "wire": table.wire, "complain": table.complain,
        "WrongField": WrongField, "INT_MAX": INT_MAX, "__name__": __name__, "defaults": defaults,
    }  # fmt: skip
    for at, decode in table.decoders:
        if decode is _integer:
            ranges.append(f"f{at} > INT_MAX")
        elif decode is _index:
            ranges.append(f"not -1 <= f{at} <= INT_MAX")
        elif isinstance(members := getattr(decode, "__self__", None), _Members):
            steps.append(f"        f{at} = members{at}[f{at}]")  # costs less than a call
            known[f"members{at}"] = members
        else:
            steps.append(f"        f{at} = decode{at}(f{at})")
            known[f"decode{at}"] = decode
    lines = ["def build(values):"]
    if required >= 0:
        lines += [
            "    count = len(values)",
            f"    if count < {required}:",
            "        complain(values)",
            f"    if count != {len(fields_of)}:",
            f"        values = (*values[:{len(fields_of)}], *defaults[count:])",
        ]
    lines += [
        "    if tuple(map(type, values)) != wire:",
        "        complain(values)",
    ]
    if fields_of:
        lines += [f"    {', '.join(fields_of)}, = values"]
    if ranges:
        lines += [f"    if {' or '.join(ranges)}:", "        complain(values)"]
    if steps:
        lines += [
            "    try:",
            *steps,
            "    except WrongField:",
            "        complain(values)",
            "        raise",
        ]
    # and not its frozen __init__, which takes every field by its name
    lines += ["    message = new(cls)"]
    for at, name in enumerate(table.names):
        lines += [f"    set{at}(message, f{at})"]
        known[f"set{at}"] = getattr(table.cls, name).__set__  # slots=True made a descriptor of each
    exec("\n".join([*lines, "    return message"]), known)
    return cast(Step, known["build"])


def command_values(command: Any) -> Any:
    """A command's tag and fields.

    Raises:
        WrongField: this is no command.
    """
    tag = COMMAND_TAGS.get(type(command))
    if tag is None:
        raise WrongField(f"{type(command).__name__} is no command")
    return (tag, *_command_table(tag).values(command))


def build_command(values: tuple[Any, ...]) -> Any:
    """The inverse of `command_values`.

    Raises:
        WrongField: unknown tag, or a field of another type.
    """
    tag = values[0] if values else None
    if type(tag) is not int or tag not in COMMANDS:
        raise WrongField(f"{tag!r} is no command's number")
    try:
        return _command_table(tag).build(values[1:])
    except WrongField as error:
        raise WrongField(f"{COMMANDS[tag].__name__}.{error}") from None


@cache
def _command_table(tag: int) -> FieldTable:
    return FieldTable(COMMANDS[tag])
