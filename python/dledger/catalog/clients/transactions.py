"""Transactions: staged batches lie in the log without offsets until one entry gives them all
theirs.

A transaction is (writer id, sequence). Each of its stages is filled by one task attempt; the commit
names the stages that count, in order, and the sum that each must hold. The batches of a failed
attempt are dropped. A writer's sequences only grow: committing the last one again is answered with
its result, committing an older one is a success without effect. A commit that says how many rows it
has, and their digest (`CommitWrite`), is held to that: the last one again must have the same rows,
and an older one is refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dledger.catalog.clients.writers import MAX_WRITERS, Offsets, Writer, Writers
from dledger.catalog.results import STAGED, CommandResult, DataResult
from dledger.catalog.topics.partition import Partition
from dledger.protocol.messages.catalog_commands import (
    AbortTransaction,
    CommitConsumedTransaction,
    CommitTransaction,
    CommitWrite,
    OpenStage,
)
from dledger.protocol.messages.codes import Code
from dledger.records.body.header import BodyHeader
from dledger.times import utc

STAGED_ROW: Final = struct.Struct("<QqqqIII")
"""partition key, index, pos, last time, count, size, crc."""
MAX_STAGE_MS: Final = 7 * 24 * 3600 * 1000
"""Longest time-out of a stage, because an open stage keeps old log files from being deleted."""
MAX_NAME: Final = 1024
DIGEST: Final = re.compile("[0-9a-f]{16}")


@dataclass(slots=True)
class StageState:
    """Batches of one attempt, packed, and their sums. `index` is the entry that opened it, and its
    id."""

    stage_id: int
    writer_id: str
    sequence: int
    label: str
    deadline_ms: int
    batches: int = 0
    records: int = 0
    rows: bytearray = field(default_factory=bytearray)

    @property
    def first_index(self) -> int | None:
        """The entry of its first batch."""
        return None if not self.rows else int(STAGED_ROW.unpack_from(self.rows)[1])


class Transactions:
    """Open stages and the writers' last commits."""

    def __init__(
        self,
        partition: Callable[[int], Partition | None],
        grown: set[int],
        *,
        max_writers: int = MAX_WRITERS,
    ) -> None:
        """``grown``: takes the keys of partitions that a commit gives rows to."""
        self._partition = partition
        self._grown = grown
        self.stages: dict[int, StageState] = {}
        self.writers = Writers(max_writers)

    def open(self, index: int, command: OpenStage, now_ms: int) -> CommandResult:
        """A new stage, or the result when its transaction is committed already."""
        writer = self.writers.find(command.writer_id)
        if writer is not None and command.sequence <= writer.sequence:
            return writer.result(command.sequence, committed=True)
        self.stages[index] = StageState(
            index,
            command.writer_id,
            sequence=command.sequence,
            label=command.label,
            deadline_ms=now_ms + command.timeout_ms,
        )
        return CommandResult(Code.SUCCESS, "", {"stage_id": index})

    def check(self, header: BodyHeader) -> DataResult | None:
        """None when this is the stage's next batch, else the answer to it."""
        stage = self.stages.get(header.producer_id)
        if stage is None:
            return DataResult(
                Code.UNKNOWN_STAGE,
                -1,
                f"stage {header.producer_id} is not open: it timed out, or its transaction was "
                f"committed or aborted",
            )
        if header.sequence == stage.batches:
            return None
        if header.sequence < stage.batches:
            return STAGED
        return DataResult(
            Code.OUT_OF_ORDER_SEQUENCE,
            -1,
            f"stage {stage.stage_id}: batch {header.sequence} came before batch {stage.batches}; "
            f"send that first",
        )

    def add(self, index: int, pos: int, size: int, header: BodyHeader, crc: int, key: int) -> None:
        """The batch, which `check` let pass, waits in its stage."""
        stage = self.stages[header.producer_id]
        stage.rows += STAGED_ROW.pack(key, index, pos, header.last_time_us, header.count, size, crc)
        stage.batches += 1
        stage.records += header.count

    def commit(self, index: int, command: CommitTransaction) -> CommandResult:
        """All or nothing: a refused commit changes nothing and may be tried again."""
        writer = self.writers.find(command.writer_id)
        if writer is not None and command.sequence <= writer.sequence:
            return writer.result(command.sequence, repeated=True)
        return self._commit(index, command, 0, "")

    def commit_write(self, index: int, command: CommitWrite, now_ms: int) -> CommandResult:
        """As `commit`, of a write whose rows are known by count and digest. A repeat with other
        rows is refused, and so is one of an older sequence: its writer has gone back, and its rows
        may be others.

        The first repeat of a commit without a digest is accepted, and leaves its own.
        """
        writer = self.writers.find(command.writer_id) or self._former(command)
        if writer is None or command.sequence > writer.sequence:
            staged = sum(part.records for part in command.stages)
            if staged != command.records:
                text = f"the write has {command.records} rows, and its stages {staged}: stage again"
                return CommandResult(Code.STAGE_INCOMPLETE, text)
            return self._commit(index, command, now_ms, command.digest)
        unlike = _unlike(writer, command)
        if unlike:
            return CommandResult(Code.REPLAY_MISMATCH, unlike)
        checked = bool(writer.digest)
        if not checked or command.writer_id not in self.writers.by_name:
            kept = replace(writer, committed_at=index, digest=command.digest)
            self.writers.put(command.writer_id, kept)
        self._drop(s for s in self._stages_of(command.writer_id) if s.sequence <= command.sequence)
        answer = writer.result(command.sequence, repeated=True)
        answer.result.update(committed_ms=writer.committed_ms, checked=checked)
        return answer

    def _former(self, command: CommitWrite) -> Writer | None:
        """The writer by the name that an earlier release gave it, if that one wrote to a topic of
        these stages: that name was the same for all topics. Where only its hash is left, it may
        have."""
        former = self.writers.find(command.formerly) if command.formerly else None
        if former is None or former.committed_at < 0:
            return former
        stages = [
            self.stages[part.stage_id] for part in command.stages if part.stage_id in self.stages
        ]
        keys = {key for stage in stages for key, *_ in STAGED_ROW.iter_unpack(stage.rows)}
        topics = {part.topic for key in keys if (part := self._partition(key)) is not None}
        return former if topics & former.offsets.keys() else None

    def _commit(
        self, index: int, command: CommitTransaction | CommitWrite, now_ms: int, digest: str
    ) -> CommandResult:
        refused = self._refusal(command)
        if refused is not None:
            return refused
        offsets: Offsets = {}
        records = 0
        for part in command.stages:
            records += self._place(index, self.stages[part.stage_id], offsets)
        writer = Writer(command.sequence, index, offsets, records, now_ms, digest)
        self.writers.put(command.writer_id, writer)
        self._drop(s for s in self._stages_of(command.writer_id) if s.sequence <= command.sequence)
        return writer.result(command.sequence, repeated=False)

    def _refusal(self, command: CommitTransaction | CommitWrite) -> CommandResult | None:
        """Why this commit cannot be, or None."""
        seen: set[int] = set()
        for part in command.stages:
            stage = self.stages.get(part.stage_id)
            if part.stage_id in seen:
                return CommandResult(
                    Code.MALFORMED, f"stage {part.stage_id} stands twice in the commit"
                )
            seen.add(part.stage_id)
            if stage is None:
                return CommandResult(
                    Code.UNKNOWN_STAGE,
                    f"stage {part.stage_id} timed out or was aborted: stage again",
                )
            if (stage.writer_id, stage.sequence) != (command.writer_id, command.sequence):
                return CommandResult(
                    Code.TRANSACTION_CONFLICT,
                    f"stage {part.stage_id} is of transaction {stage.sequence} of writer "
                    f"{stage.writer_id!r}, not of {command.sequence} of {command.writer_id!r}",
                )
            if (stage.batches, stage.records) != (part.batches, part.records):
                return CommandResult(
                    Code.STAGE_INCOMPLETE,
                    f"stage {part.stage_id} ({stage.label}) holds {stage.records} records in "
                    f"{stage.batches} batches, the commit wants {part.records} in {part.batches}",
                )
            gone = {
                key
                for key, *_ in STAGED_ROW.iter_unpack(stage.rows)
                if self._partition(key) is None
            }
            if gone:
                ids = ", ".join(str(topic_id) for topic_id in sorted({key >> 32 for key in gone}))
                return CommandResult(
                    Code.UNKNOWN_TOPIC,
                    f"stage {part.stage_id} has batches of deleted topics (topic id {ids})",
                )
        return None

    def _place(self, index: int, stage: StageState, offsets: Offsets) -> int:
        """Give a stage's batches their offsets, and widen ``offsets`` by them."""
        for key, at, pos, last_us, count, size, crc in STAGED_ROW.iter_unpack(stage.rows):
            partition = self._partition(key)
            assert partition is not None
            base = partition.append(at, pos, size, crc, count, last_us, index)
            self._grown.add(key)
            span = offsets.setdefault(partition.topic, {}).setdefault(
                key & 0xFFFFFFFF, [base, base]
            )
            span[1] = base + count
        return stage.records

    def abort(self, command: AbortTransaction) -> CommandResult:
        """Drop the named stages of the transaction, or all; a commit stands."""
        wanted = set(command.stage_ids)
        self._drop(
            stage
            for stage in self._stages_of(command.writer_id)
            if stage.sequence == command.sequence and (not wanted or stage.stage_id in wanted)
        )
        return CommandResult(Code.SUCCESS)

    def expire(self, now_ms: int) -> None:
        """Drop the stages whose time is over."""
        self._drop(stage for stage in self.stages.values() if stage.deadline_ms <= now_ms)

    def next_expiry_ms(self) -> int | None:
        return min((stage.deadline_ms for stage in self.stages.values()), default=None)

    def first_index(self) -> int | None:
        """The lowest entry that an open stage still needs."""
        return min(
            (at for stage in self.stages.values() if (at := stage.first_index) is not None),
            default=None,
        )

    def _stages_of(self, writer_id: str) -> Iterable[StageState]:
        return (stage for stage in self.stages.values() if stage.writer_id == writer_id)

    def _drop(self, stages: Iterable[StageState]) -> None:
        for stage in list(stages):
            del self.stages[stage.stage_id]

    def describe(self) -> list[dict[str, Any]]:
        """The open stages, for people."""
        return [
            {
                "stage_id": stage.stage_id,
                "writer_id": stage.writer_id,
                "sequence": stage.sequence,
                "label": stage.label,
                "batches": stage.batches,
                "records": stage.records,
                "deadline_ms": stage.deadline_ms,
            }
            for stage in self.stages.values()
        ]


