"""Requests of writers: sessions of producers, stages and transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dledger.client.protocol.client_state import ClientState, Operation
from dledger.client.protocol.operations.requests import execute
from dledger.client.protocol.operations.topics import topic as describe
from dledger.client.protocol.results import Committed, spans_of
from dledger.client.protocol.session import ProducerSession
from dledger.config import check_name
from dledger.protocol.messages.catalog_commands import (
    AbortTransaction,
    Command,
    CommitTransaction,
    CommitWrite,
    InitProducer,
    OpenStage,
    StageSum,
)
from dledger.protocol.messages.client import TopicInfo

if TYPE_CHECKING:
    from dledger.records.digest import RowsSum


def init_producer(core: ClientState, name: str | None = None) -> Operation[ProducerSession]:
    """A new session; with a name that is in use the former holder is fenced."""
    if name is not None:
        check_name("producer", name)
    command = InitProducer(producer_name=name or core.environment.unique())
    result = yield from execute(command, "open a producer session")
    return ProducerSession(result["producer_id"], result["epoch"])


class OpenedProducer(NamedTuple):
    """A producer as it begins."""

    info: TopicInfo
    name: str
    session: ProducerSession


def open_producer(core: ClientState, topic: str, name: str | None) -> Operation[OpenedProducer]:
    """A producer for a topic as it is now; without a name, one of its own."""
    info = yield from describe(core, topic)
    name = name or core.environment.unique()
    return OpenedProducer(info, name, (yield from init_producer(core, name)))


def open_stage(
    writer_id: str, sequence: int, label: str, timeout_ms: int
) -> Operation[int | Committed]:
    """The new stage's id, or the result when its transaction is committed already."""
    command = OpenStage(writer_id=writer_id, sequence=sequence, label=label, timeout_ms=timeout_ms)
    result = yield from execute(command, f"open a stage of ({writer_id!r}, {sequence})")
    if result.get("committed"):
        return committed({"repeated": True, **result})
    stage_id: int = result["stage_id"]
    return stage_id


def commit_transaction(
    _: ClientState,
    writer_id: str,
    sequence: int,
    stages: Sequence[StageSum],
    rows: RowsSum | None = None,
    formerly: str = "",
) -> Operation[Committed]:
    """Give the records of all these stages their offsets at once, stage by stage. Safe to repeat.

    Args:
        rows: count and digest of all rows of the write. With them a repeat is refused unless it has
            the same rows.
        formerly: the name that an earlier release gave this writer, with ``rows``; a commit under
            it counts, too.

    Raises:
        TransactionError: a stage timed out or differs from its sum; nothing was committed.
        ReplayMismatch: it was committed with other rows, or is older than the writer's last one.
        OutcomeUnknown: ask again with the same arguments.
    """
    command: Command = CommitTransaction(
        writer_id=writer_id, sequence=sequence, stages=tuple(stages)
    )
    if rows is not None:
        command = CommitWrite(
            writer_id=writer_id,
            sequence=sequence,
            stages=tuple(stages),
            records=rows.count,
            digest=f"{rows.digest:016x}",
            formerly=formerly,
        )
    return committed((yield from execute(command, f"commit ({writer_id!r}, {sequence})")))


def abort_transaction(
    _: ClientState, writer_id: str, sequence: int, stage_ids: Sequence[int] = ()
) -> Operation[None]:
    """Drop these stages, or without ids all of the transaction's. A commit that happened stands."""
    command = AbortTransaction(writer_id=writer_id, sequence=sequence, stage_ids=tuple(stage_ids))
    yield from execute(command, f"abort ({writer_id!r}, {sequence})")


def committed(result: Mapping[str, Any]) -> Committed:
    """A commit's result dict as a value."""
    return Committed(
        bool(result.get("repeated")),
        spans_of(result),
        result.get("records", 0),
        result.get("committed_ms", 0),
        result.get("checked", True),
    )
