"""Users and their tokens; what they are checked by is on no page."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from dledger.console.pages.common import confirmation, confirmed, console_of, done, form_of
from dledger.console.views.access import user_rows
from dledger.console.views.paging import named, paged


def users(request: Request) -> Response:
    console, query = console_of(request), request.query_params
    told = console.group.users.get()
    find = query.get("find", "")
    rows = user_rows(named(told.value or [], find, lambda user: user.name))
    return console.page(
        request,
        "users",
        title="Users",
        told=told,
        page=paged(rows, query.get("page", "")),
        find=find,
    )


def preview_remove(request: Request) -> Response:
    name = request.path_params["name"]
    return confirmation(
        request,
        title="Remove a user",
        says=f"User {name} and its tokens will be removed. Its connections end then.",
        typed=True,
        action="Remove user",
    )


def remove(request: Request) -> Response:
    form, name = form_of(request), request.path_params["name"]
    group = console_of(request).group
    confirmed(form, name)
    group.changing.remove_user(name)
    group.changed()
    return done("/users", "removed")


def preview_revoke(request: Request) -> Response:
    name, token = request.path_params["name"], request.path_params["token"]
    return confirmation(
        request,
        title="Revoke a token",
        says=f"Token {token} of user {name} will be revoked. Its connections end then.",
        action="Revoke token",
    )


def revoke(request: Request) -> Response:
    form_of(request)
    group = console_of(request).group
    group.changing.revoke_token(request.path_params["token"])
    group.changed()
    return done("/users", "revoked")
