"""Topic patterns: the regular expressions of Java, as Spark's Kafka connector takes them, for
Python's engine. Pure.

Most of both languages is the same. A construct that Java writes in another way is translated, one
that Python does not have is refused.
"""

from __future__ import annotations

import re
from typing import Final

from dledger.errors import ConfigError

CLASSES: Final = {
    "Lower": "a-z", "Upper": "A-Z", "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9",
    "L": "a-zA-Z", "Lu": "A-Z", "Ll": "a-z", "N": "0-9", "Nd": "0-9", "Punct": "_.-",
    "XDigit": "0-9a-fA-F", "ASCII": "\\x00-\\x7F",
}  # fmt: skip
"""Names in ``\\p{...}``, cut down to the characters that a topic's name can have."""
_ESCAPES: Final = {"z": "\\Z", "h": "[ \\t]"}
_TOKEN: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|\\(?P<negated>[pP])\{(?:Is)?(?P<named>\w+)\}|\\k<(?P<back>\w+)>"
    r"|\(\?<(?P<group>[A-Za-z]\w*)>|\\(?P<escape>.)|(?P<other>.)",
    re.DOTALL,
)


def java_pattern(option: str, text: str) -> str:
    """The pattern in Python's syntax.

    Raises:
        ConfigError: it is no pattern, or one that only Java can match.
    """
    try:
        pattern = _translate(text)
        re.compile(pattern, re.ASCII)
    except (re.error, ValueError) as error:
        raise ConfigError(
            f"option {option!r} is {text!r}: {error}. Write a regular expression for whole topic "
            "names, as in 'orders-.*' or 'orders|payments'; of Java's syntax, nested classes, && "
            "and what Python has no twin for cannot be used"
        ) from None
    return pattern


def _translate(text: str) -> str:
    parts: list[str] = []
    opened = -1  # where the character class that we are in begins
    for token in _TOKEN.finditer(text):
        inside = opened >= 0
        if token["quoted"] is not None:
            parts.append(re.escape(token["quoted"]))
        elif token["named"]:
            parts.append(_named(token["named"], token["negated"] == "P", inside))
        elif token["back"]:
            parts.append(f"(?P={token['back']})")
        elif token["group"] and not inside:
            parts.append(f"(?P<{token['group']}>")
        elif token["escape"]:
            parts.append(token[0] if inside else _ESCAPES.get(token["escape"], token[0]))
        elif token[0] == "[":
            if inside:
                raise ValueError(f"a class within a class at position {token.start()}")
            opened = token.end()
            parts.append("[")
        elif token[0] == "]" and inside and text[opened : token.start()] not in {"", "^"}:
            opened = -1
            parts.append("]")
        elif inside and token[0] == "&" and text[token.start() : token.start() + 2] == "&&":
            raise ValueError(f"an intersection && at position {token.start()}")
        else:
            parts.append(token[0])
    return "".join(parts)


def _named(name: str, negated: bool, inside: bool) -> str:
    if name not in CLASSES:
        raise ValueError(f"no class \\p{{{name}}}; known: {', '.join(CLASSES)}")
    if inside:
        if negated:
            raise ValueError(f"\\P{{{name}}} within a class")
        return CLASSES[name]
    return f"[{'^' if negated else ''}{CLASSES[name]}]"


def matches(pattern: str, name: str) -> bool:
    """Whether the whole name fits a pattern of `java_pattern`."""
    return re.fullmatch(pattern, name, re.ASCII) is not None
