"""Who is logged in: a link that works once opens a session, which ends by itself."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dledger.environment import REAL, Environment

SESSION_S: Final = 8 * 3600
MOST_SESSIONS: Final = 100
"""The one that would end first makes room."""
_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """One browser that is logged in."""

    csrf: str
    """Stands in each form that changes something."""
    ends_ms: float


class Sessions:
    """Sessions by the hash of their cookie, and the token of the link that opens the next one.
    Threads may share it."""

    def __init__(self, environment: Environment = REAL) -> None:
        self._environment = environment
        self._lock = threading.Lock()
        self._open: dict[bytes, BrowserSession] = {}
        self.token = secrets.token_urlsafe(_BYTES)
        """Of the link; another one once it was used."""
        self._announce: Callable[[str], object] = lambda token: None

    def announce(self, announce: Callable[[str], object]) -> None:
        """Tell the token of the link now, and each later one."""
        self._announce = announce
        announce(self.token)

    def log_in(self, token: str) -> str | None:
        """The cookie of a new session, or None: the token is not that of the link."""
        with self._lock:
            if not hmac.compare_digest(_hash(token), _hash(self.token)):
                return None
            self.token = secrets.token_urlsafe(_BYTES)
            cookie = secrets.token_urlsafe(_BYTES)
            now_ms = self._environment.now_ms()
            self._open = {key: one for key, one in self._open.items() if one.ends_ms > now_ms}
            while len(self._open) >= MOST_SESSIONS:
                del self._open[next(iter(self._open))]
            session = BrowserSession(secrets.token_urlsafe(_BYTES), now_ms + 1000 * SESSION_S)
            self._open[_hash(cookie)] = session
        self._announce(self.token)
        return cookie

    def find(self, cookie: str) -> BrowserSession | None:
        """The session of a cookie, unless it has ended."""
        session = self._open.get(_hash(cookie))
        if session is None or session.ends_ms <= self._environment.now_ms():
            return None
        return session

    def log_out(self, cookie: str) -> None:
        with self._lock:
            self._open.pop(_hash(cookie), None)


def _hash(text: str) -> bytes:
    """Compared in place of the text: the time of a look-up says nothing about it."""
    return hashlib.sha256(text.encode(errors="replace")).digest()
