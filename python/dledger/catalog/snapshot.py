"""The catalog's state as bytes: the same bytes on every node with the same history.

::

    byte 0           8           12            20                         end - 4
         | "DLCATLG1" | JSON size | packed size | JSON | packed numbers | CRC-32 of all before |

The JSON holds what has names; the packed part, in the order in which the JSON names their owners,
each partition's numbers, each producer's remembered results, and each stage's batches. Numbers are
little-endian. The rows of the topic index are not in it, only how many there are: they lie in the
tables.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from dataclasses import astuple
from typing import Any, Final

from dledger.catalog.access.quotas import QuotaState
from dledger.catalog.access.users import Users
from dledger.catalog.clients.consumer_groups import ConsumerGroup, Groups
from dledger.catalog.clients.group_members import ConsumerMember, GroupMembership, PartitionOwner
from dledger.catalog.clients.producers import WINDOW, Producers, ProducerState, ResultWindow
from dledger.catalog.clients.transactions import STAGED_ROW, StageState, Transactions
from dledger.catalog.clients.writers import Trace, Writer, Writers
from dledger.catalog.dynamic_settings import DynamicSettings
from dledger.catalog.group_list import GroupList
from dledger.catalog.state import CatalogState
from dledger.catalog.topics.partition import NO_TIME, Partition, table_name
from dledger.catalog.topics.queues import Queues
from dledger.catalog.topics.table import TableFactory
from dledger.catalog.versions import VersionState
from dledger.checksum import crc32
from dledger.errors import CorruptStore
from dledger.protocol.messages.client import TopicInfo
from dledger.types import Index

MAGIC: Final = b"DLCATLG1"
PREFIX: Final = struct.Struct("<8sIQ")
NUMBERS: Final = struct.Struct("<qqqqqI")
"""Of a partition, in the order of NUMBER_NAMES."""
NUMBER_NAMES: Final = ("next_offset", "rows", "bytes", "newest_us", "lateness", "rows_crc")
UNUSED: Final = NUMBERS.pack(0, 0, 0, NO_TIME, 0, 0)
CRC: Final = struct.Struct("<I")


def encode(catalog: CatalogState) -> bytes:
    """The bytes of a catalog's state."""
    packed: list[bytes] = []
    topics = sorted(catalog.topics_state.by_id.values(), key=lambda info: info.topic_id)
    used = catalog.partitions.used
    in_use = {key >> 32 for key in used}
    for info in topics:
        first = info.topic_id << 32
        if info.topic_id in in_use:
            packed.extend(_numbers(used.get(key)) for key in range(first, first + info.partitions))
        else:
            packed.append(UNUSED * info.partitions)
    meta = {
        "applied": catalog.applied_index,
        "clock": catalog.clock_ms,
        "topics": [
            [i.topic_id, i.name, i.log_id, i.partitions, sorted(i.settings.items())] for i in topics
        ],
        "next_topic": catalog.topics_state.next_id,
        "retired": list(catalog.topics_state.retired),
        "groups": _encode_groups(catalog.consumer_groups),
        "producers": _encode_producers(catalog.producers, packed),
        "stages": _encode_stages(catalog.transactions, packed),
        "writers": [
            [
                name,
                w.sequence,
                w.committed_at,
                w.records,
                [[t, list(s.items())] for t, s in w.offsets.items()],
            ]
            for name, w in catalog.transactions.writers.by_name.items()
        ],
        **_encode_digests(catalog.transactions.writers),
        **_encode_unless_empty(catalog),
    }
    text = json.dumps(meta, separators=(",", ":"), sort_keys=True).encode()
    blob = b"".join(packed)
    whole = b"".join((PREFIX.pack(MAGIC, len(text), len(blob)), text, blob))
    return whole + CRC.pack(crc32(whole))


def _encode_unless_empty(catalog: CatalogState) -> dict[str, Any]:
    """What came later: a group that never used it has the snapshot of the release before."""
    meta: dict[str, Any] = {}
    if memberships := _encode_memberships(catalog.consumer_groups):
        meta["memberships"] = memberships
    if catalog.members:
        meta["members"] = [catalog.members_index, sorted(catalog.members.items())]
    if catalog.schemas.by_topic:
        meta["schemas"] = [
            [topic_id, texts] for topic_id, texts in sorted(catalog.schemas.by_topic.items())
        ]
    if catalog.secret_enforced:
        meta["secret"] = True
    if catalog.queues:
        meta["queues"] = catalog.queues.encode()
    if catalog.quotas:
        meta["quotas"] = catalog.quotas.image()
    if catalog.users:
        meta["users"] = catalog.users.encode()
    if catalog.acls.rules:
        meta["acls"] = catalog.acls.encode()
    if catalog.version:
        meta["version"] = catalog.version.image()
    if catalog.settings:
        meta["settings"] = catalog.settings.image()
    if catalog.group_list:
        meta["group_list"] = catalog.group_list.image()
    return meta


