"""Retention of topics that have settings of their own for that; see
`dledger.catalog.topics.expiry`."""

from __future__ import annotations

import logging
from typing import Final

from dledger.catalog.topics.expiry import expire
from dledger.errors import StorageError
from dledger.node.context import NodeContext, NodePart
from dledger.node.handlers.backups import Backups
from dledger.node.proposals.clocks import Clocks
from dledger.node.snapshot.snapshots import Snapshots

logger = logging.getLogger(__name__)

LOOK_MS: Final = 2_000
EACH_TURN: Final = 64
"""Partitions that are looked at in one turn of the loop."""


class TopicRetention(NodePart):
    """Each node moves the begins of its own partitions, as it does when files of the log go."""

    def __init__(
        self, context: NodeContext, *, clocks: Clocks, snapshots: Snapshots, backups: Backups
    ) -> None:
        super().__init__(context)
        self._clocks = clocks
        self._snapshots = snapshots
        self._backups = backups
        self._due_ms = 0
        self._rules: dict[str, dict[str, int]] = {}
        """By topic and name, as of the last look."""

    def tick(self, now_ms: int) -> None:
        """See `MaintenanceTask`."""
        if now_ms < self._due_ms or not self._catalog.settings:
            return
        self._due_ms = now_ms + LOOK_MS
        # a copy of the whole state that is under way has the rows as they were when it began
        if self._snapshots.sender.floor is None and self._backups.floor is None:
            self._look()

    def _look(self) -> None:
        self._rules = self._catalog.settings.of_topics()
        if self._rules:
            used = self._catalog.partitions.used.items()
            self._expire_some([key for key, one in used if one.topic in self._rules])

    def _expire_some(self, keys: list[int]) -> None:
        if self._ready_loop.failed:
            return
        for key in keys[:EACH_TURN]:
            try:
                self._expire(key)
            except StorageError as error:
                self._ready_loop.fail(error)
                return
        if len(keys) > EACH_TURN:
            self._loop.call_soon(self._expire_some, keys[EACH_TURN:])

    def _expire(self, key: int) -> None:
        partition = self._catalog.partitions.used.get(key)
        if partition is None:  # its topic was deleted
            return
        settings = self._rules.get(partition.topic, {})
        max_ms = settings.get("retention_ms", 0)
        gone = expire(
            partition,
            before_us=1000 * (self._clocks.wall_ms() - max_ms) if max_ms else None,
            max_bytes=settings.get("retention_bytes", 0),
            up_to=self._checkpoints.oldest_index,
            held=self._held(partition.topic_id, partition.number),
        )
        if gone:
            logger.info(
                "retention of topic %s: %d batches of partition %d are gone, which begins at %d",
                partition.topic,
                gone,
                partition.number,
                partition.begin_offset,
            )

    def _held(self, topic_id: int, number: int) -> int | None:
        """The first offset that a consumer group with a retention hold still wants."""
        groups = self._catalog.consumer_groups.by_name.values()
        spans = [group.offsets.get(topic_id, {}) for group in groups if group.holds]
        return min((span[number] for span in spans if number in span), default=None)
