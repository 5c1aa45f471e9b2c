"""The catalog as rows, page by page, for `dledger.protocol.messages.client.ListRequest`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any, Final

from dledger.catalog.clients.group_members import GroupMembership
from dledger.catalog.clients.writers import Offsets
from dledger.catalog.state import CatalogState
from dledger.catalog.topics.partition import NO_TIME, Partition

COMMIT_ENTRIES: Final = 20_000
"""Entries that one page of commits looks at: some milliseconds of the node's time."""
COMMIT_SPANS: Final = 3000
"""Ranges of offsets in one page of commits, so that it fits a frame, unless a single commit has
more."""

Page = tuple[list[dict[str, Any]], int]
"""Rows, and where to go on (-1: that was all)."""


def list_partitions(catalog: CatalogState, start: int, limit: int) -> Page:
    """Every partition, in the order in which their topics were created."""
    keys, following = _page(catalog.partitions.keys_from(start), start, limit)
    rows = []
    for key in keys:
        part = catalog.partitions.look(key)
        row = _place(part, key)
        row["bytes"], _ = part.unread(part.begin_offset)
        row["newest_us"] = max(0, part.newest_us)
        rows.append(row)
    return rows, following


def list_progress(catalog: CatalogState, name: str, start: int, limit: int) -> Page:
    """How far a consumer group has got; no rows when there is none of that name."""
    group = catalog.consumer_groups.by_name.get(name)
    if group is None:
        return [], -1
    offsets = {
        t << 32 | number: offset
        for t, spans in group.offsets.items()
        for number, offset in spans.items()
    }
    keys, following = _page(sorted(offsets), start, limit)
    rows = []
    for key in keys:
        part = catalog.partitions.look(key)
        size, oldest_us = part.unread(offsets[key])
        more = {
            "offset": offsets[key],
            "bytes": size,
            "oldest_us": 0 if oldest_us == NO_TIME else oldest_us,
            "committed_ms": group.committed_ms,
            "holds": group.holds,
        }
        rows.append({**_place(part, key), **more})
    return rows, following


def list_members(catalog: CatalogState, name: str, start: int, limit: int) -> Page:
    """The members of a consumer group, in the order in which they joined."""
    group = catalog.consumer_groups.by_name.get(name)
    membership = GroupMembership() if group is None else group.membership
    members = list(membership.members.values())
    rows = []
    for member in members[start : start + limit]:
        partitions: dict[str, list[int]] = {}
        for key in sorted(membership.owned_by(member.member_id)):
            topic = catalog.topic_by_id(key >> 32).name
            partitions.setdefault(topic, []).append(key & 0xFFFFFFFF)
        rows.append(
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "label": member.label,
                "epoch": membership.epoch,
                "state": membership.state_of(member),
                "partitions": partitions,
            }
        )
    return rows, start + limit if start + limit < len(members) else -1


def list_quotas(catalog: CatalogState, start: int, limit: int) -> Page:
    """Each entity that has quotas, by name."""
    entities = sorted(catalog.quotas.by_entity.items())
    rows = [{"entity": entity, "quotas": dict(quotas)} for entity, quotas in entities]
    return rows[start : start + limit], start + limit if start + limit < len(rows) else -1


def list_settings(catalog: CatalogState, own: Mapping[str, str], start: int, limit: int) -> Page:
    """Each dynamic setting, those of topics behind those of the group; ``own``: the node's."""
    settings = catalog.settings
    names = [*own, *sorted(name for name in settings.values if name not in own)]
    sources = [("set", settings.values), ("founding", settings.founding), ("node", own)]
    rows = [
        {"name": name, "value": texts[name], "source": source, "version": settings.version}
        for name in names[start : start + limit]
        for source, texts in [next(one for one in sources if name in one[1])]
    ]
    return rows, start + limit if start + limit < len(names) else -1


def list_setting_changes(catalog: CatalogState, start: int, limit: int) -> Page:
    """The changes that are remembered, oldest first."""
    rows = list(map(asdict, catalog.settings.history[start : start + limit]))
    return rows, start + limit if start + limit < len(catalog.settings.history) else -1


def list_acls(catalog: CatalogState, start: int, limit: int) -> Page:
    """The rules of access control, sorted."""
    rules = catalog.acls.sorted()
    rows = [asdict(rule) for rule in rules[start : start + limit]]
    return rows, start + limit if start + limit < len(rules) else -1


def _page(keys: Iterable[int], start: int, limit: int) -> tuple[list[int], int]:
    wanted = list(islice((key for key in keys if key >= start), limit + 1))
    return wanted[:limit], wanted[limit] if len(wanted) > limit else -1


def _place(part: Partition, key: int) -> dict[str, Any]:
    return {
        "topic": part.topic,
        "topic_id": key >> 32,
        "partition": key & 0xFFFFFFFF,
        "begin_offset": part.begin_offset,
        "end_offset": part.next_offset,
    }


def list_commits(catalog: CatalogState, start: int, limit: int) -> tuple[dict[int, Offsets], int]:
    """By the entry that committed it, the partitions and offsets of each transaction, and where to
    go on."""
    last = min(start + COMMIT_ENTRIES - 1, catalog.applied_index)
    found: dict[int, Offsets] = {}
    for key, part in sorted(catalog.partitions.used.items()):
        for base, count, index, placed_by in part.placed(start, last):
            if index != placed_by:
                span = (
                    found.setdefault(placed_by, {})
                    .setdefault(part.topic, {})
                    .setdefault(key & 0xFFFFFFFF, [base, base])
                )
                span[1] = base + count
    following = last + 1 if last < catalog.applied_index else -1
    page: dict[int, Offsets] = {}
    spans = 0
    for index in sorted(found):
        spans += sum(map(len, found[index].values()))
        if page and (len(page) >= limit or spans > COMMIT_SPANS):
            return page, index
        page[index] = found[index]
    return page, following


def first_offsets(catalog: CatalogState, first: int, last: int) -> dict[int, int]:
    """Of the batches in the entries ``first`` to ``last`` that have offsets: entry -> first
    offset."""
    found: dict[int, int] = {}
    for part in catalog.partitions.used.values():
        for base, _, index, _ in part.placed(first, last + part.lateness):
            if first <= index <= last:
                found[index] = base
    return found
