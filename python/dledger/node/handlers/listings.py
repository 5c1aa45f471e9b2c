"""A group's state as rows: partitions, consumer groups' progress, commits of transactions, entries
of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from operator import itemgetter
from typing import Any, Final

from dledger.catalog.access.acls import PRODUCER, TOPIC
from dledger.catalog.clients.writers import Offsets
from dledger.catalog.listing import (
    first_offsets,
    list_acls,
    list_commits,
    list_members,
    list_partitions,
    list_progress,
    list_quotas,
    list_setting_changes,
    list_settings,
)
from dledger.errors import CorruptEntry, OffsetOutOfRange, ProtocolError, TopicNotFound
from dledger.net import Connection
from dledger.node.access.authorizer import Authorizer
from dledger.node.access.sight import Sight
from dledger.node.context import NodeContext, NodePart
from dledger.node.handlers.offsets import LinearizableReads
from dledger.protocol.messages.catalog_commands import Command
from dledger.protocol.messages.client import Listing, ListRequest, ListResponse
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import Entry
from dledger.protocol.wire import decode_command
from dledger.records.body.header import BODY_HEADER_SIZE, decode_header
from dledger.storage.offline.dump import kind_of
from dledger.types import Index

MAX_ROWS: Final = {
    Listing.PARTITIONS: 1000,
    Listing.PROGRESS: 1000,
    Listing.COMMITS: 200,
    Listing.ENTRIES: 500,
    Listing.MEMBERS: 20,
    Listing.QUOTAS: 200,
    Listing.SETTINGS: 200,
    Listing.SETTING_CHANGES: 20,
    Listing.USERS: 500,
    Listing.ACLS: 500,
}
"""Of one page, so that it fits a frame's header."""
READ_BYTES: Final = 4 << 20
"""Of the log, for one page of entries."""
TEXT: Final = 300
"""Most characters of a command's fields."""

Rows = list[dict[str, Any]]
Send = Callable[[ListResponse], None]


