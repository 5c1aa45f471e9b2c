"""Transactions: staged batches lie in the log without offsets until one entry gives them all theirs.

A transaction is (writer id, sequence). Each of its stages is filled by one task attempt; the commit names the stages
that count, in order, and what each must hold. What a failed attempt staged is dropped. A writer's sequences only grow:
committing the last one again is answered with its result, committing an older one is a success without effect.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final

from dledger.batch.header import BodyHeader
from dledger.catalog.partition import Partition
from dledger.catalog.results import STAGED, CommandResult, DataResult
from dledger.messages.codes import Code
from dledger.messages.command import AbortTransaction, CommitTransaction, OpenStage

STAGED_ROW: Final = struct.Struct("<QqqqIII")
"""partition key, index, pos, last time, count, size, crc."""
MAX_WRITERS: Final = 100_000
"""Writers whose last commit is remembered. They do not expire: a query may come back after weeks and repeat it."""
MAX_STAGE_MS: Final = 7 * 24 * 3600 * 1000
"""Longest time-out of a stage, because an open stage keeps old log files from being deleted."""
MAX_NAME: Final = 1024

Offsets = dict[str, dict[int, list[int]]]
"""topic -> partition -> [start, end)"""


class Stage:
    """Batches of one attempt, packed, and their sums. `index` is the entry that opened it, and its id."""

    __slots__ = ("batches", "deadline_ms", "label", "records", "rows", "sequence", "stage_id", "writer_id")

    def __init__(self, stage_id: int, writer_id: str, sequence: int, label: str, deadline_ms: int) -> None:
        self.stage_id = stage_id
        self.writer_id = writer_id
        self.sequence = sequence
        self.label = label
        self.deadline_ms = deadline_ms
        self.batches = 0
        self.records = 0
        self.rows = bytearray()

    @property
    def first_index(self) -> int | None:
        """The entry of its first batch."""
        return None if not self.rows else int(STAGED_ROW.unpack_from(self.rows)[1])


class Writer:
    """What a writer committed last."""

    __slots__ = ("committed_at", "offsets", "records", "sequence")

    def __init__(self, sequence: int, committed_at: int, offsets: Offsets, records: int) -> None:
        self.sequence = sequence
        self.committed_at = committed_at
        self.offsets = offsets
        self.records = records

    def result(self, sequence: int) -> tuple[Offsets, int]:
        """Offsets and records of that commit; empty when a later one has taken its place."""
        if sequence < self.sequence:
            return {}, 0
        offsets = {topic: {at: list(span) for at, span in spans.items()} for topic, spans in self.offsets.items()}
        return offsets, self.records


class Transactions:
    """Open stages and the writers' last commits."""

    def __init__(
        self, partition: Callable[[int], Partition | None], grown: set[int], max_writers: int = MAX_WRITERS
    ) -> None:
        """``grown``: takes the keys of partitions that a commit gives rows to."""
        self._partition = partition
        self._grown = grown
        self.max_writers = max_writers
        self.stages: dict[int, Stage] = {}
        self.writers: dict[str, Writer] = {}

    def open(self, index: int, command: OpenStage, now_ms: int) -> CommandResult:
        """A new stage, or the result when its transaction is committed already."""
        malformed = malformed_stage(command)
        if malformed:
            return CommandResult(Code.MALFORMED, malformed)
        writer = self.writers.get(command.writer_id)
        if writer is not None and command.sequence <= writer.sequence:
            offsets, records = writer.result(command.sequence)
            return CommandResult(Code.SUCCESS, "", {"committed": True, "offsets": offsets, "records": records})
        self.stages[index] = Stage(
            index, command.writer_id, command.sequence, command.label, now_ms + command.timeout_ms
        )
        return CommandResult(Code.SUCCESS, "", {"stage_id": index})

    def check(self, header: BodyHeader) -> DataResult | None:
        """None when this is the stage's next batch, else the answer to it."""
        stage = self.stages.get(header.producer_id)
        if stage is None:
            return DataResult(
                Code.UNKNOWN_STAGE, -1,
                f"stage {header.producer_id} is not open: it timed out, or its transaction was committed or aborted",
            )  # fmt: skip
        if header.sequence == stage.batches:
            return None
        if header.sequence < stage.batches:
            return STAGED
        return DataResult(
            Code.OUT_OF_ORDER_SEQUENCE, -1,
            f"stage {stage.stage_id}: batch {header.sequence} came before batch {stage.batches}; send that first",
        )  # fmt: skip

    def add(self, index: int, pos: int, size: int, header: BodyHeader, crc: int, key: int) -> None:
        """The batch, which `check` let pass, waits in its stage."""
        stage = self.stages[header.producer_id]
        stage.rows += STAGED_ROW.pack(key, index, pos, header.last_time_us, header.count, size, crc)
        stage.batches += 1
        stage.records += header.count

    def commit(self, index: int, command: CommitTransaction) -> CommandResult:
        """All or nothing: a refused commit changes nothing and may be tried again."""
        malformed = malformed_commit(command)
        if malformed:
            return CommandResult(Code.MALFORMED, malformed)
        writer = self.writers.get(command.writer_id)
        if writer is not None and command.sequence <= writer.sequence:
            offsets, records = writer.result(command.sequence)
            return CommandResult(Code.SUCCESS, "", {"repeated": True, "offsets": offsets, "records": records})
        refused = self._refusal(command)
        if refused is not None:
            return refused
        offsets, records = {}, 0
        for part in command.stages:
            records += self._place(index, self.stages[part.stage_id], offsets)
        # a fresh place in the dict: writers stand in the order of their last commits
        self.writers.pop(command.writer_id, None)
        writer = self.writers[command.writer_id] = Writer(command.sequence, index, offsets, records)
        self._drop(s for s in self._stages_of(command.writer_id) if s.sequence <= command.sequence)
        if len(self.writers) > self.max_writers:
            oldest = sorted(self.writers.items(), key=lambda item: item[1].committed_at)
            for name, _ in oldest[: len(self.writers) - self.max_writers + self.max_writers // 100]:
                del self.writers[name]
        offsets, records = writer.result(command.sequence)
        return CommandResult(Code.SUCCESS, "", {"repeated": False, "offsets": offsets, "records": records})

    def _refusal(self, command: CommitTransaction) -> CommandResult | None:
        """Why this commit cannot be, or None."""
        seen: set[int] = set()
        for part in command.stages:
            stage = self.stages.get(part.stage_id)
            if part.stage_id in seen:
                return CommandResult(Code.MALFORMED, f"stage {part.stage_id} stands twice in the commit")
            seen.add(part.stage_id)
            if stage is None:
                return CommandResult(Code.UNKNOWN_STAGE, f"stage {part.stage_id} timed out or was aborted: stage again")
            if (stage.writer_id, stage.sequence) != (command.writer_id, command.sequence):
                return CommandResult(
                    Code.TRANSACTION_CONFLICT,
                    f"stage {part.stage_id} is of transaction {stage.sequence} of writer {stage.writer_id!r}, not of "
                    f"{command.sequence} of {command.writer_id!r}",
                )
            if (stage.batches, stage.records) != (part.batches, part.records):
                return CommandResult(
                    Code.STAGE_INCOMPLETE,
                    f"stage {part.stage_id} ({stage.label}) holds {stage.records} records in {stage.batches} batches, "
                    f"the commit wants {part.records} in {part.batches}",
                )
            gone = {key for key, *_ in STAGED_ROW.iter_unpack(stage.rows) if self._partition(key) is None}
            if gone:
                ids = ", ".join(str(topic_id) for topic_id in sorted({key >> 32 for key in gone}))
                return CommandResult(
                    Code.UNKNOWN_TOPIC, f"stage {part.stage_id} has batches of deleted topics (topic id {ids})"
                )
        return None

    def _place(self, index: int, stage: Stage, offsets: Offsets) -> int:
        """Give a stage's batches their offsets, and widen ``offsets`` by them."""
        for key, at, pos, last_us, count, size, crc in STAGED_ROW.iter_unpack(stage.rows):
            partition = self._partition(key)
            assert partition is not None
            base = partition.append(at, pos, size, crc, count, last_us, index)
            self._grown.add(key)
            span = offsets.setdefault(partition.topic, {}).setdefault(key & 0xFFFFFFFF, [base, base])
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
        return min((at for stage in self.stages.values() if (at := stage.first_index) is not None), default=None)

    def _stages_of(self, writer_id: str) -> Iterable[Stage]:
        return (stage for stage in self.stages.values() if stage.writer_id == writer_id)

    def _drop(self, stages: Iterable[Stage]) -> None:
        for stage in list(stages):
            del self.stages[stage.stage_id]

    def describe(self) -> list[dict[str, Any]]:
        """The open stages, for people."""
        return [
            {
                "stage_id": stage.stage_id, "writer_id": stage.writer_id, "sequence": stage.sequence,
                "label": stage.label, "batches": stage.batches, "records": stage.records,
                "deadline_ms": stage.deadline_ms,
            }
            for stage in self.stages.values()
        ]  # fmt: skip


def malformed_stage(command: OpenStage) -> str:
    """What is wrong with the opening of a stage, or nothing."""
    if not 0 < len(command.writer_id) <= MAX_NAME or len(command.label) > MAX_NAME:
        return f"a writer id has 1 to {MAX_NAME} characters, a label up to as many"
    if command.sequence < 0:
        return f"a transaction's sequence is 0 or more, not {command.sequence}"
    if not 0 < command.timeout_ms <= MAX_STAGE_MS:
        return f"a stage's time-out is 1 to {MAX_STAGE_MS} ms, not {command.timeout_ms}"
    return ""


def malformed_commit(command: CommitTransaction) -> str:
    """What is wrong with a commit whatever its stages hold, or nothing."""
    if not 0 < len(command.writer_id) <= MAX_NAME or command.sequence < 0:
        return f"a writer id has 1 to {MAX_NAME} characters, a sequence is 0 or more"
    return ""


__all__ = ["MAX_STAGE_MS", "MAX_WRITERS", "STAGED_ROW", "Offsets", "Stage", "Transactions", "Writer",
           "malformed_commit", "malformed_stage"]  # fmt: skip