def _numbers(part: Partition | None) -> bytes:
    if part is None:
        return UNUSED
    return NUMBERS.pack(*(getattr(part, name) for name in NUMBER_NAMES))


def checksum(data: bytes) -> int:
    """The CRC-32 that a snapshot ends with. One over the whole would be the same for all: its own
    CRC cancels it."""
    return int(CRC.unpack_from(data, len(data) - CRC.size)[0])


def _encode_groups(groups: Groups) -> list[Any]:
    """Two fields for a group that has no more, as in a log that was written before there was
    more."""
    found: list[Any] = []
    for name, group in sorted(groups.by_name.items()):
        offsets = [
            [topic_id, sorted(spans.items())] for topic_id, spans in sorted(group.offsets.items())
        ]
        more = [group.committed_ms, group.holds] if group.committed_ms or group.holds else []
        found.append([name, offsets, *more])
    return found


def _decode_groups(data: list[Any], groups: Groups) -> None:
    for name, offsets, *more in data:
        group = groups.by_name[name] = ConsumerGroup()
        group.offsets = {topic_id: dict(spans) for topic_id, spans in offsets}
        if more:
            group.committed_ms, group.holds = more


def _encode_memberships(groups: Groups) -> list[Any]:
    """Of groups that have ever had members."""
    return [
        [
            name,
            one.epoch,
            one.changed_at,
            [list(astuple(member)) for member in one.members.values()],
            list(one.target.items()),
            [[key, *owner] for key, owner in one.owners.items()],
        ]
        for name, group in sorted(groups.by_name.items())
        if (one := group.membership).epoch
    ]


def _decode_memberships(data: list[Any], groups: Groups) -> None:
    for name, epoch, changed_at, members, target, owners in data:
        found = groups.by_name[name].membership = GroupMembership(epoch, changed_at)
        for member_id, instance_id, label, topics, *more in members:
            found.members[member_id] = ConsumerMember(
                member_id, instance_id, label, tuple(topics), *more
            )
        if found.members:
            groups.with_members[name] = groups.by_name[name]
        found.target = dict(target)
        found.owners = {key: PartitionOwner(*owner) for key, *owner in owners}


def _encode_producers(producers: Producers, packed: list[bytes]) -> dict[str, Any]:
    sessions: list[Any] = []
    for session in sorted(producers.sessions.values(), key=lambda session: session.producer_id):
        windows = sorted(session.windows.items())
        sessions.append(
            [
                session.producer_id,
                session.name,
                session.epoch,
                session.used_at,
                session.used_ms,
                [[key, window.next_sequence] for key, window in windows],
            ]
        )
        packed.extend(_little_endian(window.results).tobytes() for _, window in windows)
    return {
        "next_id": producers.next_id,
        "scanned_at": producers.scanned_at,
        "next_expiry": producers.next_expiry_ms,
        "sessions": sessions,
    }


def _encode_stages(transactions: Transactions, packed: list[bytes]) -> list[Any]:
    stages = sorted(transactions.stages.values(), key=lambda stage: stage.stage_id)
    packed.extend(bytes(stage.rows) for stage in stages)
    return [
        [s.stage_id, s.writer_id, s.sequence, s.label, s.deadline_ms, s.batches, s.records]
        for s in stages
    ]


def _encode_digests(writers: Writers) -> dict[str, Any]:
    """Beside the writers, so that a log without any has the same state as before there were
    digests."""
    digests = [[name, w.committed_ms, w.digest] for name, w in writers.by_name.items() if w.digest]
    traces = [[name, *trace] for name, trace in writers.traces.items()]
    return ({"digests": digests} if digests else {}) | ({"traces": traces} if traces else {})


def _decode_writers(meta: dict[str, Any], writers: Writers) -> None:
    for name, sequence, committed_at, records, topics in meta["writers"]:
        spans = {topic: {number: list(span) for number, span in parts} for topic, parts in topics}
        writers.by_name[name] = Writer(sequence, committed_at, spans, records)
    for name, committed_ms, digest in meta.get("digests", ()):
        writers.by_name[name].committed_ms, writers.by_name[name].digest = committed_ms, digest
    writers.traces = {name: Trace(*trace) for name, *trace in meta.get("traces", ())}


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers = array("q", numbers)
        numbers.byteswap()
    return numbers


class _Packed:
    """Takes the packed part apart again, piece by piece."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> memoryview:
        piece = self._data[self._at : self._at + size]
        if len(piece) != size:
            raise CorruptStore("the catalog's snapshot ends early")
        self._at += size
        return piece


def _meta_of(data: bytes) -> dict[str, Any]:
    _, text_size, _ = PREFIX.unpack_from(data)
    meta: dict[str, Any] = json.loads(data[PREFIX.size : PREFIX.size + text_size])
    return meta


def topics_of(data: bytes) -> dict[str, tuple[int, int]]:
    """The id of each topic of a snapshot that is sound, and its partitions, by its name."""
    return {name: (topic_id, count) for topic_id, name, _, count, _ in _meta_of(data)["topics"]}


def topic_ids_of(data: bytes) -> tuple[dict[str, int], int]:
    """The id of each topic of a snapshot that is sound, by its name, and that of the next one."""
    meta = _meta_of(data)
    return {name: topic_id for topic_id, name, *_ in meta["topics"]}, meta["next_topic"]


def version_of(data: bytes) -> tuple[int, str]:
    """The group's version in a snapshot that is sound, and the first release that supports it."""
    version, release = _meta_of(data).get("version", (0, ""))
    return version, release


