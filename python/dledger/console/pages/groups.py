"""Consumer groups, one group, and its reset."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dledger.client import Client
from dledger.client.group_reset import (
    Moved,
    Offsets,
    commit_reset,
    plan_reset,
    wanted_offsets,
)
from dledger.client.positions import FORMS, parse_position
from dledger.console.pages.common import check_write, confirmed, console_of, done, form_of
from dledger.console.views.groups import GroupRow, group_row, member_rows, position_rows
from dledger.console.views.paging import Paged, named, paged
from dledger.console.watch.samples import Told
from dledger.console.watch.watched_group import GroupNow

GROUPS: Final = 25
"""Of a page: each is asked for by itself."""
SHOWN_MEMBERS: Final = 100
SHOWN_MOVES: Final = 500


def groups(request: Request) -> Response:
    console, query = console_of(request), request.query_params
    told = console.group.group_names.get()
    find = query.get("find", "")
    names = named(told.value or [], find, str)
    page = paged([GroupRow(name) for name in names], query.get("page", ""), GROUPS)
    shown = [row.name for row in page.rows]
    rows = [
        _row(name, told)
        for name, told in zip(shown, console.group.groups.get_all(shown), strict=True)
    ]
    return console.page(
        request,
        "groups",
        title="Consumer groups",
        told=told,
        page=Paged(rows, page.number, page.pages, page.total),
        find=find,
        plots=True,
        points={"lag": float(sum(row.lag or 0 for row in rows))},
    )


def _row(name: str, told: Told[GroupNow]) -> GroupRow:
    if told.value is None:
        return GroupRow(name, error=told.error or "it does not answer yet")
    return group_row(name, told.value.lags, told.value.members)


def group(request: Request) -> Response:
    console, name = console_of(request), request.path_params["name"]
    known = console.group.group_names.get()
    if known.value is not None and name not in known.value:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"There is no consumer group {name!r}.")
    told = console.group.groups.get(name)
    now = told.value or GroupNow((), ())
    rows = position_rows(now.lags, now.members)
    members = member_rows(now.members)
    return console.page(
        request,
        "group",
        title=f"Consumer group {name}",
        told=told,
        name=name,
        page=paged(rows, request.query_params.get("page", "")),
        members=members[:SHOWN_MEMBERS],
        more_members=max(0, len(members) - SHOWN_MEMBERS),
        topics=sorted({row.topic for row in rows if row.offset is not None}),
        places=FORMS,
        plots=True,
        points={"lag": float(sum(row.lag or 0 for row in rows))},
    )


def preview(request: Request) -> Response:
    """Where the group would go on."""
    check_write(request)
    console, name = console_of(request), request.path_params["name"]
    topic, to = request.query_params.get("topic", ""), request.query_params.get("to", "")
    plan, _ = _plan(console.group.changing, name, topic, to)
    return console.page(
        request,
        "reset",
        title=f"Reset {name}",
        name=name,
        topic=topic,
        to=to,
        plan=plan[:SHOWN_MOVES],
        more=max(0, len(plan) - SHOWN_MOVES),
    )


def reset(request: Request) -> Response:
    form, name = form_of(request), request.path_params["name"]
    group = console_of(request).group
    confirmed(form, name)
    plan, log_ids = _plan(group.changing, name, form.get("topic", ""), form.get("to", ""))
    commit_reset(group.changing, name, plan, log_ids)
    group.changed(name)
    return done(f"/groups/{name}", "reset")


def _plan(client: Client, name: str, topic: str, to: str) -> tuple[list[Moved], dict[str, str]]:
    """The plan, and the log ids of its topics: one that is made anew meanwhile is refused.

    Raises:
        HTTPException: the group has no offsets there.
        ConfigError: ``to`` is no place.
    """
    parse_position("Go on at", to)
    current: Offsets = {
        name: dict(found)
        for name, found in client.group(name).offsets.items()
        if topic in {"", name}
    }
    if not current:
        raise HTTPException(HTTPStatus.NOT_FOUND, "The group has committed no offsets there.")
    log_ids = {info.name: info.log_id for info in client.topics() if info.name in current}
    wanted = {one: wanted_offsets(client, one, current[one], to, None) for one in log_ids}
    return plan_reset(client, current, wanted), log_ids