def malformed_stage(command: OpenStage) -> str:
    """The fault of the opening of a stage, or nothing."""
    if not 0 < len(command.writer_id) <= MAX_NAME or len(command.label) > MAX_NAME:
        return f"a writer id has 1 to {MAX_NAME} characters, a label up to as many"
    if command.sequence < 0:
        return f"a transaction's sequence is 0 or more, not {command.sequence}"
    if not 0 < command.timeout_ms <= MAX_STAGE_MS:
        return f"a stage's time-out is 1 to {MAX_STAGE_MS} ms, not {command.timeout_ms}"
    return ""


def malformed_commit(
    command: CommitTransaction | CommitWrite | CommitConsumedTransaction,
) -> str:
    """The fault of a commit that does not depend on its stages, or nothing."""
    if not 0 < len(command.writer_id) <= MAX_NAME or command.sequence < 0:
        return f"a writer id has 1 to {MAX_NAME} characters, a sequence is 0 or more"
    if not isinstance(command, CommitWrite):
        return ""
    if (
        len(command.formerly) > MAX_NAME
        or command.records < 0
        or not DIGEST.fullmatch(command.digest)
    ):
        return "a write's count of rows is 0 or more, and its digest 16 hexadecimal digits"
    return ""


def _unlike(writer: Writer, command: CommitWrite) -> str:
    """How a repeat differs from the committed transaction, or nothing."""
    when = f" on {utc(writer.committed_ms)}" if writer.committed_ms else ""
    if command.sequence < writer.sequence:
        return f"its writer has committed {writer.sequence} already{when}, which is newer"
    if not writer.digest or (writer.records, writer.digest) == (command.records, command.digest):
        return ""
    rows = f"{command.records} other" if writer.records == command.records else f"{command.records}"
    return f"it was committed already{when} with {writer.records} rows, and now it has {rows} rows"
