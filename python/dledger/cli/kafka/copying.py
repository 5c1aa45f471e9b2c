"""Topics of Kafka on their way here: each step is one transaction, of records and of how far they
reach, so that an import that is run again goes on behind the last one that was committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from dledger.cli.kafka.cluster import Fetched, KafkaCluster, KafkaRows, Place, removed
from dledger.client.blocking.kafka_offsets import PREFIX, OffsetMap, first_step
from dledger.config.names import NAME
from dledger.errors import (
    ConfigError,
    OffsetOutOfRange,
    ProducerFenced,
    RecordTooLarge,
    TopicNotFound,
)

if TYPE_CHECKING:
    from dledger.client import Client
    from dledger.protocol.messages.client import TopicInfo

WAIT_S: Final = 0.5
FOLLOW_S: Final = 5.0
"""How often an import that follows carries the offsets of groups over."""


class TopicImport:
    """One topic on its way. Nobody else may write to it meanwhile: the map of its offsets counts on
    that.

    Attributes:
        step: the last one that is committed.
        records: imported by this process.

    Raises:
        ConfigError: the topic here has records that are not of this import.
    """

    def __init__(self, client: Client, topic: str, *, cluster_id: str, partitions: int) -> None:
        self.topic = topic
        self.records = 0
        self._client = client
        self._run = uuid4().hex
        self.log_id = _made(client, topic, partitions).log_id
        steps = client.create_topic(
            PREFIX + topic, if_absent=True, description=f"Kafka's offsets of topic {topic}"
        )
        self._writer = f"kafka-import/{steps.log_id}"
        self.map = OffsetMap(client, topic)
        self.step = self.map.last() or first_step(cluster_id)
        if self.step.cluster != cluster_id:
            raise ConfigError(
                f"topic {topic!r} was imported from Kafka cluster {self.step.cluster!r}, and this "
                f"one is {cluster_id!r}: import it into a group of its own"
            )
        for partition, end in sorted(client.end_offsets(topic).items()):
            self._check_end(partition, end, self.step.ends.get(partition, (0, 0))[1])

    def _check_end(self, partition: int, end: int, imported: int) -> None:
        if end < imported:
            raise ConfigError(
                f"{self.topic}[{partition}] has {end:,} records here, and {imported:,} were "
                f"imported: the topic was deleted and made again. Delete topic {self.map.topic!r} "
                "too, to import it anew"
            )
        if end > imported:
            raise ConfigError(
                f"{self.topic}[{partition}] has {end:,} records here, of which {imported:,} are "
                "imported: others write to it, or it was there before. Import into a group without "
                "such a topic, and let producers write to it when the import has ended"
            )

    def position(self, partition: int, before: int = 0) -> int:
        """Where to go on in Kafka; ``before`` where the partition was not begun."""
        return self.step.ends.get(partition, (before, 0))[0]

    def take(self, rows: Collection[KafkaRows], at_end: Mapping[int, int]) -> None:
        """Commit the next step.

        Raises:
            ProducerFenced: another import of this topic runs.
            RecordTooLarge: nothing of the step is committed.
        """
        step = self.step.after(self._run, {one.partition: one.offsets for one in rows}, at_end)
        label = f"import of {self.topic} from Kafka"
        with self._client.transaction(self._writer, step.sequence, label=label) as transaction:
            for one in rows:
                try:
                    transaction.append_batch(self.topic, one.partition, one.records)
                except RecordTooLarge as error:
                    raise RecordTooLarge(
                        f"{self.topic}[{one.partition}], one of Kafka's offsets {one.offsets[0]:,} "
                        f"to {one.offsets[-1]:,}: {error}"
                    ) from error
            transaction.append(self.map.topic, step.to_json(), partition=0)
            done = transaction.commit()
        # a repeat may be this very step, whose first answer was lost
        if done.repeated and self.map.last() != step:
            raise ProducerFenced(
                f"another import of topic {self.topic!r} runs, or ran meanwhile: this one has "
                "written nothing twice, and ends"
            )
        for partition, (start, _) in done.offsets.get(self.topic, {}).items():
            self._check_end(partition, start, self.step.ends.get(partition, (0, 0))[1])
        self.step = step
        self.records += sum(len(one.offsets) for one in rows)


def _made(client: Client, topic: str, partitions: int) -> TopicInfo:
    """The topic, with so many partitions or more."""
    try:
        info = client.topic(topic)
    except TopicNotFound:
        return client.create_topic(topic, partitions)
    return info if info.partitions >= partitions else client.add_partitions(topic, partitions)


@dataclass(slots=True)
class Carried:
    """Groups whose offsets were carried over: group -> topic -> partition -> offset here."""

    groups: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    """Whose names cannot be here."""


@dataclass(slots=True)
class KafkaImport:
    """Some topics of a cluster, with the groups that read them.

    Attributes:
        groups: names; empty: all; None: none.
        behind: the partitions that have not reached the end that they had at the beginning, with
            that end.
    """

    client: Client
    cluster: KafkaCluster
    groups: Collection[str] | None = ()
    skip_removed: bool = False
    clock: Callable[[], float] = time.monotonic
    topics: dict[str, TopicImport] = field(default_factory=dict)
    behind: dict[Place, int] = field(default_factory=dict)
    carried: Carried = field(default_factory=Carried)
    total: int = 0
    """Offsets in Kafka from where this process began to the end of that time."""

    def begin(self, cluster_id: str, topics: Mapping[str, Collection[int]]) -> None:
        """Make the topics here, and find where to go on.

        Raises:
            ConfigError, OffsetOutOfRange: nothing was imported.
        """
        positions: dict[Place, int] = {}
        for name, partitions in topics.items():
            one = TopicImport(self.client, name, cluster_id=cluster_id, partitions=len(partitions))
            self.topics[name] = one
            for partition in partitions:
                place = name, partition
                begin, end = self.cluster.range(name, partition)
                position = one.position(partition, before=begin)
                if position < begin and not self.skip_removed:
                    raise OffsetOutOfRange(removed(place, begin), begin, end)
                positions[place] = start = max(begin, position)
                self.total += max(0, end - start)
                self.behind[place] = end
        self.cluster.assign(positions)

    def run(self, progress: Callable[[KafkaImport], None], *, follow: bool = False) -> None:
        """Copy all that there was at `begin`, then the groups; or with ``follow`` go on for
        ever."""
        at_end: dict[Place, int] = {}
        carried_at: float | None = None
        while True:
            fetched = self.cluster.fetch(WAIT_S)
            self._take(fetched)
            at_end |= fetched.at_end
            progress(self)
            if self.behind or (carried_at is not None and self.clock() < carried_at + FOLLOW_S):
                continue
            self._note_ends(at_end)
            self._carry()
            carried_at = self.clock()
            if not follow:
                return

    def _take(self, fetched: Fetched) -> None:
        by_topic: dict[str, list[KafkaRows]] = {}
        for one in fetched.rows:
            by_topic.setdefault(one.topic, []).append(one)
        for name, rows in by_topic.items():
            self.topics[name].take(rows, {})
        for place, end in list(self.behind.items()):
            name, partition = place
            if place in fetched.at_end or self.topics[name].position(partition) >= end:
                del self.behind[place]

    def _note_ends(self, at_end: Mapping[Place, int]) -> None:
        """A group may have committed the end of a partition, behind a transaction's marker."""
        for name, one in self.topics.items():
            ends = {p: end for (topic, p), end in at_end.items() if topic == name}
            # an empty partition, too, has an end: 0
            moved = {p: end for p, end in ends.items() if end > one.position(p, before=-1)}
            if moved:
                one.take((), moved)

    def _carry(self) -> None:
        """Tell the groups here what they have processed in Kafka; none is moved back."""
        if self.groups is None:
            return
        places = [(name, p) for name, one in self.topics.items() for p in one.step.ends]
        for group, offsets in self.cluster.groups(self.groups, places).items():
            if not NAME.fullmatch(group):
                self.carried.left_out.add(group)
                continue
            known = self.client.group(group).offsets
            moved: dict[str, dict[int, int]] = {}
            for (name, partition), offset in offsets.items():
                one = self.topics[name]
                # what is not imported yet may be processed, and is then given to it once more
                here = one.map.here(partition, min(offset, one.step.ends[partition][0]))
                if here > known.get(name, {}).get(partition, -1):
                    moved.setdefault(name, {})[partition] = here
            if moved:
                log_ids = {name: self.topics[name].log_id for name in moved}
                self.client.commit_offsets(group, moved, log_ids=log_ids)
            self.carried.groups.setdefault(group, {}).update(moved)
