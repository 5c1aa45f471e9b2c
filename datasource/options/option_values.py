"""Values of options, each by its kind: a flag, a word, a size or number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from dledger.config import MIB
from dledger.datasource.options.settings import whole_number, yes_or_no
from dledger.errors import ConfigError

T = TypeVar("T")


def size_or_number(values: Mapping[str, str], name: str) -> int | None:
    """Such an option's value; ``64m`` where it counts bytes.

    Raises:
        ConfigError: it is no number.
    """
    text = values.get(name)
    if text is None:
        return None
    unit = text.strip().lower()[-1:]
    if "Bytes" in name and unit in _SIZE:
        return whole_number(name, text.strip()[:-1]) * _SIZE[unit]
    return whole_number(name, text)


def flag(values: Mapping[str, str], name: str, default: T) -> bool | T:
    """Such an option's value."""
    return yes_or_no(name, values[name]) if name in values else default


def word(values: Mapping[str, str], name: str, words: Sequence[str]) -> str:
    """One of ``words``, in any case; without the option the first."""
    given = values.get(name, words[0]).strip().lower()
    for known in words:
        if given == known.lower():
            return known
    said = [known for known in words if known]
    choice = " or ".join(filter(None, (", ".join(said[:-1]), said[-1])))
    raise ConfigError(f"option {name!r} is {values[name]!r}: write {choice}")


def names(values: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The names in such an option, one after the other; none without it.

    Raises:
        ConfigError: it has none, or one twice.
    """
    if name not in values:
        return ()
    found = tuple(filter(None, (part.strip() for part in values[name].split(","))))
    if not found or len({one.lower() for one in found}) < len(found):
        raise ConfigError(
            f"option {name!r} is {values[name]!r}: write the names, each once, with commas between"
        )
    return found


_SIZE: Final = {"k": 1 << 10, "m": MIB, "g": MIB << 10, "b": 1}
