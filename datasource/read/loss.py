"""Records that should be read and are no longer kept. Pure."""

from __future__ import annotations

import logging
from operator import le
from typing import Final

from dledger.datasource.options.offsets import Positions
from dledger.errors import OffsetOutOfRange, TopicNotFound, TopicRecreated

LOGGER: Final = logging.getLogger("dledger.spark")


class Warnings:
    """Warnings that a query gives once each, however often what they say is seen."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def give(self, text: str) -> None:
        if text not in self._given:
            self._given.add(text)
            LOGGER.warning("%s", text)


def keep_or_fail(starts: Positions, ends: Positions, begins: Positions, fail: bool) -> Positions:
    """Where reading can start: ``starts``, or behind the gone records when ``fail`` is False.

    Raises:
        OffsetOutOfRange: records of [starts, ends) are gone and ``fail`` is True; the message has
            every lost range.
    """
    lost: list[str] = []
    kept: Positions = {}
    for topic, partitions in starts.items():
        kept[topic] = dict(partitions)
        if all(map(le, map(begins[topic].__getitem__, partitions), partitions.values())):
            continue  # as nearly always
        for partition, start in partitions.items():
            begin, end = begins[topic][partition], ends[topic][partition]
            if start < begin and start < end:
                lost.append(f"{topic}/{partition} offsets {start} to {min(begin, end) - 1}")
            kept[topic][partition] = max(start, min(begin, end))
    if lost:
        report(lost, fail)
    return kept


def check_order(starts: Positions, ends: Positions, what: str) -> None:
    """Refuse a range that ends before it starts.

    Raises:
        OffsetOutOfRange: naming the first such partition.
    """
    for topic, partitions in ends.items():
        if all(map(le, map(starts[topic].__getitem__, partitions), partitions.values())):
            continue
        for partition, end in partitions.items():
            start = starts[topic][partition]
            if start > end:
                raise OffsetOutOfRange(
                    f"{what}: topic {topic!r}, partition {partition} would be read from offset "
                    f"{start} to {end}, which is before it",
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
            f"{text}. Retention removed them before they were read; to go on behind them set "
            "option 'failOnDataLoss' to false, or start behind them: a stream with a new "
            "checkpointLocation, a batch read by 'startingOffsets'"
        )
    LOGGER.warning("%s; going on behind them because 'failOnDataLoss' is false", text)


def deleted(topic: str, what: str, fail: bool) -> str:
    """Tell which records went with their topic; returns the text of a warning.

    Raises:
        TopicNotFound: when ``fail`` is True.
    """
    text = f"topic {topic!r} was deleted: {what} were not read, if there were any"
    if fail:
        raise TopicNotFound(f"{text}; to go on without it set option 'failOnDataLoss' to false")
    return f"{text}; going on without it because 'failOnDataLoss' is false"


def recreated(topic: str, what: str, log_id: str, fail: bool) -> str:
    """Tell which records went with the former life of a topic; returns the text of a warning.

    Raises:
        TopicRecreated: when ``fail`` is True.
    """
    if fail:
        raise TopicRecreated(
            f"topic {topic!r} was deleted and created again since this read began: the offsets of "
            f"its former life (log id {log_id}) mean nothing in it, and {what} were not read. For "
            "a stream: give the query a new checkpointLocation, or set option 'onTopicRecreate' "
            "to restart"
        )
    return (
        f"topic {topic!r} was deleted and created again: {what} of its former life (log id "
        f"{log_id}) were not read. "
        "Going on with the first record of the new one, because 'onTopicRecreate' is restart"
    )
