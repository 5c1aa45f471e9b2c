"""A message's properties: ``name 0x01 value 0x02 name 0x01 value ...``, and the values that the
broker computes from them.

The order of properties, and whether a 0x02 stands behind the last one, depend on the broker's
version (it does until 4.9.0 and from 5.2.0 on). So a message keeps the text as it came, and a map
is made of it when a caller asks.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from operator import mul
from typing import Final

NAME_END: Final = "\x01"
VALUE_END: Final = "\x02"
KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQUE_KEY: Final = "UNIQ_KEY"
STRETCH: Final = 64
POWERS: Final = (
    *(pow(31, STRETCH - 1 - at, 1 << 32) for at in range(STRETCH)),
    pow(31, STRETCH, 1 << 32),
)
"""Of 31, falling to its power 0; that of a whole stretch is last, where index -1 finds it."""
MAX_PROPERTIES: Final = 32_767
"""Bytes of all properties of one message."""


def parse_properties(text: str) -> dict[str, str]:
    """The map, read as the broker reads it: an item without a name, a separator or a value does not
    count, and of two with one name the later one does."""
    found = {}
    for item in text.split(VALUE_END):
        name, separator, value = item.partition(NAME_END)
        if name and separator and value:
            found[name] = value
    return found


def format_properties(properties: Mapping[str, str], *, trailing: bool = False) -> str:
    """The text for a map, in the map's order.

    Args:
        trailing: end with 0x02, as brokers until 4.9.0 and from 5.2.0 on do.

    Raises:
        ValueError: a name or value is empty or holds 0x01 or 0x02, or the whole is over 32,767
            bytes.
    """
    for name, value in properties.items():
        if not name or not value or any(c in name + value for c in (NAME_END, VALUE_END)):
            raise ValueError(
                f"property {name!r}: names and values have text, without the characters 1 and 2"
            )
    text = VALUE_END.join(f"{name}{NAME_END}{value}" for name, value in properties.items())
    if trailing and text:
        text += VALUE_END
    if len(text.encode()) > MAX_PROPERTIES:
        raise ValueError(
            f"properties of {len(text.encode()):,} bytes; a message holds {MAX_PROPERTIES:,}"
        )
    return text


def keys_of(properties: Mapping[str, str]) -> list[str]:
    """The keys by which the index finds this message, in the broker's order: the unique key first,
    then each word of ``KEYS``."""
    unique, words = properties.get(UNIQUE_KEY), properties.get(KEYS)
    found = [word for word in words.split(" ") if word] if words else []
    return [unique, *found] if unique else found


def java_hash(text: str) -> int:
    """Java's ``String.hashCode``: over UTF-16 units, wrapped to a signed 32-bit number."""
    units = (
        text.encode() if text.isascii() else array("H", text.encode("utf-16", "surrogatepass")[2:])
    )
    value = 0
    for at in range(0, len(units), STRETCH):
        part = units[at : at + STRETCH]
        value = value * POWERS[STRETCH - len(part) - 1] + sum(
            map(mul, part, POWERS[STRETCH - len(part) :])
        )
    value &= 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def tags_code(tags: str | None) -> int:
    """The code of these tags in a consume queue: their hash, 0 where there are none."""
    return java_hash(tags) if tags else 0
