"""The JSON of a store's ``config`` folder, as the broker's fastjson writes it.

It indents with tabs, puts no blank behind a colon, and writes the keys of a map from numbers
without quotes (and without a new line before them), which is not valid JSON. Reading takes numbers
with and without quotes, as the broker does: without quotes they become ``int`` keys, so that
writing gives the same bytes again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from dledger.errors import FormatError
from dledger.types import Buffer

TOKEN: Final = re.compile(
    r"[ \t\r\n]*(?:([{}\[\],:])|(\"(?:[^\"\\\x00-\x1f]|\\.)*\")|([-+.\w]+)|(.|\Z))", re.DOTALL
)
WORDS: Final[dict[str, object]] = {"true": True, "false": False, "null": None}
NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
ESCAPED: Final = re.compile(r"\\u00(1|0)([0-9a-f])|[\x7f-\x9f\u2028\u2029]")
"""The characters that json writes otherwise than fastjson: small letters in escapes, and characters
that fastjson escapes."""
DEPTH: Final = 64
MAX_DIGITS: Final = 40


def decode_config(data: Buffer) -> Any:
    """The value of a configuration file; maps keep their order.

    Raises:
        FormatError: it is not such a file; it names the byte.
    """
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError as e:
        raise FormatError(f"configuration: byte {e.start} is not UTF-8") from None
    reader = JsonReader(text)
    value = reader.value(0)
    if reader.token():
        raise reader.error("nothing more")
    return value


class JsonReader:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._last = 0

    def token(self) -> str:
        """The next token, "" at the end."""
        found = TOKEN.match(self._text, self._at)
        assert found is not None
        self._last, self._at = found.end() - len(found.group().lstrip(" \t\r\n")), found.end()
        return found.group(found.lastindex or 4)

    def peek(self) -> str:
        """The next token, which stays."""
        at = self._at
        token = self.token()
        self._at = at
        return token

    def error(self, expected: str) -> FormatError:
        """Names the character where the last token began."""
        return FormatError(f"configuration, character {self._last}: {expected} expected")

    def value(self, depth: int) -> Any:
        """The next value."""
        token = self.token()
        if depth > DEPTH:
            raise self.error(f"no more than {DEPTH} levels")
        if token == "{":
            return self.map(depth)
        if token == "[":
            return self.list(depth)
        if token[:1] == '"' and len(token) > 1:
            return self.string(token)
        if token in WORDS:
            return WORDS[token]
        return self.number(token)

    def string(self, token: str) -> str:
        try:
            value = str(json.loads(token))
            value.encode()  # an escaped half of a surrogate pair is a string to json, but no text
        except ValueError:
            raise self.error("a string") from None
        return value

    def number(self, token: str) -> int | float:
        found = NUMBER.fullmatch(token)
        if found is None or len(token) > MAX_DIGITS:
            raise self.error("a value")
        return float(token) if found[1] or found[2] else int(token)

    def map(self, depth: int) -> dict[str | int, Any]:
        found: dict[str | int, Any] = {}
        for _ in self.items("}"):
            token = self.token()
            key = self.string(token) if token[:1] == '"' and len(token) > 1 else self.number(token)
            if isinstance(key, float):
                raise self.error("a whole number or a string")
            if self.token() != ":":
                raise self.error("':'")
            found[key] = self.value(depth + 1)
        return found

    def list(self, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in self.items("]")]

    def items(self, end: str) -> Iterator[None]:
        """Comes by before each item; a comma says that there is another one, and ``end`` that there
        is none."""
        if self.peek() == end:
            self.token()
            return
        yield
        while (token := self.token()) != end:
            if token != ",":
                raise self.error(f"',' or {end!r}")
            yield


def encode_config(value: Any) -> bytes:
    """The bytes that the broker would write for this value; ``int`` keys go without quotes."""
    return _text(value, 0).encode()


def _scalar(value: Any) -> str:
    """A value that is no map and no list, or the name of a field."""
    # an escaped backslash begins no other escape
    parts = json.dumps(value, ensure_ascii=False).split("\\\\")
    return "\\\\".join(ESCAPED.sub(_escape, part) for part in parts)


def _escape(found: re.Match[str]) -> str:
    code = int(found[1] + found[2], 16) if found[1] else ord(found[0])
    return f"\\u{code:04X}"


def _text(value: Any, depth: int) -> str:
    indent = "\n" + "\t" * (depth + 1)
    if isinstance(value, dict):
        parts = []
        for key, inner in value.items():
            name = str(key) if isinstance(key, int) else indent + _scalar(key)
            parts.append(f"{name}:{_text(inner, depth + 1)}")
    elif isinstance(value, list):
        parts = [indent + _text(inner, depth + 1) for inner in value]
    else:
        return _scalar(value)
    begin, end = "{}" if isinstance(value, dict) else "[]"
    closing = "\n" + "\t" * depth if parts else ""
    return f"{begin}{','.join(parts)}{closing}{end}"
