"""The last commit of each writer of transactions, so that a repeat is known as one.

A query may come back after weeks and repeat its last batch, so writers do not expire. Their number
is bounded all the same. Over ``most`` writers the ones that committed longest ago give way: first
those of batch jobs, whose names are never used again; of any other one there stay a hash of its
name, its last sequence, and the count and digest of the rows. Of these as many are kept again, and
then the oldest are as if they had never been.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, NamedTuple

from dledger.catalog.results import CommandResult
from dledger.protocol.messages.codes import Code

MAX_WRITERS: Final = 100_000
JOB: Final = "job/"
"""Names of writers that commit once, see `dledger.datasource.write.sink`, begin with this."""

Offsets = dict[str, dict[int, list[int]]]
"""topic -> partition -> [start, end)"""


@dataclass(slots=True)
class Writer:
    """The last commit of a writer.

    Attributes:
        sequence: of that transaction.
        committed_at: the entry that committed it; -1 where only the hash of the writer's name is
            left.
        offsets: the offsets of its rows.
        records: the number of its rows.
        committed_ms: when, by the leader's clock; 0 where that is not known.
        digest: of the rows (`dledger.records.digest`), in hexadecimal; empty where the writer gave
            none.
    """

    sequence: int
    committed_at: int
    offsets: Offsets
    records: int
    committed_ms: int = 0
    digest: str = ""

    def result(self, sequence: int, **more: bool) -> CommandResult:
        """The answer with offsets and records of that commit; empty when a later one has taken its
        place."""
        is_last = sequence >= self.sequence
        offsets = {
            topic: {at: list(span) for at, span in spans.items()}
            for topic, spans in (self.offsets if is_last else {}).items()
        }
        records = self.records if is_last else 0
        return CommandResult(Code.SUCCESS, "", {**more, "offsets": offsets, "records": records})


class Trace(NamedTuple):
    """The rest of a writer that gave way."""

    sequence: int
    records: int
    digest: str


class Writers:
    """All writers that are remembered."""

    def __init__(self, most: int = MAX_WRITERS) -> None:
        self.most = most
        self.by_name: dict[str, Writer] = {}
        """By name, in the order of their last commits."""
        self.traces: dict[str, Trace] = {}
        """By `trace_name`, in the order in which they gave way."""

    def find(self, name: str) -> Writer | None:
        """The known state of a writer."""
        known = self.by_name.get(name)
        if (
            known is None
            and self.traces
            and (trace := self.traces.get(trace_name(name))) is not None
        ):
            return Writer(trace.sequence, -1, {}, trace.records, digest=trace.digest)
        return known

    def put(self, name: str, writer: Writer) -> None:
        """A writer has committed; it is the newest one now."""
        self.by_name.pop(name, None)
        self.by_name[name] = writer
        if self.traces:
            self.traces.pop(trace_name(name), None)
        if len(self.by_name) > self.most:
            self._forget(len(self.by_name) - self.most + self.most // 100)

    def _forget(self, count: int) -> None:
        """A hundredth more than must be, so that it is rarely done: it looks at all of them."""
        # it keeps their order otherwise
        oldest = sorted(self.by_name, key=lambda name: not name.startswith(JOB))
        for name in oldest[:count]:
            writer = self.by_name.pop(name)
            if not name.startswith(JOB):
                self.traces[trace_name(name)] = Trace(
                    writer.sequence, writer.records, writer.digest
                )
        for name in list(self.traces)[: max(0, len(self.traces) - self.most)]:
            del self.traces[name]


def trace_name(name: str) -> str:
    """The hash that stands for a writer that gave way: 128 bits of BLAKE2b, in hexadecimal."""
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
