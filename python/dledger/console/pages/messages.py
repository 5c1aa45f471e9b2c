"""The message browser: records by offset and time, one record, and a live tail."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dledger.client import Client
from dledger.client.positions import FORMS, offsets_of, parse_position
from dledger.console.pages.common import Console, console_of, is_fragment
from dledger.console.views.record_filter import RecordFilter
from dledger.console.views.records import (
    RECORD_BYTES,
    VALUE_FORMS,
    field_rows,
    fitting,
    header_rows,
    most_rows,
    record_table,
    value_text,
)
from dledger.console.watch.reading import MOST_ROWS, look
from dledger.errors import ConfigError
from dledger.protocol.messages.client import TopicInfo

ROWS: Final = 100
TAIL_ROWS: Final = 50
"""A second, of a live tail."""


@dataclass(frozen=True, slots=True)
class AskedRecords:
    """What a request wants to see of a topic."""

    info: TopicInfo
    columns: list[str] | None
    """Of a typed topic's newest version."""
    partition: int
    form: str
    filter: RecordFilter

    def values(self) -> dict[str, Any]:
        """For the templates."""
        return {
            "info": self.info,
            "partition": self.partition,
            "form": self.form,
            "forms": VALUE_FORMS,
            "filter": self.filter,
            "is_filtered": bool(self.filter),
            "as_form": "" if self.form == "text" else f"?as={self.form}",
        }


def _asked(request: Request, console: Console, partition: str) -> AskedRecords:
    """Raises `HTTPException` for a partition that is not there."""
    query, looking = request.query_params, console.group.looking
    info = console.group.topic(request.path_params["name"])
    if not partition.isdecimal() or int(partition[:9]) >= info.partitions:
        raise HTTPException(
            HTTPStatus.NOT_FOUND, f"Topic {info.name} has partitions 0 to {info.partitions - 1}."
        )
    columns = None
    if info.typed:
        versions = looking.schemas(info)
        columns = [one.name for one in versions[-1].fields] if versions else []
    form = query.get("as", "")
    return AskedRecords(
        info,
        columns,
        int(partition),
        form if form in VALUE_FORMS else VALUE_FORMS[0],
        RecordFilter(
            query.get("key", ""),
            query.get("text", ""),
            "" if info.typed else query.get("header", ""),
        ),
    )


def records(request: Request) -> Response:
    console, query = console_of(request), request.query_params
    asked = _asked(request, console, query.get("partition") or "0")
    client = console.group.looking
    most = min(MOST_ROWS, most_rows(asked.columns or ("key", "value", "headers")))
    wish = query.get("count", "")
    count = min(max(int(wish), 1), most) if wish.isdecimal() and len(wish) < 9 else min(ROWS, most)
    start_text = query.get("from", "")
    found, table, wrong = None, None, ""
    try:
        start = _start(client, asked, start_text)
    except ConfigError as error:
        wrong = str(error)
    else:
        found = look(client, asked.info, asked.partition, start, count, asked.filter)
        table = record_table(found.records, asked.columns, asked.form)
    return console.page(
        request,
        "records",
        title=f"Records of {asked.info.name}",
        start=start_text,
        count=count,
        most=most,
        places=FORMS,
        wrong=wrong,
        found=found,
        table=table,
        before=max(0, found.start - count) if found else 0,
        **asked.values(),
    )


def _start(client: Client, asked: AskedRecords, text: str) -> int | None:
    """The offset that a place means; None: the newest records.

    Raises:
        ConfigError: it is no place.
    """
    if not text.strip() or text.strip() == "latest":
        return None
    position = parse_position("From", text)
    return offsets_of(client, asked.info.name, position, [asked.partition])[asked.partition]


def record(request: Request) -> Response:
    console = console_of(request)
    asked = _asked(request, console, request.path_params["partition"])
    offset = int(request.path_params["offset"])
    found = look(console.group.looking, asked.info, asked.partition, offset, 1)
    if not found.records or found.records[0].offset != offset:
        raise HTTPException(
            HTTPStatus.NOT_FOUND,
            f"Partition {asked.partition} keeps the offsets {found.begin} to {found.end - 1}, "
            f"not {offset}.",
        )
    one = found.records[0]
    whole = value_text(one, asked.form, indent=2)
    value = (
        None
        if whole is None
        else [fitting(line, RECORD_BYTES) for line in whole[:RECORD_BYTES].split("\n")]
    )
    return console.page(
        request,
        "record",
        title=f"Record {offset} of {asked.info.name}",
        record=one,
        begin=found.begin,
        end=found.end,
        key=None if one.key is None else fitting(one.key.decode(errors="backslashreplace"), 4096),
        headers=header_rows(one),
        fields=field_rows(one, asked.columns) if asked.columns else [],
        value=value,
        **asked.values(),
    )


def tail(request: Request) -> Response:
    """New records. The page asks on from where its last answer ended."""
    console, query = console_of(request), request.query_params
    asked = _asked(request, console, query.get("partition") or "0")
    client, info = console.group.looking, asked.info
    end = client.end_offsets(info.name)[asked.partition]
    behind = query.get("after", "")
    after = min(int(behind), end) if behind.isdecimal() and len(behind) < 20 else end
    shown = {
        "heads": record_table([], asked.columns, asked.form).heads,
        "most": TAIL_ROWS,
        **asked.values(),
    }
    if not is_fragment(request):
        next_ = _next(request, after)
        return console.page(request, "tail", title=f"Live tail of {info.name}", next=next_, **shown)
    # with a filter all are looked through; without one, those that are shown
    first = after if asked.filter else max(after, end - TAIL_ROWS)
    found = look(client, info, asked.partition, first, TAIL_ROWS, asked.filter)
    table = record_table(found.records, asked.columns, asked.form)
    return console.fragment(
        "tail",
        table=table,
        skipped=max(0, found.start - after),
        next=_next(request, found.next),
        **shown,
    )


def _next(request: Request, after: int) -> str:
    return f"{request.url.path}?{urlencode({**request.query_params, 'after': after})}"
