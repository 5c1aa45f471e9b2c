"""Which offset here a record of Kafka has.

Kafka's offsets have gaps, from compaction and from the markers of transactions; those here have
none. So an import notes where each run of neighbouring offsets came to lie: one JSON record for
each transaction of an import, written by that transaction, in a topic beside the imported one.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from dledger.errors import ConfigError

if TYPE_CHECKING:
    from dledger.client import Client

PREFIX: Final = "kafka-offsets."
"""Of the name of such a topic; the rest is the imported topic's."""

Pair = tuple[int, int]
"""An offset in Kafka, and the one here."""


@dataclass(frozen=True, slots=True)
class ImportStep:
    """One transaction of an import.

    Attributes:
        cluster: the id of the Kafka cluster.
        run: drawn by the process that imports.
        sequence: of the transaction.
        runs: partition -> where each run of neighbouring offsets begins.
        ends: partition -> where it goes on, of all partitions so far. In Kafka that may lie behind
            the end of a transaction, whose marker has an offset of its own.
    """

    cluster: str
    run: str
    sequence: int
    runs: dict[int, list[Pair]] = field(default_factory=dict)
    ends: dict[int, Pair] = field(default_factory=dict)

    def after(
        self, run: str, offsets: Mapping[int, Sequence[int]], at_end: Mapping[int, int]
    ) -> ImportStep:
        """The step behind this one.

        Args:
            offsets: of its records in Kafka, by partition.
            at_end: partition -> its end in Kafka, where nothing is left to read.
        """
        runs, ends = {}, dict(self.ends)
        for partition, found in offsets.items():
            here = self.ends[partition][1] if partition in self.ends else 0
            begins = [0, *(n for n, two in enumerate(pairwise(found), 1) if two[1] != two[0] + 1)]
            runs[partition] = [(found[begin], here + begin) for begin in begins]
            ends[partition] = found[-1] + 1, here + len(found)
        for partition, end in at_end.items():
            behind, here = ends.get(partition, (0, 0))
            ends[partition] = max(behind, end), here
        return ImportStep(self.cluster, run, self.sequence + 1, runs, ends)

    def to_json(self) -> bytes:
        return json.dumps(
            {
                "cluster": self.cluster,
                "run": self.run,
                "sequence": self.sequence,
                "runs": self.runs,
                "ends": self.ends,
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def from_json(cls, text: bytes) -> ImportStep:
        found = json.loads(text)
        runs = {int(p): [(k, h) for k, h in pairs] for p, pairs in found["runs"].items()}
        ends = {int(p): (pair[0], pair[1]) for p, pair in found["ends"].items()}
        return cls(found["cluster"], found["run"], found["sequence"], runs, ends)


def first_step(cluster: str) -> ImportStep:
    """Before the first one."""
    return ImportStep(cluster, "", -1)


class OffsetMap:
    """The steps of a topic's import, as the log has them.

    Args:
        topic: the imported one.

    Raises:
        TopicNotFound: it was not imported.
    """

    def __init__(self, client: Client, topic: str) -> None:
        self.topic = PREFIX + topic
        self._client = client
        self._imported = topic
        self._known: dict[int, ImportStep] = {}
        client.topic(self.topic)

    def last(self) -> ImportStep | None:
        """The last step; None before the first one."""
        count = self._client.end_offsets(self.topic)[0]
        return self._step(count - 1) if count else None

    def _step(self, number: int) -> ImportStep:
        """By its offset in the topic; what was read stays known, for a step never changes."""
        if number not in self._known:
            batches = self._client.read(self.topic, 0, number, number + 1)
            (text,) = [value.as_py() for batch in batches for value in batch.column("value")]
            self._known[number] = ImportStep.from_json(text)
        return self._known[number]

    def here(self, partition: int, offset: int) -> int:
        """The offset here of the first record that is at ``offset`` in Kafka or behind it.

        Raises:
            ConfigError: the import is not that far.
        """
        steps = range(
            self._client.begin_offsets(self.topic)[0], self._client.end_offsets(self.topic)[0]
        )
        place = bisect_left(steps, offset, key=lambda number: self._end(number, partition)[0])
        if place == len(steps):
            reached = max(self._end(steps[-1], partition)[0], 0) if steps else 0
            raise ConfigError(
                f"offset {offset:,} of {self._imported}[{partition}] is not imported yet: the "
                f"import is at {reached:,}; run dledger import kafka again"
            )
        at = steps[place]
        runs = self._step(at).runs.get(partition, [])
        if not runs:  # nothing but markers lies before that end
            return self._end(at, partition)[1]
        place = bisect_left(runs, offset, key=itemgetter(0)) - 1
        if place < 0:  # removed before the import began, or a gap between two steps
            return runs[0][1]
        begin, here = runs[place]
        behind = runs[place + 1] if place + 1 < len(runs) else self._end(at, partition)
        return min(here + offset - begin, behind[1])

    def _end(self, number: int, partition: int) -> Pair:
        return self._step(number).ends.get(partition, (-1, 0))

    def translated(self, offsets: Mapping[str, Any]) -> dict[str, int]:
        """Offsets by partition as Spark writes them, with -2 and -1 for earliest and latest."""
        return {
            partition: offset if offset < 0 else self.here(int(partition), offset)
            for partition, offset in offsets.items()
        }
