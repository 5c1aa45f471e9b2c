"""The series of topics and of consumer groups, read from the applied state on another thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from dledger.catalog.clients.consumer_groups import ConsumerGroup
from dledger.catalog.state import CatalogState
from dledger.catalog.topics.partition import NO_TIME
from dledger.errors import DLedgerError
from dledger.node.meters import Served
from dledger.node.monitoring.families import MOST_GROUPS, MOST_TOPICS, OTHER
from dledger.node.monitoring.series import Counted, Named

LOOK_UPS: Final = 2_000
"""Times of records that one scrape looks up in the topic index; others are as they were at the
last look, which makes a lag look longer and never shorter."""

Series = dict[str, dict[str, float]]
"""By metric, the values by label."""


class TopicSeries:
    """Records and bytes by topic, in and out."""

    def __init__(self) -> None:
        named = Named(MOST_TOPICS)
        self._counters = {
            name: Counted(named) for name in ("records", "bytes", "read_records", "read_bytes")
        }

    def series(self, catalog: CatalogState, served: dict[int, Served]) -> Series:
        """Of this scrape."""
        names = {topic_id: info.name for topic_id, info in list(catalog.topics_state.by_id.items())}
        sums = {topic_id: [0, 0, 0, 0] for topic_id in names}
        for key, part in list(catalog.partitions.used.items()):
            if (found := sums.get(key >> 32)) is not None:
                found[0] += part.next_offset
                found[1] += part.bytes
        for topic_id, sent in list(served.items()):
            if (found := sums.get(topic_id)) is not None:
                found[2], found[3] = sent.records, sent.bytes
        return {
            f"dledger_topic_{name}_total": counter.series(
                {names[topic_id]: values[at] for topic_id, values in sums.items()}
            )
            for at, (name, counter) in enumerate(self._counters.items())
        }


class LagSeries:
    """Lag by consumer group, in records and in seconds."""

    def __init__(self, wall_s: Callable[[], float]) -> None:
        self._wall_s = wall_s
        self._named = Named(MOST_GROUPS)
        self._known: dict[tuple[str, int], tuple[int, int]] = {}
        """By group and partition, the offset that was looked up last, and the record's time."""
        self._look_ups = 0
        self._turn = 0

    def series(self, catalog: CatalogState) -> Series:
        """Of this scrape. The lag of the others is the sum of their records, and the longest of
        their times."""
        self._look_ups = 0
        groups = dict(catalog.consumer_groups.by_name)
        own = self._named.own(groups)
        records: dict[str, float] = {}
        seconds: dict[str, float] = {}
        known, self._known = self._known, {}
        for name in self._in_turn(list(groups)):
            lag, age_s = self._lag(catalog, name, groups[name], known)
            label = name if name in own else OTHER
            records[label] = records.get(label, 0) + lag
            seconds[label] = max(seconds.get(label, 0.0), age_s)
        return {
            "dledger_consumer_group_lag_records": records,
            "dledger_consumer_group_lag_seconds": seconds,
        }

    def _in_turn(self, names: list[str]) -> Iterable[str]:
        """Each scrape begins with another group, so that look-ups are for all of them."""
        self._turn = (self._turn + 1) % max(1, len(names))
        yield from islice(names, self._turn, None)
        yield from islice(names, self._turn)

    def _lag(
        self,
        catalog: CatalogState,
        name: str,
        group: ConsumerGroup,
        known: dict[tuple[str, int], tuple[int, int]],
    ) -> tuple[int, float]:
        """Records that the group has not processed, and the age of the oldest in seconds."""
        lag, oldest_us = 0, NO_TIME
        for topic_id, offsets in list(group.offsets.items()):
            for number, offset in list(offsets.items()):
                part = catalog.partitions.used.get(topic_id << 32 | number)
                behind = 0 if part is None else part.next_offset - max(offset, part.begin_offset)
                if part is None or behind <= 0:
                    continue
                lag += behind
                at, then_us = place = known.get((name, topic_id << 32 | number), (-1, NO_TIME))
                if at != offset and self._look_ups < LOOK_UPS:
                    self._look_ups += 1
                    try:
                        place = offset, part.unread(offset)[1]
                    except DLedgerError:  # retention was faster, or the table is damaged
                        continue
                then_us = place[1]
                self._known[name, topic_id << 32 | number] = place
                if then_us != NO_TIME and (oldest_us == NO_TIME or then_us < oldest_us):
                    oldest_us = then_us
        return lag, 0.0 if oldest_us == NO_TIME else max(0.0, self._wall_s() - oldest_us / 1e6)
