"""What has to hold in the end: counts, offsets and bytes on both sides, and of each micro-batch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dledger.client.protocol.operations.group_state import CommitState
from kafka_copy.queries import Record

Spans = dict[int, tuple[int, int]]
"""Partition -> offsets from, and up to but not including."""


@dataclass
class Finding:
    """One thing that was checked: what must hold, what was found, and whether it does."""

    claim: str
    found: str
    holds: bool


def same_records(
    claim: str, there: Sequence[Record], here: Sequence[Record], *, times: bool
) -> Finding:
    """Each record once, in its partition, at its offset, byte for byte; with its time where that is
    copied too."""
    end = 6 if times else 5
    one, other = Counter(record[:end] for record in there), Counter(record[:end] for record in here)
    missing, extra = (one - other).total(), (other - one).total()
    text = f"{len(there):,} and {len(here):,} records, {missing} missing, {extra} too many"
    return Finding(claim, text, bool(there) and not missing and not extra)


def same_partitions(claim: str, there: Iterable[Record], here: Iterable[Record]) -> Finding:
    """Each key is in one partition, the same one on both sides."""
    one, other = (
        {(record[2], record[0]) for record in side if record[2] is not None}
        for side in (there, here)
    )
    keys = len({key for key, _ in one})
    holds = bool(keys) and keys == len(one) and one == other
    return Finding(claim, f"{keys} keys, {len(one ^ other)} elsewhere", holds)


def batches_read(checkpoint: Path, topic: str, begin: Mapping[int, int]) -> dict[int, Spans]:
    """What each micro-batch read from Kafka, out of the checkpoint's own log of offsets."""
    found: dict[int, Spans] = {}
    at = dict(begin)
    for number in sorted(
        int(file.name) for file in (checkpoint / "offsets").iterdir() if file.name.isdecimal()
    ):
        text = (checkpoint / "offsets" / str(number)).read_text().splitlines()[-1]
        ends = {int(partition): end for partition, end in json.loads(text)[topic].items()}
        found[number] = {partition: (at.get(partition, 0), end) for partition, end in ends.items()}
        at.update(ends)
    return found


def batches_written(commits: Iterable[CommitState], query: str, topic: str) -> dict[int, Spans]:
    """What each micro-batch of a query wrote, out of dledger's list of commits."""
    writer = f"spark/{query}/{topic}"
    return {one.sequence: one.offsets[topic] for one in commits if one.writer_id == writer}


def same_batches(claim: str, read: Mapping[int, Spans], written: Mapping[int, Spans]) -> Finding:
    """Each micro-batch wrote the offsets that it read: there was nothing else in either topic
    before."""
    full = {
        number: {p: span for p, span in spans.items() if span[0] < span[1]}
        for number, spans in read.items()
    }
    full = {number: spans for number, spans in full.items() if spans}
    wrong = [
        number
        for number in sorted(full.keys() | written.keys())
        if full.get(number) != written.get(number)
    ]
    return Finding(
        claim,
        f"{len(full)} micro-batches, {len(wrong)} differ{f': {wrong}' if wrong else ''}",
        bool(full) and not wrong,
    )


def query_id(checkpoint: Path) -> str:
    """The query's id, as Spark keeps it."""
    return str(json.loads((checkpoint / "metadata").read_text())["id"])
