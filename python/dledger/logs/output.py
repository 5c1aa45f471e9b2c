"""Where the log records of a node's process go: one handler, in a chosen form, that is told no
message too often."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from dledger.logs.formats import REPEATED, JsonFormatter, TextFormatter
from dledger.logs.repeats import Repeats

AUDIT: Final = "dledger.audit"
"""The logger of the audit log, which counts its repetitions itself."""
BURST: Final = 10
"""Records of one kind that pass in the time of `Repeats`."""
_BARE: Final = ("%s", "%r")
"""Templates that say nothing of a record's kind."""


class MessageKind(NamedTuple):
    """Records with the same logger, level and template."""

    logger: str
    level: int
    template: str


class RateLimit(logging.Filter):
    """Lets the first `BURST` records of a kind pass in ten seconds, and counts the others.
    `CRITICAL` ones always pass."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        rest = MessageKind(__name__, logging.WARNING, "of many kinds")
        self._repeats = Repeats(now_s, rest=rest, burst=BURST)
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        is_count = hasattr(record, REPEATED)
        if is_count or record.levelno >= logging.CRITICAL or record.name == AUDIT:
            return True
        template = str(record.msg)
        if template in _BARE:
            template = record.getMessage()[:40]
        with self._lock:
            return self._repeats.is_told(MessageKind(record.name, record.levelno, template))

    def sweep(self) -> None:
        """Log how many were not let pass; called now and then."""
        with self._lock:
            over = self._repeats.over()
        for kind, more, seconds in over:
            logging.getLogger(kind.logger).log(
                kind.level,
                "%d more in %d s: %s",
                more,
                seconds,
                kind.template,
                extra={REPEATED: more},
            )


class Output:
    """The handler of a process that is a node and nothing else, and the root logger's level.

    Args:
        text: the form of its lines as text.
    """

    def __init__(self, handler: logging.Handler, text: TextFormatter | None = None) -> None:
        self._handler = handler
        self._text = text or TextFormatter()
        self._limit = RateLimit()
        handler.addFilter(self._limit)
        self.use("text", "info")
        logging.getLogger().addHandler(handler)

    def use(self, form: str, level: str) -> None:
        """Write lines of this form from this level on (`FORMATS`, `LEVELS`)."""
        self._handler.setFormatter(JsonFormatter() if form == "json" else self._text)
        logging.getLogger().setLevel(level.upper())

    def sweep(self) -> None:
        """See `RateLimit.sweep`."""
        self._limit.sweep()
