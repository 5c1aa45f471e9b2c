"""Where the log of a backup is cut, and from which catalog a restore begins."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dledger.backup.manifest import Manifest
from dledger.backup.reading import BackupReader
from dledger.backup.repository import Repository
from dledger.catalog.snapshot import topics_of
from dledger.catalog.topics.batch_rows import ROW_SIZE
from dledger.catalog.topics.partition import APPLIED, BASE, NEWEST, table_name
from dledger.config import nearest
from dledger.errors import ConfigError
from dledger.types import Index

_number_at: Final = struct.Struct("<q").unpack_from


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What a restore is made of: the log of ``log`` up to the entry ``last``, and the catalog of
    ``catalog``, which is of that entry or of one before it; None: the log has its first entry, and
    the nodes make the catalog from it."""

    log: Manifest
    catalog: Manifest | None
    last: Index

    @property
    def is_whole(self) -> bool:
        return self.last == self.log.index


def plan_restore(
    repository: Repository, log: Manifest, last: Index, manifests: Sequence[Manifest]
) -> RestorePlan:
    """How to restore ``log`` up to ``last``.

    Raises:
        ConfigError: no backup has a catalog to begin with.
    """
    if last < 0:
        raise ConfigError(f"nothing of backup {log.name} would be left: name a later place to end")
    if last > log.index:
        raise ConfigError(
            f"backup {log.name} ends with entry {log.index}: entry {last} is not in it. Name a "
            f"later one ('dledger backup list {repository.target.url}')"
        )
    first = log.begin.position.index + 1
    fitting = [
        one
        for one in (*manifests, log)
        if one.group_id == log.group_id and first - 1 <= one.index <= last
    ]
    if fitting:
        return RestorePlan(log, max(fitting, key=lambda one: one.index), last)
    if first == 0:
        return RestorePlan(log, None, last)
    oldest = min(one.index for one in (*manifests, log) if one.index >= first - 1)
    raise ConfigError(
        f"the log cannot be cut at entry {last}: retention has deleted its beginning, and the "
        f"oldest state that the backups at {repository.target.url} have is as of entry {oldest}. "
        "Restore from there on, or the whole backup"
    )


def _first_above(rows: bytes, column: int, value: int) -> int | None:
    """The first row whose ``column``, which never falls, is above ``value``."""
    count = len(rows) // ROW_SIZE
    at = bisect_right(
        range(count), value, key=lambda row: _number_at(rows, row * ROW_SIZE + column)[0]
    )
    return at if at < count else None


def _applied(rows: bytes, row: int) -> int:
    return int(_number_at(rows, row * ROW_SIZE + APPLIED)[0])


def before_offset(reader: BackupReader, topic: str, partition: int, offset: int) -> Index:
    """The last entry before the one that gave the record with this offset its place, so that no
    record from there on is restored.

    Raises:
        ConfigError: the backup has no such record.
    """
    topics = topics_of(reader.snapshot())
    if topic not in topics:
        raise ConfigError(f"the backup has no topic {topic!r}{nearest(topic, list(topics))}")
    topic_id, partitions = topics[topic]
    if not 0 <= partition < partitions:
        raise ConfigError(f"topic {topic!r} has partitions 0 to {partitions - 1}, not {partition}")
    name = table_name(topic_id, partition)
    place = next((one for one in reader.head().tables if one[0] == name), None)
    rows = b"".join(reader.rows(*place)) if place is not None else b""
    behind = _first_above(rows, BASE, offset)
    row = (len(rows) // ROW_SIZE if behind is None else behind) - 1
    if row < 0:
        raise ConfigError(
            f"the backup has no record with offset {offset} of {topic}/{partition} any more: it is "
            "older than its first one, or the partition is empty"
        )
    return Index(_applied(rows, row) - 1)


def before_time(reader: BackupReader, time_us: int) -> Index:
    """The last entry before the first batch with a record later than that, of any partition: the
    last one of all where there is none."""
    last = reader.manifest.index
    for name, first, end in reader.head().tables:
        rows = b"".join(reader.rows(name, first, end))
        row = _first_above(rows, NEWEST, time_us)
        if row is not None:
            last = Index(min(last, _applied(rows, row) - 1))
    return last
