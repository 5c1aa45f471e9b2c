"""What all pages have: the templates, the head of a page, and errors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from dledger import errors
from dledger.console.access.guard import ConsoleDoor
from dledger.console.settings import ConsoleSettings
from dledger.console.views import text
from dledger.console.views.nodes import node_rows, sentence
from dledger.console.views.sections import SECTIONS, sections_of
from dledger.console.watch.watched_group import WatchedGroup
from dledger.environment import REAL
from dledger.errors import DLedgerError
from dledger.release import RELEASE

DONE: Final = {
    "created": "The topic is created.",
    "grown": "The partitions are there.",
    "deleted": "The topic is deleted.",
    "leads": "Leadership is transferred.",
    "reset": "The group goes on there.",
    "removed": "The user is removed, with its tokens.",
    "revoked": "The token is revoked.",
    "holds": "The rule holds from now on.",
    "known": "The rule was there already.",
    "over": "The rule holds no longer.",
    "set": "The quota is set.",
    "unset": "The quota is removed.",
}
"""What a page says after a change, by a word of its address."""
STATUS: Final = {
    errors.TopicNotFound: HTTPStatus.NOT_FOUND,
    errors.OffsetOutOfRange: HTTPStatus.NOT_FOUND,
    errors.ConfigError: HTTPStatus.BAD_REQUEST,
    errors.AccessDenied: HTTPStatus.FORBIDDEN,
    errors.Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.OutcomeUnknown: HTTPStatus.GATEWAY_TIMEOUT,
}
READ_ONLY: Final = "This console only reads. Start it with --write to change the group."


def make_environment() -> Environment:
    """The templates. All that they print is escaped, twice: hidden characters, then HTML."""
    made = Environment(
        loader=PackageLoader("dledger.console"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        finalize=text.shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("number", "size", "duration", "moment", "clock"):
        made.filters[name] = getattr(text, name)
    made.filters["verbatim"] = text.Verbatim
    return made


@dataclass(frozen=True)
class Console:
    """What the pages are made of. It is ``request.app.state.console``."""

    settings: ConsoleSettings
    group: WatchedGroup
    door: ConsoleDoor
    templates: Environment
    target: str
    """The group, as the command was given it."""

    def page(
        self, request: Request, name: str, /, *, title: str, status: int = 200, **values: Any
    ) -> Response:
        """A whole page; or, for one that is shown already, the part that changes."""
        if is_fragment(request) and name in LIVE:
            return self.fragment(name, **self._shared(request) | values)
        own = {"title": title, "done": DONE.get(request.query_params.get("done", ""), "")}
        shown = own | {"is_live": name in LIVE} | self._shared(request) | self._head() | values
        return HTMLResponse(self.templates.get_template(f"{name}.html").render(shown), status)

    def fragment(
        self, name: str, /, *, points: dict[str, float] | None = None, **values: Any
    ) -> Response:
        """The part of a page that changes. The state of the group, and points of the plots, come
        beside it: they change each second, and most of the time nothing else does."""
        html = self.templates.get_template(f"{name}_live.html").render(values)
        beside = json.dumps({"sample": self._head() | {"points": points or {}}})
        return HTMLResponse(html, headers={"HX-Trigger": beside})

    def _shared(self, request: Request) -> dict[str, Any]:
        path = request.url.path
        query = {name: value for name, value in request.query_params.items() if name != "done"}
        session = getattr(request.state, "session", None)

        def changed(**values: Any) -> str:
            return urlencode({**query, **values})

        return {
            "here": f"{path}?{urlencode(query)}",
            "query": changed,
            "token": session.csrf if session is not None else "",
            "sections": sections_of(type(self.group.looking)),
            "section": _section(request),
            "write": self.settings.write,
            "messages": self.settings.messages,
            "place": self.group.place,
            "target": self.target,
            "release": RELEASE,
            "plots": False,
        }

    def _head(self) -> dict[str, str]:
        told = self.group.nodes.get()
        said = sentence(node_rows(told.value or {}))
        if told.error:
            said = f"The group does not answer since {text.clock(told.time_s)}: it said {said}"
        return {"said": text.visible(said), "at": text.clock(REAL.wall_us() / 1e6)}

    def error(self, request: Request, error: str, status: int) -> Response:
        section = _section(request)
        known = [one.path for one in SECTIONS]
        return self.page(
            request,
            "error",
            title=HTTPStatus(status).phrase,
            status=status,
            error=error,
            back=section if section in known else "/",  # an address may lead anywhere
        )


LIVE: Final = frozenset(
    {"nodes", "topics", "topic", "groups", "group", "tail", "users", "acls", "quotas"}
)
"""Pages a part of which is asked for each second."""


def _section(request: Request) -> str:
    return f"/{request.url.path.split('/')[1]}"


def console_of(request: Request) -> Console:
    found: Console = request.app.state.console
    return found


def is_fragment(request: Request) -> bool:
    """Whether the page is shown already, and asks for what changes."""
    return request.headers.get("hx-request") == "true"


def dledger_error(request: Request, error: Exception) -> Response:
    """An error of the group, as a page."""
    assert isinstance(error, DLedgerError)
    status = next(
        (at for kind, at in STATUS.items() if isinstance(error, kind)), HTTPStatus.CONFLICT
    )
    if is_fragment(request):
        return Response(status_code=status)
    return console_of(request).error(request, str(error), status)


def http_error(request: Request, error: Exception) -> Response:
    """No such page, and the like."""
    assert isinstance(error, HTTPException)
    if is_fragment(request):
        return Response(status_code=error.status_code)
    return console_of(request).error(request, error.detail, error.status_code)


def check_write(request: Request) -> None:
    """Raises `HTTPException` where the console only reads."""
    if not console_of(request).settings.write:
        raise HTTPException(HTTPStatus.FORBIDDEN, READ_ONLY)


def form_of(request: Request) -> dict[str, str]:
    """The form of a POST, which the guard has taken; only where the console may write.

    Raises:
        HTTPException: it only reads.
    """
    check_write(request)
    found: dict[str, str] = request.state.form
    return found


def confirmation(
    request: Request,
    title: str,
    says: str,
    action: str,
    *,
    typed: bool = False,
    forced: str = "",
    **fields: str,
) -> Response:
    """The page in front of a change that a link in a table leads to; its form comes back to the
    same address.

    Args:
        says: what would be.
        action: on the button.
        typed: a name is to be typed (`confirmed`).
        forced: what a check mark named ``force`` allows; empty: there is none.
        fields: go along with the form.
    """
    check_write(request)
    return console_of(request).page(
        request,
        "confirm",
        title=title,
        says=says,
        action=action,
        typed=typed,
        forced=forced,
        fields=fields,
    )


def confirmed(form: dict[str, str], name: str) -> None:
    """Raises `HTTPException` unless the form has the name, typed."""
    if form.get("confirm") != name:
        raise HTTPException(
            HTTPStatus.BAD_REQUEST, f"Nothing was changed: type {name} to confirm, exactly so."
        )


def done(path: str, what: str) -> Response:
    """Go on to a page that says what was done."""
    return RedirectResponse(f"{path}?done={what}", HTTPStatus.SEE_OTHER)