def decode(data: bytes, catalog: CatalogState, tables: TableFactory) -> None:
    """Fill an empty catalog, and cut its tables to the rows of the snapshot.

    Raises:
        CorruptStore: damaged, of another version, or not fitting the tables.
        UnsupportedVersion: the group's version is none of this release's.
    """
    view = memoryview(data)
    size = len(view) - CRC.size
    if size < PREFIX.size or crc32(view[:size]) != CRC.unpack_from(view, size)[0]:
        raise CorruptStore(
            "the catalog's snapshot is damaged; start without it and apply the log from its "
            "beginning"
        )
    magic, text_size, packed_size = PREFIX.unpack_from(view)
    if magic != MAGIC or PREFIX.size + text_size + packed_size != size:
        raise CorruptStore(
            f"the catalog's snapshot is of another version: {bytes(magic)!r}, not {MAGIC!r}"
        )
    meta = json.loads(bytes(view[PREFIX.size : PREFIX.size + text_size]))
    # before anything else is looked at, which may have another form by then
    catalog.version = VersionState.of_image(meta.get("version", []))
    packed = _Packed(view[PREFIX.size + text_size : size])
    catalog.applied_index = Index(meta["applied"])
    catalog.clock_ms = meta["clock"]
    if "members" in meta:
        catalog.members_index, catalog.members = Index(meta["members"][0]), dict(meta["members"][1])
    catalog.secret_enforced = meta.get("secret", False)
    if "queues" in meta:
        catalog.queues = Queues.decode(meta["queues"])
    catalog.quotas = QuotaState.of_image(meta.get("quotas", []))
    if "users" in meta:
        catalog.users = Users.decode(meta["users"])
    catalog.acls.restore(meta.get("acls", ()))
    if "settings" in meta:
        catalog.settings = DynamicSettings.of_image(meta["settings"])
    catalog.group_list = GroupList.of_image(meta.get("group_list", []))
    _decode_topics(meta, packed, catalog, tables)
    _decode_groups(meta["groups"], catalog.consumer_groups)
    _decode_memberships(meta.get("memberships", []), catalog.consumer_groups)
    _decode_producers(meta["producers"], packed, catalog.producers)
    for stage_id, writer_id, sequence, label, deadline_ms, batches, records in meta["stages"]:
        rows = bytearray(packed.take(batches * STAGED_ROW.size))
        catalog.transactions.stages[stage_id] = StageState(
            stage_id, writer_id, sequence, label, deadline_ms, batches, records, rows
        )
    _decode_writers(meta, catalog.transactions.writers)


def _decode_topics(
    meta: dict[str, Any], packed: _Packed, catalog: CatalogState, tables: TableFactory
) -> None:
    catalog.topics_state.next_id = meta["next_topic"]
    catalog.topics_state.retired = dict.fromkeys(meta["retired"])
    catalog.schemas.by_topic = {
        topic_id: list(texts) for topic_id, texts in meta.get("schemas", ())
    }
    there = set(tables.names())
    for topic_id, name, log_id, partitions, settings in meta["topics"]:
        catalog.topics_state.add(
            TopicInfo(
                name=name,
                topic_id=topic_id,
                log_id=log_id,
                partitions=partitions,
                settings=dict(settings),
            )
        )
        for number in range(partitions):
            numbers, table = packed.take(NUMBERS.size), table_name(topic_id, number)
            if numbers == UNUSED and table not in there:
                continue
            part = catalog.partitions[topic_id << 32 | number]
            for attribute, value in zip(NUMBER_NAMES, NUMBERS.unpack(numbers), strict=True):
                setattr(part, attribute, value)
            part.reopen()
            there.discard(table)
    for name in sorted(there):
        tables.remove(name)


def _decode_producers(meta: dict[str, Any], packed: _Packed, producers: Producers) -> None:
    producers.next_id = meta["next_id"]
    producers.scanned_at = meta["scanned_at"]
    producers.next_expiry_ms = meta["next_expiry"]
    for producer_id, name, epoch, used_at, used_ms, windows in meta["sessions"]:
        session = ProducerState(name, producer_id)
        session.epoch, session.used_at, session.used_ms = epoch, used_at, used_ms
        for key, next_sequence in windows:
            window = session.windows[key] = ResultWindow()
            window.next_sequence = next_sequence
            window.results.frombytes(packed.take(8 * min(next_sequence, WINDOW)))
            window.results = _little_endian(window.results)
            producers.results += len(window.results)
        producers.sessions[producer_id] = producers.by_name[name] = session
