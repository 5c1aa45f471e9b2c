"""Nodes, settings, certificates, the audit log; and the way in and out."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from dledger.console.access.guard import NO_SESSION
from dledger.console.access.sessions import SESSION_S
from dledger.console.pages.common import confirmed, console_of, done, form_of
from dledger.console.views.nodes import kept_rows, node_rows, setting_rows
from dledger.console.watch.audit_files import MOST_LINES, AuditFiles
from dledger.release import RELEASE


def log_in(request: Request) -> Response:
    """The link that the command has printed opens a session, and leads to the first page in a
    second step: a cookie that is ``Strict`` does not go along on a way that began elsewhere."""
    console = console_of(request)
    if request.method != "GET":  # a look at the link must not use it up
        return Response(status_code=HTTPStatus.METHOD_NOT_ALLOWED)
    cookie = console.door.sessions.log_in(request.query_params.get("token", ""))
    if cookie is None:
        return PlainTextResponse(NO_SESSION + "\n", HTTPStatus.UNAUTHORIZED)
    template = console.templates.get_template("login.html")
    answer = HTMLResponse(template.render(release=RELEASE))
    answer.set_cookie(
        console.door.cookie,
        cookie,
        max_age=SESSION_S,
        httponly=True,
        samesite="strict",
        secure=console.settings.secure,
    )
    return answer


def log_out(request: Request) -> Response:
    console = console_of(request)
    console.door.sessions.log_out(request.cookies.get(console.door.cookie, ""))
    answer = PlainTextResponse("You are logged out.\n")
    answer.delete_cookie(console.door.cookie, secure=console.settings.secure)
    return answer


def nodes(request: Request) -> Response:
    console = console_of(request)
    told = console.group.nodes.get()
    rows = node_rows(told.value or {})
    return console.page(request, "nodes", title="Nodes", told=told, rows=rows)


def transfer(request: Request) -> Response:
    """Hand leadership to a node."""
    form, console = form_of(request), console_of(request)
    node = form.get("node", "")
    known = console.group.nodes.get().value or {}
    if node not in known:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"There is no node {node!r} in the group.")
    confirmed(form, node)
    console.group.changing.transfer(node)
    console.group.changed()
    return done("/", "leads")


def settings(request: Request) -> Response:
    console = console_of(request)
    told = console.group.nodes.get()
    kept = kept_rows(console.group.settings.get().value or [])
    own = [row for row in console.group.own_settings() if row[0] not in dict(kept)]
    rows = setting_rows(told.value or {}) + kept + own
    return console.page(request, "settings", title="Settings", rows=rows)


def certificates(request: Request) -> Response:
    console = console_of(request)
    told = console.group.certificates.get()
    return console.page(
        request, "certificates", title="Certificates", told=told, rows=told.value or []
    )


def audit(request: Request) -> Response:
    """Of a path's group, whose files are on this machine; no node tells a client of its own."""
    console, query = console_of(request), request.query_params
    event, principal = query.get("event", ""), query.get("principal", "")
    files = AuditFiles(console.group.place, event=event, principal=principal)
    return console.page(
        request,
        "audit",
        title="Audit log",
        rows=files.rows() if console.group.place else [],
        files=files,
        event=event,
        principal=principal,
        most=MOST_LINES,
    )
