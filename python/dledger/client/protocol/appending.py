"""One append: from records to a body, with a number that makes a retry harmless."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from dledger.client.protocol.arguments import whole
from dledger.client.protocol.client_state import (
    CODECS,
    SERVER_MS,
    ClientState,
    Operation,
    Request,
)
from dledger.client.protocol.operations import topics
from dledger.client.protocol.operations import transaction_requests as transactions
from dledger.client.protocol.results import Appended
from dledger.client.protocol.routing import CallPolicy
from dledger.client.protocol.session import ProducerSession
from dledger.errors import (
    ConfigError,
    DLedgerError,
    OutcomeUnknown,
    OutOfOrderSequence,
    ProducerFenced,
    RecordTooLarge,
    SchemaMismatch,
    TopicNotFound,
    TopicRecreated,
)
from dledger.protocol.messages.client import AppendRequest, TopicInfo
from dledger.records.body.build import Headers, Times, Values, make_records
from dledger.records.body.header import BODY_HEADER_SIZE, Codec
from dledger.records.body.one_record import OneRecord, encode_record
from dledger.records.body.records import encode_batch
from dledger.records.body.typed import version_of
from dledger.records.columns.partitioner import Division, divided_by_key, partition_for
from dledger.types import Buffer

UNNUMBERED: Final = ProducerSession(0, 0)
"""Of a client whose retries are not told from other appends."""
APPEND = AppendRequest(timeout_ms=SERVER_MS)


Appendable: TypeAlias = pa.RecordBatch | OneRecord
"""Records that go out as one entry."""
Encoder: TypeAlias = Callable[..., tuple[bytes, Buffer]]
"""Gives header and payload of a body."""


class SessionHolder(Protocol):
    """Keeps a session from one append to the next."""

    session: ProducerSession | None


def append(
    core: ClientState,
    holder: SessionHolder,
    topic: str | TopicInfo,
    partition: int | None,
    batch: Appendable,
) -> Operation[Appended]:
    """Append one batch as one entry, to a topic by name or as described.

    After an error that leaves the outcome open the session is given up, so that the next append
    starts a new one and does not wait for a number that may never come.
    """
    info = topic
    if isinstance(info, str):
        info = core.seen_topic(info, partition) or (yield from topics.topic(core, info))
    name, is_typed, encode = info.name, is_typed_batch(batch), encoder_of(core, batch)
    sessions = 0
    while True:
        check_kind(info, is_typed)
        at = place(core, info, partition, batch)
        session = holder.session if core.config.idempotent else UNNUMBERED
        try:
            if session is None:
                session = holder.session = yield from transactions.init_producer(core)
                sessions += 1
            sequence = session.next.get((info.topic_id, at), 0)
            header, payload = encode(
                batch,
                topic_id=info.topic_id,
                partition=at,
                producer_id=session.producer_id,
                epoch=session.epoch,
                sequence=sequence,
                now_us=core.environment.wall_us(),
            )
            limit, size = core.routes.max_body_bytes, BODY_HEADER_SIZE + len(payload)
            if limit and size > limit:  # the leader would refuse it
                raise too_large(name, batch.num_rows, size, limit)
            base_offset = yield from send(core, name, header, payload)
        except OutOfOrderSequence:  # the group has forgotten the session; nothing was written
            holder.session = None
            if sessions > 1:
                raise
        except ProducerFenced:
            holder.session = None
            raise
        except TopicNotFound:
            fresh = yield from _created_anew(core, info, is_typed)
            if fresh == info:
                raise
            info = fresh
        except DLedgerError as error:
            if not error.definite:
                holder.session = None
            raise
        else:
            if core.config.idempotent:  # the number is used up
                session.next[info.topic_id, at] = sequence + 1
            return Appended(name, at, base_offset, base_offset + batch.num_rows)


def encoder_of(core: ClientState, batch: Appendable) -> Encoder:
    """What makes a body of it, with the client's compression."""
    if isinstance(batch, OneRecord):
        return encode_record
    return partial(encode_batch, codec=CODECS[core.config.compression])


def _created_anew(core: ClientState, info: TopicInfo, is_typed: bool) -> Operation[TopicInfo]:
    """The topic that there is instead of one that is gone: its name is what the caller asked for.
    Rows of a typed one were made for the columns of the one that is gone."""
    core.topics.pop(info.name, None)
    fresh = yield from topics.topic(core, info.name)
    if is_typed and fresh.log_id != info.log_id:
        raise TopicRecreated(
            f"topic {info.name!r} was deleted and created again, and may have other columns: "
            f"append again"
        )
    return fresh


def is_typed_batch(batch: Appendable) -> bool:
    """Whether a batch is of a typed topic's columns."""
    return not isinstance(batch, OneRecord) and version_of(batch.schema) > 0


def check_kind(info: TopicInfo, is_typed: bool) -> None:
    """Refuse keys and values for a typed topic, and rows under columns for one of keys and values.

    Raises:
        SchemaMismatch: with the way out.
    """
    if info.typed == is_typed:
        return
    if info.typed:
        raise SchemaMismatch(
            f"topic {info.name!r} is typed, and its records are rows: append a table (of pyarrow, "
            "Polars, pandas, DuckDB), or a list of dicts or dataclass instances, and no bytes"
        )
    raise SchemaMismatch(f"topic {info.name!r} is of keys and values, and has no columns")


