"""The content of a stopped store, entry by entry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dledger.checksum import crc32
from dledger.protocol.messages.entry import MAGIC_NOOP, Entry
from dledger.records.body.header import BodyKind, Flag, decode_header
from dledger.storage.disk.disk import Disk
from dledger.storage.log.walker import Bad
from dledger.storage.offline.inspect import inspect_store


def dump_store(directory: str | Path, disk: Disk | None = None) -> Iterator[dict[str, Any]]:
    """One dict of JSON values per entry, in order; files that DLedger wrote as well.

    Keys: ``index``, ``term``, ``pos``, ``size`` (header and body, bytes), ``kind`` (``data``,
    ``staged``, ``command``, ``noop``, ``other``), ``body_crc`` (CRC-32 of the body as it is),
    ``verified`` (its checksums are there and match). A damaged entry has ``kind`` ``damaged``, a
    ``reason``, and None for unknown values.

    Raises:
        PathError: there is no store, or a node runs on it.
    """
    look = inspect_store(directory, disk)
    for event in look.walker().walk():
        if isinstance(event, Entry):
            yield {
                "index": event.index,
                "term": event.term,
                "pos": event.pos,
                "size": event.size,
                "kind": kind_of(event),
                "body_crc": crc32(event.body),
                "verified": event.verified,
            }
        elif isinstance(event, Bad):
            for index in range(event.first, event.last + 1):
                yield {
                    "index": index,
                    "term": None,
                    "pos": event.pos if index == event.first else None,
                    "size": None,
                    "kind": "damaged",
                    "body_crc": None,
                    "verified": False,
                    "reason": event.reason,
                }


def kind_of(entry: Entry) -> str:
    """The content of an entry, by its magic and the first bytes of its body."""
    if entry.magic == MAGIC_NOOP:
        return "noop"
    try:
        header = decode_header(entry.body)
    except ValueError:
        return "other"
    if header.kind is BodyKind.COMMAND:
        return "command"
    return "staged" if header.flags & Flag.STAGED else "data"
