"""Entries that have no body of dledger's, on their way into the catalog."""

from __future__ import annotations

from dledger.catalog.state_machine import Catalog
from dledger.protocol.messages.entry import HEADER_SIZE, MAGIC_NORMAL, Entry
from dledger.rocketmq.format.append_hook import read_stored


def apply_foreign(catalog: Catalog, entry: Entry) -> None:
    """Apply a leader's NOOP, another program's entry, or a message of a RocketMQ commit log, in any
    group."""
    is_message = entry.magic == MAGIC_NORMAL
    stored = read_stored(entry.body, entry.pos + HEADER_SIZE) if is_message else None
    if stored is None:
        catalog.apply_other(entry.index)
        return
    catalog.apply_message(
        entry.index, stored.topic, stored.queue_id, stored.queue_offset, stored.store_timestamp
    )
