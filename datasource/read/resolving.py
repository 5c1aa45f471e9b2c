"""From the bounds of options to offsets that exist."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dledger.datasource.options.bounds import Bound, BoundKind
from dledger.datasource.options.offsets import EARLIEST, LATEST, Positions
from dledger.datasource.table.log import Log
from dledger.errors import ConfigError, OffsetOutOfRange


@dataclass(frozen=True, slots=True)
class Edges:
    """The offsets to read at one moment: every partition of the selection."""

    ids: dict[str, str]
    """topic -> log id."""
    begins: Positions
    ends: Positions

    @staticmethod
    def of(log: Log, ids: dict[str, str]) -> Edges:
        """Ask the log, both at one moment."""
        view = log.edges(ids)
        return Edges(ids, view.begins, view.offsets)


def resolve(
    bound: Bound, edges: Edges, log: Log, now: Callable[[], float] = time.time
) -> Positions:
    """The offset of every partition.

    Raises:
        ConfigError: partitions are missing from JSON, or it names some that are not read.
        OffsetOutOfRange: an offset is behind the end of its partition, or no record is as new as a
            time asks.
        TopicRecreated: a topic is another one by now.
    """
    match bound.kind:
        case BoundKind.EARLIEST:
            return _copy(edges.begins)
        case BoundKind.LATEST:
            return _copy(edges.ends)
        case BoundKind.COMMITTED:
            return _committed(edges, log)
        case BoundKind.OFFSETS:
            return _offsets(bound, edges)
        case BoundKind.BACK:
            return {
                topic: {
                    p: max(edges.begins[topic][p], end - bound.number) for p, end in ends.items()
                }
                for topic, ends in edges.ends.items()
            }
        case BoundKind.TIMES:
            _check_same_partitions(bound.option, bound.positions, edges.ends)
            return _by_time(bound, edges, log, bound.positions)
        case BoundKind.TIME | BoundKind.AGO:
            at = bound.number if bound.kind is BoundKind.TIME else int(now() * 1e6) - bound.number
            return _by_time(
                bound, edges, log, {t: dict.fromkeys(ends, at) for t, ends in edges.ends.items()}
            )


def _copy(positions: Positions) -> Positions:
    return {topic: dict(partitions) for topic, partitions in positions.items()}


def _committed(edges: Edges, log: Log) -> Positions:
    """Where the group has got to; a partition that it has not begun, it has all of before it."""
    committed = log.committed()
    found: Positions = {}
    for topic, begins in edges.begins.items():
        of_topic = committed.get(topic, {})
        for partition, begin in begins.items():
            found.setdefault(topic, {})[partition] = min(
                of_topic.get(partition, begin), edges.ends[topic][partition]
            )
    return found


def _offsets(bound: Bound, edges: Edges) -> Positions:
    _check_same_partitions(bound.option, bound.positions, edges.ends)
    signs: Final = {EARLIEST: edges.begins, LATEST: edges.ends}
    found: Positions = {}
    for topic, ends in edges.ends.items():
        for partition, end in ends.items():
            offset = bound.positions[topic][partition]
            if offset > end:
                begin = edges.begins[topic][partition]
                raise OffsetOutOfRange(
                    f"option {bound.option!r}: offset {offset} of topic {topic!r}, partition "
                    f"{partition} is not there "
                    f"yet; the partition has offsets from {begin} up to, not including, {end}",
                    begin,
                    end,
                )
            real = signs[offset][topic][partition] if offset in signs else offset
            found.setdefault(topic, {})[partition] = real
    return found


def _by_time(bound: Bound, edges: Edges, log: Log, times: Positions) -> Positions:
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
    return {
        topic: {
            p: end if found[topic][p] < 0 else min(found[topic][p], end) for p, end in ends.items()
        }
        for topic, ends in edges.ends.items()
    }


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
