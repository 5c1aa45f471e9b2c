"""How much one micro-batch takes, and when: rows, bytes and a least number of rows together, over
all partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from dledger.client.protocol.results import Range
from dledger.datasource.options.offsets import Positions
from dledger.datasource.options.rate_limits import RateLimits
from dledger.datasource.read.planning import Slice, Slices, StoredBatches, measured, ranges
from dledger.errors import ConfigError

STEPS: Final = 8
"""Into so many pieces a partition's share of the byte limit is cut, so that little of it is left
unused."""


def limits_for(limit: ReadLimit, limits: RateLimits) -> RateLimits:
    """The options' limits under the one that Spark puts on this batch: `getDefaultReadLimit`, or
    the trigger's.

    Raises:
        ConfigError: a limit that is for sources of another kind.
    """
    match limit:
        case ReadAllAvailable():
            return RateLimits(bytes=None)
        case ReadMaxRows():
            return replace(limits, rows=limit.max_rows)
        case ReadMaxBytes():
            return replace(limits, bytes=limit.max_bytes)
        case ReadMinRows():
            return replace(limits, least_rows=limit.min_rows)
    raise ConfigError(f"this source cannot limit a batch by {type(limit).__name__}")


class BatchDelay:
    """Holds a batch back until it has its least number of rows, or its first one has waited long
    enough.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # nothing was unread then; None: how long it waits is not known
        self._empty_at: float | None = None
        self.holding = False

    def go(self, backlog: int, limits: RateLimits, patient: bool) -> bool:
        """Whether a batch is due now that ``backlog`` records are unread; never when there is none.

        Args:
            patient: False where a batch that waits would end the query instead.
        """
        now = self._clock()
        known, since = self._empty_at is not None, self._empty_at or 0.0
        few = 0 < backlog < limits.least_rows
        self.holding = few and patient and known and (now - since) * 1000 < limits.delay_ms
        if not self.holding:
            self._empty_at = now
        return backlog > 0 and not self.holding


def admit(
    starts: Positions,
    ends: Positions,
    log: StoredBatches,
    max_rows: int | None = None,
    max_bytes: int | None = None,
) -> Positions:
    """Where a micro-batch ends that starts at ``starts``, when ``ends`` is all there is.

    Rows: exactly ``max_rows`` when there are more, shared out by backlog as Spark's Kafka source
    does. Bytes: whole stored batches, never more than ``max_bytes`` together, unless a single batch
    alone is larger: then that one. Whenever records are there, some are admitted.
    """
    backlog = ranges(starts, ends)
    if max_rows is not None:
        backlog = _limit_rows(backlog, max_rows)
    if max_bytes is not None:
        backlog = _limit_bytes(backlog, max_bytes, log)
    admitted = {topic: dict(partitions) for topic, partitions in starts.items()}
    for topic, partition, end in zip(backlog.topics, backlog.partitions, backlog.ends, strict=True):
        admitted[topic][partition] = end
    return admitted


def shares(amounts: list[int], limit: int) -> list[int]:
    """Divide ``limit`` in proportion to ``amounts``, exactly; the largest remainders get the
    rest."""
    total = sum(amounts)
    if total <= limit:
        return list(amounts)
    whole = [amount * limit // total for amount in amounts]
    by_remainder = sorted(range(len(amounts)), key=lambda i: (-(amounts[i] * limit % total), i))
    for i in by_remainder[: limit - sum(whole)]:
        whole[i] += 1
    return whole


def _limit_rows(backlog: Slices, limit: int) -> Slices:
    amounts = backlog.rows
    if sum(amounts) <= limit:
        return backlog
    rows = shares(amounts, limit)
    return Slices.of(
        part._replace(end=part.start + n) for part, n in zip(backlog, rows, strict=True) if n
    )


def _limit_bytes(backlog: Slices, limit: int, log: StoredBatches) -> Slices:
    totals = measured(backlog, log).bytes
    if sum(totals) <= limit:
        return backlog
    parts = list(backlog)
    wanted = shares(totals, limit)
    spare = _pieces(parts, [max(1, share // STEPS) for share in wanted], 2 * STEPS, log)
    taken: dict[int, int] = {}
    used = 0
    for i, (pieces, share) in enumerate(zip(spare, wanted, strict=True)):
        own = 0
        while pieces and own + pieces[0].bytes <= share:
            taken[i] = pieces[0].end
            own += pieces.pop(0).bytes
        used += own
    for i in sorted(range(len(parts)), key=lambda i: (-totals[i], i)):
        for piece in spare[i]:
            if used + piece.bytes > limit:
                break
            taken[i] = piece.end
            used += piece.bytes
    if not taken:
        largest = max(range(len(parts)), key=lambda i: (totals[i], -i))
        taken[largest] = _pieces([parts[largest]], [1], 1, log)[0][0].end
    return Slices.of(parts[i]._replace(end=end) for i, end in sorted(taken.items()))


def _pieces(
    parts: list[Slice], targets: list[int], most: int, log: StoredBatches
) -> list[list[Range]]:
    """Pieces of each part at the borders of its stored batches, by one question."""
    spans = [part.span(target, most) for part, target in zip(parts, targets, strict=True)]
    return [list(pieces) for pieces in log.split(spans)]
