"""Topics, one topic, and what may be changed of them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dledger.console.pages.common import confirmed, console_of, done, form_of
from dledger.console.views.paging import named, ordered, paged
from dledger.console.views.topics import column_rows, partition_rows, topic_rows, total
from dledger.console.watch.watched_group import TopicsNow

ORDERS: Final = {
    "name": lambda row: row.name,
    "records": lambda row: row.records,
    "size": lambda row: row.bytes,
    "records/s": lambda row: row.rate.records if row.rate else 0.0,
    "bytes/s": lambda row: row.rate.bytes if row.rate else 0.0,
}


def topics(request: Request) -> Response:
    console, query = console_of(request), request.query_params
    told = console.group.topics.get()
    now = told.value or TopicsNow()
    find = query.get("find", "")
    infos = named(list(now.infos.values()), find, lambda info: info.name)
    rows, sort = ordered(topic_rows(infos, now.places, now.rated), query.get("sort", ""), ORDERS)
    rate = total(now.rated.values())
    return console.page(
        request,
        "topics",
        title="Topics",
        told=told,
        page=paged(rows, query.get("page", "")),
        find=find,
        sort=sort,
        orders=list(ORDERS),
        plots=True,
        points={"records": rate.records, "bytes": rate.bytes},
    )


def topic(request: Request) -> Response:
    console, name = console_of(request), request.path_params["name"]
    told = console.group.topics.get()
    now = told.value or TopicsNow()
    info = now.infos.get(name) or console.group.topic(name)
    rows = partition_rows(name, now.places, now.rated)
    versions = console.group.looking.schemas(info) if info.typed else []
    rate = total(row.rate for row in rows if row.rate)
    return console.page(
        request,
        "topic",
        title=f"Topic {name}",
        told=told,
        info=info,
        page=paged(rows, request.query_params.get("page", "")),
        version=len(versions),
        columns=column_rows(versions[-1]) if versions else [],
        plots=True,
        points={"records": rate.records, "bytes": rate.bytes},
    )


def create(request: Request) -> Response:
    form, group = form_of(request), console_of(request).group
    name, kind = form.get("name", ""), form.get("type", "")
    if kind not in {"raw", "typed"}:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "A topic is raw or typed.")
    partitions = _partitions(form)
    if kind == "typed":
        group.changing.create_topic(name, partitions, type="typed")
    else:
        group.changing.create_topic(name, partitions)
    group.changed()
    return done(f"/topics/{name}", "created")


def grow(request: Request) -> Response:
    form, name = form_of(request), request.path_params["name"]
    group = console_of(request).group
    group.changing.add_partitions(name, _partitions(form))
    group.changed()
    return done(f"/topics/{name}", "grown")


def delete(request: Request) -> Response:
    form, name = form_of(request), request.path_params["name"]
    group = console_of(request).group
    confirmed(form, name)
    group.changing.delete_topic(name)
    group.changed()
    return done("/topics", "deleted")


def _partitions(form: dict[str, str]) -> int:
    text = form.get("partitions", "")
    if not text.isdecimal() or not 1 <= int(text[:9]) <= 10_000:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "A topic has 1 to 10,000 partitions.")
    return int(text)
