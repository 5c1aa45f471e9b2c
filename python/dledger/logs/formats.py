"""The form of a log line: text for people, JSON for programs."""

from __future__ import annotations

import json
import logging
import time
from datetime import UTC, datetime
from typing import Any, Final

FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
REPEATED: Final = "repeated"
"""The attribute of a record that stands for so many others."""

_TEXT: Final = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"
_MARKS: Final = (*range(0x20), 0x7F, *range(0x80, 0xA0), 0x061C, 0x200E, 0x200F)
_ESCAPED: Final[dict[int, str]] = {
    code: chr(code).encode("unicode_escape").decode()
    for code in (*_MARKS, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
}
"""Control characters, ends of lines, and marks that change the direction of what is shown."""


def harmless(text: str) -> str:
    """Text that may hold what strangers chose: neither ends a line nor commands a terminal."""
    return text.translate(_ESCAPED)


class TextFormatter(logging.Formatter):
    """One line for each record, with its time in UTC. What a name in it may hold neither ends the
    line nor commands a terminal; the lines of a traceback follow it."""

    def __init__(self, form: str = _TEXT) -> None:
        super().__init__(form, "%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = harmless(record.message)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One line of JSON for each record: ``time`` (UTC), ``level``, ``logger``, ``message``; where
    there is one, ``error`` with the traceback; for records that were counted, ``repeated``."""

    def format(self, record: logging.LogRecord) -> str:
        now = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (repeated := getattr(record, REPEATED, None)) is not None:
            line[REPEATED] = repeated
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)
