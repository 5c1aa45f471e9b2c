"""Arguments of callers, checked before any request is sent: a wrong one is the caller's mistake,
and its name helps.

`checked` goes by the annotations of a class's public methods, so that a new method is checked as
well. A value as good as the annotated type is taken for it: whole numbers of numpy, sets of names.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, Final, TypeAlias, TypeVar

from dledger.client.protocol.results import Span
from dledger.errors import ConfigError
from dledger.interrupts import is_interrupt
from dledger.protocol.messages.acl_rules import AclRule
from dledger.protocol.messages.catalog_commands import StageSum
from dledger.protocol.messages.client import OffsetKind, TopicInfo
from dledger.records.columns.types import Columns
from dledger.rocketmq.format.message import Message
from dledger.times import EPOCH

C = TypeVar("C")
Time: TypeAlias = int | datetime
"""Microseconds since 1970 UTC, or a datetime; one without a time zone is UTC, as where records are
written."""
TimeMs: TypeAlias = int | datetime
"""As `Time`, but whole numbers are milliseconds, as RocketMQ has them."""
Take = Callable[[Any], Any]
"""Gives an argument as it is to be used. Raises `WrongArgument`."""
INT64: Final = range(-(1 << 63), 1 << 63)


class WrongArgument(Exception):
    """With the expected type of a value, and the value."""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise WrongArgument("text (str)", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise WrongArgument("text without lone surrogates", value) from None
    return value


def _whole(value: Any) -> int:
    if type(value) is not int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise WrongArgument("a whole number (int)", value)
        value = operator.index(value)
    if value not in INT64:
        raise WrongArgument("a whole number of 64 bits", value)
    number: int = value
    return number


def _are_whole(values: Collection[Any]) -> bool:
    """Whether all of them are as `_whole` gives them; quick, because there may be thousands."""
    plain = set(map(type, values)) <= {int}
    return plain and (not values or (min(values) in INT64 and max(values) in INT64))


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value not in (0, 1) or isinstance(value, float):
        raise WrongArgument("True or False", value)
    return bool(value)


def _one_of(*kinds: type, named: str = "") -> Take:
    def take(value: Any) -> Any:
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise WrongArgument(named or " or ".join(kind.__name__ for kind in kinds), value)
        return value

    return take


def _each(take: Take, named: str) -> Take:
    def take_all(value: Any) -> list[Any]:
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise WrongArgument(named, value)
        found = list(value)
        if take is _text and set(map(type, found)) <= {str}:
            for one in set(found):
                _text(one)
            return found
        return found if take is _whole and _are_whole(found) else list(map(take, found))

    return take_all


def _pairs(key: Take, item: Take, named: str) -> Take:
    def take(value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise WrongArgument(named, value)
        if key is item is _whole and _are_whole(value) and _are_whole(value.values()):
            return dict(value)
        return {key(name): item(one) for name, one in value.items()}

    return take


def _kind(value: Any) -> OffsetKind:
    try:
        return OffsetKind(value)
    except ValueError as error:
        if is_interrupt(error):
            raise
        raise WrongArgument("an OffsetKind", value) from None


def _time(value: Any) -> int:
    if not isinstance(value, datetime):
        try:
            return _whole(value)
        except WrongArgument:
            raise WrongArgument("microseconds since 1970 UTC (int) or a datetime", value) from None
    return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH) // timedelta(
        microseconds=1
    )


def _time_ms(value: Any) -> int:
    try:
        return _time(value) // 1000 if isinstance(value, datetime) else _whole(value)
    except WrongArgument:
        raise WrongArgument("milliseconds since 1970 UTC (int) or a datetime", value) from None


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongArgument("a number", value)
    return value


def milliseconds(name: str, value: int | datetime) -> int:
    """As `microseconds`, of times that are milliseconds."""
    return _told(name, _time_ms, value)


def microseconds(name: str, value: int | datetime) -> int:
    """A time in microseconds since 1970 UTC; a datetime without a time zone is UTC, as where
    records are written.

    Raises:
        ConfigError: it is neither; ``name`` is that of the argument.
    """
    return _told(name, _time, value)


def whole(name: str, value: int) -> int:
    """A whole number of 64 bits. Raises `ConfigError` with the ``name`` of the argument for
    anything else."""
    return _told(name, _whole, value)


def _told(name: str, take: Callable[[Any], int], value: Any) -> int:
    try:
        return take(value)
    except WrongArgument as wrong:
        raise _mistake(name, wrong) from None


def _record_batch(value: Any) -> Any:
    import pyarrow as pa  # who has one has loaded it

    return _one_of(pa.RecordBatch, named="a pyarrow.RecordBatch")(value)


def _callback(value: Any) -> Any:
    if not callable(value):
        raise WrongArgument("a function", value)
    return value


_OFFSETS: Final = _pairs(_whole, _whole, "a dict of partition -> offset")
_TOPIC_OFFSETS: Final = _pairs(_text, _OFFSETS, "a dict of topic -> partition -> offset")
_TIMES: Final = _pairs(_whole, _time, "a dict of partition -> time")
TAKEN: Final[Mapping[str, Take]] = {
    "str": _text,
    "int": _whole,
    "float": _number,
    "int | str": _one_of(int, str),
    "bool": _truth,
    "Time": _time,
    "TimeMs": _time_ms,
    "OffsetKind": _kind,
    "TopicInfo": _one_of(TopicInfo),
    "str | TopicInfo": _one_of(str, TopicInfo),
    "str | int | TopicInfo": _one_of(str, int, TopicInfo),
    "Columns": _one_of(Columns),
    "pa.RecordBatch": _record_batch,
    "Sequence[str]": _each(_text, "a list of texts (str)"),
    "Sequence[str | AclRule]": _each(_one_of(str, AclRule), "a list of rules (str)"),
    "str | Sequence[str]": lambda value: (
        value if isinstance(value, str) else _each(_text, "a list of texts")(value)
    ),
    "Sequence[int]": _each(_whole, "a list of whole numbers (int)"),
    "Sequence[Span]": _each(_one_of(Span), "a list of Span"),
    "Sequence[StageSum]": _each(_one_of(StageSum), "a list of StageSum"),
    "Sequence[Message]": _each(_one_of(Message), "a list of Message"),
    "Mapping[int, int]": _OFFSETS,
    "Mapping[str, Mapping[int, int]]": _TOPIC_OFFSETS,
    "Mapping[str, Mapping[int, Time]]": _pairs(
        _text, _TIMES, "a dict of topic -> partition -> time"
    ),
    "Mapping[str, int]": _pairs(_text, _whole, "a dict of name -> whole number"),
    "Mapping[str, int | str]": _pairs(_text, _one_of(int, str), "a dict of name -> value"),
    "Mapping[str, str]": _pairs(_text, _text, "a dict of text -> text"),
    "bytes | str": _one_of(bytes, bytearray, memoryview, str, named="bytes or text"),
    "OnDelivery": _callback,
    "OnChange": _callback,
    "bytes": _one_of(bytes, bytearray, memoryview, named="bytes"),
}
"""By annotation, without its ``| None``."""
SECRETS: Final = ("password", "token")
"""Arguments whose values no error shows."""
ELSEWHERE: Final = frozenset({
    "Values", "Values | Rows", "Values | None", "Headers | None", "Times | None", "Place", "Any",
    "DamagePolicy | None", "RowsSum | None", "Batches", "str | float",
    "type[BaseException] | None", "BaseException | None", "TracebackType | None",
})  # fmt: skip
"""Annotations of arguments that are looked at where they are used."""


def checked(cls: type[C]) -> type[C]:
    """Let the public methods of a class look at their arguments: a wrong one is a `ConfigError`
    that names it.

    Raises:
        TypeError: an annotation is neither in TAKEN nor in ELSEWHERE.
    """
    for name, function in list(vars(cls).items()):
        if inspect.isfunction(function) and not name.startswith("_"):
            setattr(cls, name, _checked(function))
    return cls


def _checked(function: Any) -> Any:
    takes: dict[str, tuple[Take, bool]] = {}
    places: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        kind = parameter.annotation
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            places.append(parameter.name)
        if kind is not parameter.empty and kind not in ELSEWHERE:
            known = TAKEN.get(kind.removesuffix(" | None"))
            if known is None:
                raise TypeError(f"{function.__qualname__}: {parameter} is not checked")
            takes[parameter.name] = known, kind.endswith(" | None")
    if not takes:
        return function

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        """Calls the function; of a coroutine function, the coroutine."""
        found, name = list(args), ""
        try:
            for at, (name, value) in enumerate(zip(places, args, strict=False)):
                if name in takes:
                    take, is_optional = takes[name]
                    found[at] = None if value is None and is_optional else take(value)
            for name, value in named.items():
                if name in takes:
                    take, is_optional = takes[name]
                    named[name] = None if value is None and is_optional else take(value)
        except WrongArgument as wrong:
            raise _mistake(f"{function.__name__}(): {name}", wrong) from None
        return function(*found, **named)

    if not inspect.iscoroutinefunction(function):
        return call

    @wraps(function)
    async def call_async(*args: Any, **named: Any) -> Any:
        return await call(*args, **named)

    return call_async


def _mistake(name: str, wrong: WrongArgument) -> ConfigError:
    expected, value = wrong.args
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:60] + "..."
    if name.endswith(SECRETS):
        shown = "not shown"
    return ConfigError(
        f"{name} is {shown}, of type {type(value).__name__}: {expected} belongs there"
    )
