"""Records that should be read and are no longer kept. Pure."""

from __future__ import annotations

import logging
from typing import Final

from dledger.datasource.offsets import Positions
from dledger.errors import OffsetOutOfRange

LOGGER: Final = logging.getLogger("dledger.spark")


def keep_or_fail(starts: Positions, ends: Positions, begins: Positions, fail: bool) -> Positions:
    """Where reading can start: ``starts``, or behind what is gone when ``fail`` is False.

    Raises:
        OffsetOutOfRange: records of [starts, ends) are gone and ``fail`` is True; the message has every lost range.
    """
    lost: list[str] = []
    kept: Positions = {}
    for topic, partitions in starts.items():
        for partition, start in partitions.items():
            begin, end = begins[topic][partition], ends[topic][partition]
            if start < begin and start < end:
                lost.append(f"{topic}/{partition} offsets {start} to {min(begin, end) - 1}")
            kept.setdefault(topic, {})[partition] = max(start, min(begin, end))
    if lost:
        report(lost, fail)
    return kept


def check_order(starts: Positions, ends: Positions, what: str) -> None:
    """Refuse a range that ends before it starts.

    Raises:
        OffsetOutOfRange: naming the first such partition.
    """
    for topic, partitions in ends.items():
        for partition, end in partitions.items():
            start = starts[topic][partition]
            if start > end:
                raise OffsetOutOfRange(
                    f"{what}: topic {topic!r}, partition {partition} would be read from offset {start} to {end}, which "
                    "is before it",
                    end,
                    start,
                )


def report(lost: list[str], fail: bool) -> None:
    """Tell which ranges are gone.

    Raises:
        OffsetOutOfRange: when ``fail`` is True.
    """
    text = f"records are no longer kept: {'; '.join(lost)}"
    if fail:
        raise OffsetOutOfRange(
            f"{text}. Retention removed them before they were read; to go on behind them set option 'failOnDataLoss' "
            "to false, or give the query a new checkpointLocation"
        )
    LOGGER.warning("%s; going on behind them because 'failOnDataLoss' is false", text)


__all__ = ["check_order", "keep_or_fail", "report"]
