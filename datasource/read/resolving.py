"""From the bounds of options to offsets that exist."""

from __future__ import annotations

import time
from collections.abc import Callable

from dledger.datasource.options.bounds import Bound, BoundKind
from dledger.datasource.options.offsets import EARLIEST, LATEST, Positions
from dledger.datasource.table.log import GroupView, Log
from dledger.errors import ConfigError, OffsetOutOfRange


def resolve(
    bound: Bound, edges: GroupView, log: Log, now: Callable[[], float] = time.time
) -> Positions:
    """The offset of every partition.

    Raises:
        ConfigError: partitions are missing from JSON, or it names some that are not read.
        OffsetOutOfRange: an offset is behind the end of its partition, or no record is as new as a
            time asks.
        TopicRecreated: a topic is another one by now.
    """
    if bound.kind in {BoundKind.OFFSETS, BoundKind.TIMES}:
        _check_same_partitions(bound.option, bound.positions, edges.offsets)
    match bound.kind:
        case BoundKind.EARLIEST:
            return each(edges, lambda topic, p, begin, end: begin)
        case BoundKind.LATEST:
            return each(edges, lambda topic, p, begin, end: end)
        case BoundKind.COMMITTED:
            # a partition that the group has not begun, it has all of before it
            committed = log.committed()
            return each(
                edges,
                lambda topic, p, begin, end: min(committed.get(topic, {}).get(p, begin), end),
            )
        case BoundKind.OFFSETS:
            return each(edges, lambda topic, p, begin, end: _offset(bound, topic, p, begin, end))
        case BoundKind.BACK:
            return each(edges, lambda topic, p, begin, end: max(begin, end - bound.number))
        case BoundKind.TIMES:
            return _by_time(bound, edges, log, bound.positions)
        case BoundKind.TIME | BoundKind.AGO:
            at = bound.number if bound.kind is BoundKind.TIME else int(now() * 1e6) - bound.number
            return _by_time(bound, edges, log, each(edges, lambda topic, p, begin, end: at))


def each(edges: GroupView, offset: Callable[[str, int, int, int], int]) -> Positions:
    """An offset for every partition, by its topic and number, its begin and its end."""
    return {
        topic: {p: offset(topic, p, edges.begins[topic][p], end) for p, end in ends.items()}
        for topic, ends in edges.offsets.items()
    }


def _offset(bound: Bound, topic: str, partition: int, begin: int, end: int) -> int:
    offset = bound.positions[topic][partition]
    if offset > end:
        raise OffsetOutOfRange(
            f"option {bound.option!r}: offset {offset} of topic {topic!r}, partition {partition} "
            f"is not there yet; the partition has offsets from {begin} up to, not including, {end}",
            begin,
            end,
        )
    return {EARLIEST: begin, LATEST: end}.get(offset, offset)


def _by_time(bound: Bound, edges: GroupView, log: Log, times: Positions) -> Positions:
    """The first record at or after each time; records that came since the edges were seen are not
    there yet."""
    found = log.at_times(edges.ids, times)
    none = [
        f"{topic}/{p}"
        for topic in sorted(found)
        for p, offset in sorted(found[topic].items())
        if offset < 0
    ]
    if none and not bound.latest_if_none:
        raise OffsetOutOfRange(
            f"option {bound.option!r}: no record is that new in {', '.join(none)}; to start at "
            "their ends set option 'startingOffsetsByTimestampStrategy' to latest"
        )
    return each(
        edges,
        lambda topic, p, begin, end: end if (offset := found[topic][p]) < 0 else min(offset, end),
    )


def _check_same_partitions(option: str, wanted: Positions, there: Positions) -> None:
    missing = [f"{t}/{p}" for t in there for p in there[t] if p not in wanted.get(t, {})]
    unknown = [f"{t}/{p}" for t in wanted for p in wanted[t] if p not in there.get(t, {})]
    if missing:
        raise ConfigError(
            f"option {option!r} must say something for every partition that is read; missing: "
            f"{', '.join(missing)}"
            + (" (-2 is earliest, -1 latest)" if option.endswith("Offsets") else "")
        )
    if unknown:
        raise ConfigError(
            f"option {option!r} names partitions that are not read: {', '.join(unknown)}"
        )
