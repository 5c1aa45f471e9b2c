"""Operations on topics: declared once, as generators, for both clients (see
`dledger.client.protocol.client_state`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dledger.client.protocol.client_state import ClientState, Operation, T
from dledger.client.protocol.operations.offsets import offsets
from dledger.client.protocol.operations.requests import METADATA_TRIES, execute, metadata
from dledger.client.protocol.operations.schemas import agree_schema
from dledger.config import check_name, nearest
from dledger.errors import ConfigError, DLedgerError, OutcomeUnknown, TopicNotFound, Unavailable
from dledger.protocol.messages.catalog_commands import (
    AddPartitions,
    CreateTopic,
    DeleteTopic,
)
from dledger.protocol.messages.client import MetadataRequest, TopicInfo


def topics(core: ClientState) -> Operation[list[TopicInfo]]:
    """All topics, by name."""
    answer = yield from metadata(core, MetadataRequest(all_topics=True), "list topics")
    core.topics = {info.name: info for info in answer.topics}
    return sorted(answer.topics, key=lambda info: info.name)


def topic(core: ClientState, name: str) -> Operation[TopicInfo]:
    """One topic as it is now.

    Raises:
        TopicNotFound: there is none.
    """
    check_name("topic", name)
    for _ in range(METADATA_TRIES):
        answer = yield from metadata(core, MetadataRequest(topics=(name,)), f"topic {name!r}")
        for info in answer.topics:
            if info.name == name:
                core.topics[name] = info
                return info
        core.topics.pop(name, None)
        # a new leader may still be catching up: a linearizable answer cannot be stale
        yield from _of_one(core, name, offsets(core, (name,)))
    raise Unavailable(f"topic {name!r}: it exists, but no leader describes it")


def _of_one(core: ClientState, name: str, operation: Operation[T]) -> Operation[T]:
    """An operation on one topic. Where that is not there, the error has those that may be meant."""
    try:
        return (yield from operation)
    except TopicNotFound as error:
        raise (yield from _not_found(core, name)) from error


def _not_found(core: ClientState, name: str) -> Operation[TopicNotFound]:
    """The error for a topic that is not there, with those that may be meant."""
    known = [info.name for info in (yield from topics(core))]
    there = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "") or "none"
    return TopicNotFound(f"there is no topic {name!r}{nearest(name, known)}; there are: {there}")


def described(core: ClientState, names: Sequence[str]) -> Operation[dict[str, TopicInfo]]:
    """Several topics as they are now, by one question when all are there; raises as `topic`."""
    for name in names:
        check_name("topic", name)
    if not names:
        return {}
    answer = yield from metadata(
        core, MetadataRequest(topics=tuple(names)), f"topics {', '.join(names)}"
    )
    found = {info.name: info for info in answer.topics}
    core.topics.update(found)
    for name in names:
        if name not in found:
            found[name] = yield from topic(core, name)
    return {name: found[name] for name in names}


def known_topic(core: ClientState, name: str, partition: int | None = None) -> Operation[TopicInfo]:
    """One topic as last seen by this client; asks only for one, or a ``partition`` of it, that it
    has not seen."""
    return core.seen_topic(name, partition) or (yield from topic(core, name))


def known_topics(core: ClientState, names: Sequence[str]) -> Operation[dict[str, TopicInfo]]:
    """Several topics as last seen; asks only for those it has not seen."""
    known = {name: info for name in names if (info := core.topics.get(name)) is not None}
    return known | (yield from described(core, [name for name in names if name not in known]))


def create_topic(
    core: ClientState,
    /,
    name: str,
    partitions: int = 1,
    *,
    if_absent: bool = False,
    schema: Any = None,
    key_column: str = "",
    time_column: str = "",
    **topic_settings: Any,
) -> Operation[TopicInfo]:
    """Create a topic; with ``if_absent`` one that exists with as many partitions is a success.

    Args:
        schema: makes it a typed topic with these columns: an Arrow schema, a table of pyarrow,
            Polars, pandas or DuckDB (or any object with ``__arrow_c_schema__`` or
            ``__arrow_c_stream__``), or a dataclass.
        key_column: of a schema: the column that says a row's partition.
        time_column: of a schema: the column with a row's time.

    Raises:
        TopicExists: it exists.
        ConfigError: the name, the number of partitions, a column or a setting cannot be.
        SchemaMismatch: it exists with other columns.
    """
    columns = None
    if schema is not None:
        from dledger.records.frames.arrow_columns import columns_of, schema_of  # loads Arrow

        columns = columns_of(schema_of(schema), key_column, time_column)
        topic_settings = {"type": "typed", **topic_settings}
    elif key_column or time_column:
        raise ConfigError("key_column and time_column name columns of a schema: give schema=...")
    check_name("topic", name)
    if partitions < 1:
        raise ConfigError(f"topic {name!r}: at least one partition, not {partitions}")
    texts = {key: str(value) for key, value in topic_settings.items()}
    log_id = core.environment.unique()
    command = CreateTopic(
        name=name, log_id=log_id, partitions=partitions, settings=texts, if_absent=if_absent
    )
    what = f"create topic {name!r}"
    yield from execute(command, what)  # a repeat has the same log id: a success
    info = yield from _changed(core, name, what)
    if columns is not None:
        if not info.typed:
            raise ConfigError(f"topic {name!r} is one of keys and values: use another name")
        yield from agree_schema(core, info, columns, way="append with evolve=True")
    return info


def add_partitions(core: ClientState, name: str, partitions: int) -> Operation[TopicInfo]:
    """Let a topic have ``partitions`` of them from now on, no fewer than it has.

    Records stay where they are, so from then on a key may go to another partition than before. A
    writer goes by the number that it saw first until it starts anew; streams read the new
    partitions from their first record on.

    Raises:
        TopicNotFound: there is none.
        ConfigError: it has more, or so many cannot be.
    """
    check_name("topic", name)
    what = f"add partitions to topic {name!r}"
    yield from _of_one(core, name, execute(AddPartitions(name=name, partitions=partitions), what))
    return (yield from _changed(core, name, what))


def _changed(core: ClientState, name: str, what: str) -> Operation[TopicInfo]:
    """The topic as a command has left it."""
    try:
        return (yield from topic(core, name))
    except TopicNotFound:
        raise  # it was deleted since
    except DLedgerError as error:
        raise OutcomeUnknown(f"{what}: it was done, and then {error}") from error


def delete_topic(core: ClientState, name: str) -> Operation[None]:
    """Delete a topic and all its records.

    Raises:
        TopicNotFound: there is none.
        OutcomeUnknown: asked and not answered; see `topics`.
    """
    check_name("topic", name)
    core.topics.pop(name, None)
    command = execute(DeleteTopic(name=name), f"delete topic {name!r}", repeatable=False)
    yield from _of_one(core, name, command)
