"""The rules of what each principal may do, and what they say to something that it might ask for."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dledger.catalog.access.acls import ALL, ALLOW, DENY, OPERATIONS
from dledger.client import AclRule
from dledger.console.pages.common import (
    Console,
    confirmation,
    console_of,
    done,
    form_of,
    is_fragment,
)
from dledger.console.views.access import rule_id, rule_rows
from dledger.console.views.paging import Paged, named, paged
from dledger.errors import DLedgerError

ASKED: Final = ("principal", "operation", "resource_type", "resource")
"""Fields of the form that tests the rules."""
FIELDS: Final = ("effect", *ASKED)
"""Fields of a rule."""
_OPERATIONS: Final = tuple(dict.fromkeys(name for names in OPERATIONS.values() for name in names))


def acls(request: Request) -> Response:
    console, query = console_of(request), request.query_params
    told = console.group.acls.get()
    find = query.get("find", "")
    rules = named(told.value or [], find, lambda rule: rule.principal)
    page = paged(rules, query.get("page", ""))
    return console.page(
        request,
        "acls",
        title="ACLs",
        told=told,
        page=Paged(rule_rows(page.rows), page.number, page.pages, page.total),
        find=find,
        effects=(ALLOW, DENY),
        operations=_OPERATIONS,
        every=ALL,
        types=tuple(OPERATIONS),
        **_tested(request, console),
    )


def _tested(request: Request, console: Console) -> dict[str, Any]:
    """What was asked for, and the answer."""
    asked = {name: request.query_params.get(name, "") for name in ASKED}
    found: dict[str, Any] = {"asked": asked, "decision": None, "wrong": ""}
    if asked["principal"] and not is_fragment(request):
        try:
            found["decision"] = console.group.looking.acl_decision(**asked)
        except DLedgerError as error:
            found["wrong"] = str(error)
    return found


def add(request: Request) -> Response:
    form, group = form_of(request), console_of(request).group
    rule = AclRule(**{name: form.get(name, "") for name in FIELDS})
    is_new = group.changing.add_acls([rule], force="force" in form)
    group.changed()
    return done("/acls", "holds" if is_new else "known")


def preview(request: Request) -> Response:
    rule = _rule(request, request.query_params.get("rule", ""))
    return confirmation(
        request,
        title="Remove a rule",
        says=f"This rule will hold no longer: {rule}",
        rule=rule_id(rule),
        forced="Also where nobody could change the rules any more",
        action="Remove rule",
    )


def remove(request: Request) -> Response:
    form, group = form_of(request), console_of(request).group
    rule = _rule(request, form.get("rule", ""))
    group.changing.remove_acls([rule], force="force" in form)
    group.changed()
    return done("/acls", "over")


def _rule(request: Request, wanted: str) -> AclRule:
    """The rule of an id, as the group has it now."""
    for rule in console_of(request).group.changing.acls():
        if rule_id(rule) == wanted:
            return rule
    raise HTTPException(HTTPStatus.NOT_FOUND, "There is no such rule any more.")