class Listings(NodePart):
    """Answers `ListRequest`s from the applied state and, where it has to, from the log."""

    def __init__(
        self, context: NodeContext, linearizable: LinearizableReads, *, access: Authorizer
    ) -> None:
        super().__init__(context)
        self._linearizable = linearizable
        self._access = access

    def ask(self, connection: Connection, request_id: int, request: ListRequest) -> None:
        """Answer when everything that was acknowledged before is applied here."""

        def send(answer: ListResponse) -> None:
            sight = self._access.sight(connection)
            if not sight.is_whole:
                answer = replace(answer, rows=tuple(_shown(request.listing, answer.rows, sight)))
            connection.send(answer, request_id)

        serve = partial(self._serve, request, send)
        self._linearizable.answer(connection, request_id, serve, refusal=ListResponse)

    def _serve(self, request: ListRequest, send: Send) -> None:
        limit = max(1, min(request.limit, MAX_ROWS[request.listing]))
        if request.listing is Listing.PARTITIONS:
            send(self._page(*list_partitions(self._catalog, request.start, limit)))
        elif request.listing is Listing.PROGRESS:
            send(self._page(*list_progress(self._catalog, request.name, request.start, limit)))
        elif request.listing is Listing.ACLS:
            send(self._page(*list_acls(self._catalog, request.start, limit)))
        elif request.listing is Listing.MEMBERS:
            send(self._page(*list_members(self._catalog, request.name, request.start, limit)))
        elif request.listing is Listing.QUOTAS:
            send(self._page(*list_quotas(self._catalog, request.start, limit)))
        elif request.listing is Listing.SETTINGS:
            own = self._context.current.own_texts
            send(self._page(*list_settings(self._catalog, own, request.start, limit)))
        elif request.listing is Listing.SETTING_CHANGES:
            send(self._page(*list_setting_changes(self._catalog, request.start, limit)))
        elif request.listing is Listing.USERS:
            rows = self._catalog.users.rows()
            end = request.start + limit
            send(self._page(rows[request.start : end], end if end < len(rows) else -1))
        elif request.listing is Listing.COMMITS:
            start = max(request.start, self._store.begin_index)
            commits, following = list_commits(self._catalog, start, limit)
            held = [self._held(Index(index), Index(index + 1)) for index in commits]
            read = partial(self._commit_rows, commits, held)
            self._on_reader(read, lambda rows: self._page(rows, following), send)
        else:
            first = Index(max(request.start, self._store.begin_index))
            end = Index(min(self._catalog.applied_index + 1, first + limit))
            read = partial(self._entry_rows, first, end, self._held(first, end))
            self._on_reader(read, self._entries, send)

    def _page(self, rows: Rows, following: int) -> ListResponse:
        return ListResponse(
            code=Code.SUCCESS, leader_id=self._leader_id, rows=tuple(rows), next_start=following
        )

    def _held(self, first: Index, end: Index) -> Sequence[Entry]:
        """The entries from memory; none where the first is on the disk only. The newest ones may be
        nowhere else yet: a node applies what the others have made durable, be its own disk ever so
        slow."""
        return self._raft.log.cached(first, end) or ()

    def _on_reader(
        self, read: Callable[[], Rows], page: Callable[[Rows], ListResponse], send: Send
    ) -> None:
        """Let a reader's thread make rows, then answer with the page of them; if it cannot, answer
        why."""

        def done(future: asyncio.Future[Rows]) -> None:
            if self._ready_loop.failed or future.cancelled():
                return
            error = future.exception()
            if error is None:
                send(page(future.result()))
            elif isinstance(error, CorruptEntry):
                text = f"{error}; it is fetched from another node: ask again"
                send(ListResponse(code=Code.CORRUPT_ENTRY, message=text))
                self._events.damage(error)
            elif isinstance(error, OffsetOutOfRange):  # retention was faster
                send(ListResponse(code=Code.BEHIND, message=f"{error}; ask again"))
            else:
                send(ListResponse(code=Code.DISK_ERROR, message=str(error)))
                self._ready_loop.fail(error)

        self._ready_loop.on_reader(read).add_done_callback(done)

    # --- commits ----------------------------------------------------------------------------------

    def _commit_rows(self, commits: dict[int, Offsets], held: Sequence[Sequence[Entry]]) -> Rows:
        """On the reader's thread: each commit with the fields of its entry."""
        rows: Rows = []
        for (index, offsets), known in zip(commits.items(), held, strict=True):
            (entry,) = known or self._store.read(Index(index), 1, Index(index + 1))
            command: Any = _command(entry)
            row = {
                "index": index,
                "writer_id": "",
                "sequence": -1,
                "time_ms": 0,
                "offsets": offsets,
            }
            if command is not None:
                row |= {
                    "writer_id": command.writer_id,
                    "sequence": command.sequence,
                    "time_ms": command.time_ms,
                }
            rows.append(row)
        return rows

    # --- entries ----------------------------------------------------------------------------------

    def _entry_rows(self, first: Index, end: Index, held: Sequence[Entry]) -> Rows:
        """On the reader's thread: the entries, without the fields that only the catalog has."""
        if first >= end:
            return []
        return [_entry_row(entry) for entry in held or self._store.read(first, READ_BYTES, end)]

    def _entries(self, rows: Rows) -> ListResponse:
        if not rows:
            return self._page([], -1)
        first, last = rows[0]["index"], rows[-1]["index"]
        offsets = first_offsets(self._catalog, first, last)
        for row in rows:
            if "topic_id" in row:
                row["topic"] = self._topic(row.pop("topic_id"))
                row["offset"] = offsets.get(row["index"], -1)
        return self._page(rows, last + 1 if last < self._catalog.applied_index else -1)

    def _topic(self, topic_id: int) -> str:
        try:
            return self._catalog.topic_by_id(topic_id).name
        except TopicNotFound:  # deleted
            return ""


def _shown(listing: Listing, rows: Iterable[dict[str, Any]], sight: Sight) -> Rows:
    """The rows, and what they name, as far as the asker may describe it."""
    if listing is Listing.COMMITS:
        rows = sight.of(PRODUCER, rows, itemgetter("writer_id"))
    elif listing in (Listing.PARTITIONS, Listing.PROGRESS):
        rows = sight.of(TOPIC, rows, itemgetter("topic"))
    named = {Listing.COMMITS: "offsets", Listing.MEMBERS: "partitions"}.get(listing)
    if named is None:
        return list(rows)
    return [
        row | {named: {topic: row[named][topic] for topic in sight.of(TOPIC, row[named], str)}}
        for row in rows
    ]


def _entry_row(entry: Entry) -> dict[str, Any]:
    kind = kind_of(entry)
    row: dict[str, Any] = {
        "index": entry.index,
        "term": entry.term,
        "pos": entry.pos,
        "size": entry.size,
        "kind": kind,
    }
    if kind == "command":
        command = _command(entry)
        row["command"] = "" if command is None else type(command).__name__
        row["fields"] = "" if command is None else str(_told(command))[:TEXT]
    elif kind in {"data", "staged"}:
        header = decode_header(entry.body)
        row |= {"topic_id": header.topic_id, "partition": header.partition, "records": header.count}
    return row


def _told(command: Command) -> dict[str, Any]:
    """Its fields, but for those by which passwords are checked."""
    told = asdict(command)
    for name in ("verifier", "decoy"):
        told.pop(name, None)
    return told


def _command(entry: Entry) -> Command | None:
    """The command in an entry; None when it has none that this version knows."""
    if kind_of(entry) != "command":
        return None
    try:
        return decode_command(entry.body[BODY_HEADER_SIZE:])
    except ProtocolError:
        return None
