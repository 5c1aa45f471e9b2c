"""How much each principal may use, and the group in all."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dledger.catalog.access.quotas import GROUP_LIMITS
from dledger.console.pages.common import confirmation, console_of, done, form_of
from dledger.console.views.access import QUOTAS, quota_rows, quota_value
from dledger.console.views.paging import named, paged
from dledger.protocol.messages.catalog_commands import WHOLE_GROUP


def quotas(request: Request) -> Response:
    console, query = console_of(request), request.query_params
    told = console.group.quotas.get()
    find = query.get("find", "")
    rows = named(quota_rows(told.value or {}), find, lambda row: row.entity)
    return console.page(
        request,
        "quotas",
        title="Quotas",
        told=told,
        page=paged(rows, query.get("page", "")),
        find=find,
        known=QUOTAS,
    )


def put(request: Request) -> Response:
    """Set one quota; a limit of the group needs no principal."""
    form, group = form_of(request), console_of(request).group
    name, value = form.get("quota", ""), quota_value(form.get("value", ""))
    if value is None:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "Write a number, such as 500 or 10MiB.")
    entity = WHOLE_GROUP if name in GROUP_LIMITS else form.get("entity", "").strip()
    group.changing.set_quotas(entity, {name: value})
    group.changed()
    return done("/quotas", "set")


def preview(request: Request) -> Response:
    entity, name = request.query_params.get("entity", ""), request.query_params.get("quota", "")
    return confirmation(
        request,
        title="Remove a quota",
        says=f"This quota of {entity} will be taken away: {QUOTAS.get(name, name)}",
        entity=entity,
        quota=name,
        action="Remove quota",
    )


def remove(request: Request) -> Response:
    form, group = form_of(request), console_of(request).group
    if not form.get("quota"):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "Which quota? Its name is missing.")
    group.changing.remove_quotas(form.get("entity", ""), [form["quota"]])
    group.changed()
    return done("/quotas", "unset")