def records_of(
    core: ClientState,
    values: Values,
    *,
    key: bytes | str | None = None,
    keys: Values | None = None,
    headers: Headers | None = None,
    timestamps: Times | None = None,
) -> Appendable:
    """Records as callers give them; one that is value and key alone, and not compressed, stays as
    it is.

    Raises:
        ConfigError: lengths differ, or a value is of a type that is no bytes.
    """
    if key is not None:
        values, keys = one_with_key(values, key, keys)
    if isinstance(values, str):
        values = _utf8("value", values)
    if (
        isinstance(values, bytes)
        and (keys is None or isinstance(keys, bytes))
        and headers is None
        and timestamps is None
        and CODECS[core.config.compression] is Codec.NONE
    ):
        return OneRecord(values, keys)
    return make_records(values, keys=keys, headers=headers, timestamps=timestamps)


def one_with_key(values: Any, key: bytes | str, keys: Values | None) -> tuple[Values, bytes]:
    """One value and its key, of arguments as callers give them.

    Raises:
        ConfigError: there are several values, or keys beside the key.
    """
    if isinstance(values, str):
        values = _utf8("value", values)
    if keys is not None or not isinstance(values, (bytes, bytearray, memoryview)):
        raise ConfigError(
            "key is that of one value: several values have keys, a list of the same length, and a "
            "table has a column of keys"
        )
    return values, _utf8("key", key) if isinstance(key, str) else key


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{name}: {error}") from error


def send(core: ClientState, name: str, header: bytes, payload: Buffer) -> Operation[int]:
    """Ask for one append; the first record's offset."""
    terms = CallPolicy(
        what=f"append to {name!r}", writes=True, repeatable=core.config.idempotent, sequenced=True
    )
    answer, _ = yield Request(APPEND, terms, (header, payload))
    if answer.base_offset < 0:
        raise OutcomeUnknown(
            f"append to {name!r}: it was done, but its offsets are not known any more"
        )
    offset: int = answer.base_offset
    return offset


def too_large(name: str, records: int, size: int, limit: int) -> RecordTooLarge:
    """The error for a batch that is over the limit of its group, with the remedy."""
    way = "make it smaller"
    if records > 1:
        way = "send fewer at once, or use producer() or transaction(), which cut them"
    return RecordTooLarge(
        f"append to {name!r}: {records} records of together {size} bytes are over the group's "
        f"max_body_bytes {limit}; {way}"
    )


def place(core: ClientState, info: TopicInfo, partition: int | None, batch: Appendable) -> int:
    """The partition that a batch goes to: the named one, that of its one key, or the next in turn.

    Raises:
        ConfigError: no such partition, or keys of several partitions in one batch.
    """
    if partition is not None:
        if not 0 <= partition < info.partitions:
            raise ConfigError(
                f"topic {info.name!r} has partitions 0 to {info.partitions - 1}, not {partition}"
            )
        return partition
    if info.partitions == 1:
        return 0
    if isinstance(batch, OneRecord):
        if batch.key is not None:
            return partition_for(batch.key, info.partitions)
        spread = None
    else:
        spread = partitions_of(batch, info.partitions)
    if spread is None:
        core.turn += 1
        return core.turn % info.partitions
    return _only(info, spread)


def place_value(info: TopicInfo, partition: int | None, key: bytes | None, turn: int) -> int:
    """`place` for a value that is no batch yet."""
    if partition is not None and type(partition) is not int:
        partition = whole("partition", partition)
    if partition is not None or info.partitions == 1:
        if not 0 <= (partition or 0) < info.partitions:
            raise ConfigError(
                f"topic {info.name!r} has partitions 0 to {info.partitions - 1}, not {partition}"
            )
        return partition or 0
    return turn % info.partitions if key is None else partition_for(key, info.partitions)


def spread(
    core: ClientState, info: TopicInfo, partition: int | None, batch: Appendable
) -> list[tuple[int, Appendable]]:
    """A batch, divided among the partitions that its keys belong to.

    Raises:
        ConfigError: there is no such partition.
    """
    if partition is None and info.partitions > 1 and not isinstance(batch, OneRecord):
        found = partitions_of(batch, info.partitions)
        if found is not None:
            return list(found.of(batch))
    return [(place(core, info, partition, batch), batch)]


def _only(info: TopicInfo, found: Division) -> int:
    if len(found.parts) > 1:
        raise ConfigError(
            f"the keys of one batch belong to {len(found.parts)} partitions of topic "
            f"{info.name!r}: append them one by one, or name a partition"
        )
    return found.parts[0][0]


def partitions_of(batch: pa.RecordBatch, partitions: int) -> Division | None:
    """Which rows go to which partition, by the hash of their keys; None when there are no keys.

    The hash is that of Kafka's Java client. A record without a key goes to partition 0, to stay in
    order with its like.
    """
    if version_of(batch.schema):
        return None  # the key of a typed topic's row is in no column of that name
    at = batch.schema.get_field_index("key")
    if at < 0 or batch.column(at).null_count == batch.num_rows:
        return None
    return divided_by_key(batch.column(at).cast(pa.binary()), partitions, keyless=0)
