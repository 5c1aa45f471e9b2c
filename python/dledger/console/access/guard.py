"""The gate of the console, in front of all pages: the right host and origin, a session, a form that
this console made; and the headers that every answer has."""

from __future__ import annotations

import hmac
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dledger.console.access.sessions import Sessions

FORM_BYTES: Final = 64 << 10
FORM_FIELDS: Final = 100
ADDRESS_BYTES: Final = 4096
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without any, a browser would say no Origin either
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
OPEN: Final = ("/login", "/static/")
"""What is answered without a session."""
NO_SESSION: Final = (
    "You are not logged in here, or the session has ended. Open the link that dledger console has "
    "printed last; it works once."
)

FAULT: Final = (
    "The console has met an error of its own: what it is stands where dledger console was started."
)


@dataclass(frozen=True, slots=True)
class ConsoleDoor:
    """What the guard goes by."""

    scheme: str
    port: int
    hosts: Collection[str]
    """Values of ``Host`` that mean this console: any other one is a name that somebody has pointed
    at this address."""
    sessions: Sessions = field(default_factory=Sessions)

    @property
    def cookie(self) -> str:
        """Its name. Cookies are for a host, whatever the port: two consoles have two names."""
        prefix = "__Host-" if self.scheme == "https" else ""
        return f"{prefix}dledger-console-{self.port}"


class Guard:
    """ASGI middleware. A request that comes through has ``session`` in its state, and of a POST the
    ``form`` too."""

    def __init__(self, app: ASGIApp, door: ConsoleDoor) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, _with_headers(scope["path"], send))
        # nothing else is spoken here: the server refuses a web socket that nobody accepts

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            refusal = await self._refusal(Request(scope, receive))
            await (refusal or self._app)(scope, receive, noted)
        except Exception:
            # Starlette's own answer goes out in front of this guard, without its headers
            if not begun:
                await _no(500, FAULT)(scope, receive, send)
            raise  # the server logs it

    async def _refusal(self, request: Request) -> Response | None:
        """The answer to a request that may not pass."""
        door, path = self._door, request.url.path
        host = request.headers.get("host", "").lower()
        if host not in door.hosts:
            return _no(421, "This console has another name: use the address that it has printed.")
        if len(path) + len(request.url.query) > ADDRESS_BYTES:
            return _no(414, f"An address has {ADDRESS_BYTES} characters at most.")
        if request.method not in {"GET", "HEAD", "POST"}:
            return _no(405, "There is nothing of this kind here.")
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() != f"{door.scheme}://{host}":
            return _no(403, "This request comes from another site.")
        if request.headers.get("sec-fetch-site", "none") not in {"same-origin", "none"} and (
            request.method == "POST" or request.headers.get("sec-fetch-mode") != "navigate"
        ):
            return _no(403, "This request comes from another site.")
        if path.startswith(OPEN) and request.method != "POST":
            return None
        session = door.sessions.find(request.cookies.get(door.cookie, ""))
        if session is None:
            return _no(401, NO_SESSION)
        request.state.session = session
        if request.method == "POST":
            if origin is None:
                return _no(403, "A browser says where a form comes from, and this request did not.")
            return await _form(request, session.csrf)
        return None


async def _form(request: Request, csrf: str) -> Response | None:
    """Take the form of a POST; an answer where it is not one of this console's."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        return _no(415, "Forms come as application/x-www-form-urlencoded.")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES:
            return _no(413, f"A form has {FORM_BYTES} bytes at most.")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS)
    except ValueError:
        return _no(400, "This form cannot be read.")
    form = dict(pairs)
    if not hmac.compare_digest(form.pop("csrf", "").encode(), csrf.encode()):
        return _no(403, "This form is of another session: load its page again.")
    request.state.form = form
    return None


def _no(status: int, why: str) -> Response:
    return PlainTextResponse(why + "\n", status)


def _with_headers(path: str, send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            kept: Any = "private, max-age=86400" if path.startswith("/static/") else "no-store"
            headers["Cache-Control"] = kept if message["status"] == 200 else "no-store"
        await send(message)

    return with_headers
