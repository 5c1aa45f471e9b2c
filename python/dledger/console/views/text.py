"""Text of strangers as a page shows it: what no eye sees, or what moves other text, is an escape
that can be read."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from dledger.times import EPOCH

_HIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters, the beginning of escape sequences among them
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e"  # nothing to be seen
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # no width; direction of text; line separators
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\ud800-\udfff"  # halves of a pair
    "\U000e0000-\U000e0fff]"  # tags and variation selectors
)
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Verbatim(str):
    """Text that goes back into the input it came from: as it is, though escaped for HTML."""

    __slots__ = ()


def visible(text: str) -> str:
    """Every hidden character as ``\\x1b``, ``\\u202e`` or ``\\U000e0001``."""
    return _HIDDEN.sub(lambda found: _escape(found[0]), text)


def _escape(character: str) -> str:
    number = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def shown(value: Any) -> Any:
    """What a template prints, before it is escaped for HTML."""
    if value is None:
        return ""
    if type(value) is str:
        return visible(value)
    return value if isinstance(value, str) else visible(str(value))


def clipped(text: str, limit: int) -> str:
    """At most ``limit`` characters, with a mark where some are left out."""
    return text if len(text) <= limit else text[:limit] + "…"


def number(value: float | None) -> str:
    """``1,234``; of a rate one digit behind the point where it is small."""
    if value is None:
        return "–"
    if isinstance(value, int) or value >= 100 or value == 0:
        return f"{round(value):,}"
    return f"{value:.1f}"


def size(count: float | None) -> str:
    """Bytes: ``1.5 MiB``."""
    if count is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{round(count)} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def duration(seconds: float | None) -> str:
    """``3.2 s``, ``5 min``, ``2 h``, ``3 d``."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    for limit, unit, step in ((3600, "min", 60), (48 * 3600, "h", 3600)):
        if seconds < limit:
            return f"{round(seconds / step)} {unit}"
    return f"{round(seconds / 86400)} d"


def moment(us: int) -> str:
    """A time in microseconds since 1970, to the millisecond; ``–`` for 0, no time at all."""
    if not us:
        return "–"
    try:
        return f"{EPOCH + timedelta(microseconds=us):%Y-%m-%d %H:%M:%S.%f}"[:-3] + "Z"
    except OverflowError:  # a writer's time may be any
        return f"{us} µs"


def clock(seconds: float) -> str:
    """The time of day of a time in seconds since 1970."""
    return f"{datetime.fromtimestamp(seconds, UTC):%H:%M:%S}Z"
