"""The limits of a group's catalog in all: checked by the leader before a command is written, never
when one is applied.

Applying must come to the same on every node and for every log that was ever written, so it knows no
limits. The leader does, by its own state and by its proposals since that are not applied yet
(claims). A claim ends when its entry is applied, whether or not a client still waits for the
answer.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from dledger.catalog.admission import malformed, refused
from dledger.catalog.memory_use import growth, weigh
from dledger.catalog.results import CommandResult
from dledger.catalog.state_machine import Catalog
from dledger.node.context import CurrentSettings
from dledger.protocol.messages.catalog_commands import (
    AddPartitions,
    Command,
    CommitOffsets,
    CommitProgress,
    CreateTopic,
    HoldRetention,
    InitProducer,
    JoinGroup,
)
from dledger.protocol.messages.codes import Code
from dledger.types import Index

WEIGH_MS: Final = 2000
"""Least time between two weighings of the whole catalog: one takes some milliseconds for each 10
MiB."""
LIVE_MS: Final = 3600 * 1000
"""A producer session that was used within this time is not pushed out by new ones."""


MAX_TOPICS: Final = "max_topics"
MAX_PARTITIONS: Final = "max_partitions"
MAX_CONSUMER_GROUPS: Final = "max_consumer_groups"
MAX_PRODUCERS: Final = "max_producers"
MAX_CATALOG_BYTES: Final = "max_catalog_bytes"

Claim = Counter[str]
"""The most that commands add to the catalog, by the setting that limits it."""


class Quotas:
    """The limits of one leader's catalog."""

    def __init__(
        self, settings: CurrentSettings, catalog: Catalog, *, now_ms: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._now_ms = now_ms
        self._open: deque[tuple[Index, Claim]] = deque()
        """By entry, in order."""
        self._unplaced: list[Claim] = []
        self._sum = Claim()
        """Of both."""
        self._weight = -1
        self._weighed_ms = 0
        self._grown = 0
        """Proposed since then."""
        self._looked_ms = -WEIGH_MS
        self._oldest_ms = 0

    @property
    def in_flight(self) -> int:
        """Commands that are proposed and not applied, as far as this leader's own."""
        self._settle()
        return len(self._open) + len(self._unplaced)

    def _settle(self) -> None:
        applied = self._catalog.applied_index
        while self._open and self._open[0][0] <= applied:
            self._sum.subtract(self._open.popleft()[1])

    def refusal(self, command: Command, *, caught_up: bool) -> CommandResult | None:
        """Why this command is not to be written, or None, and then it is claimed until `place` or
        `drop` is called.

        ``caught_up``: whether the catalog has all that earlier leaders committed; before, only the
        command's own form is looked at."""
        answer = malformed(command)
        if answer is None and caught_up:
            if not self.in_flight:
                answer = refused(self._catalog, command)
            if answer is None and (text := self._over(command)):
                answer = CommandResult(Code.LIMIT_REACHED, text)
        if answer is None:
            claim = self._claim(command)
            self._unplaced.append(claim)
            self._sum.update(claim)
            self._grown += claim[MAX_CATALOG_BYTES]
        return answer

    def place(self, index: Index) -> None:
        """The first command that `refusal` let pass and that has no place yet is the entry
        ``index``."""
        self._open.append((index, self._unplaced.pop(0)))

    def drop(self) -> None:
        """Those without a place were not proposed."""
        while self._unplaced:
            self._sum.subtract(self._unplaced.pop())

    def _claim(self, command: Command) -> Claim:
        catalog, topics = self._catalog, self._catalog.topics_state.by_name
        claim = Claim({MAX_CATALOG_BYTES: growth(catalog, command)})
        match command:
            case CreateTopic() if command.name not in topics:
                claim[MAX_TOPICS], claim[MAX_PARTITIONS] = 1, command.partitions
            case AddPartitions() if (known := topics.get(command.name)) is not None:
                claim[MAX_PARTITIONS] = max(0, command.partitions - known.partitions)
            case InitProducer() if command.producer_name not in catalog.producers.by_name:
                claim[MAX_PRODUCERS] = 1
            case CommitOffsets() | CommitProgress() | HoldRetention() | JoinGroup() if (
                command.consumer_group not in catalog.consumer_groups.by_name
            ):
                claim[MAX_CONSUMER_GROUPS] = 1
        return claim

    def _over(self, command: Command) -> str:
        """The limit that the command would exceed; empty where there is none."""
        catalog, taken, claim = self._catalog, self._sum, self._claim(command)
        there = {
            MAX_TOPICS: ("topics", len(catalog.topics_state.by_name)),
            MAX_PARTITIONS: ("partitions", len(catalog.partitions)),
            MAX_CONSUMER_GROUPS: ("consumer groups", len(catalog.consumer_groups.by_name)),
        }
        for setting, (what, applied) in there.items():
            if not claim[setting]:
                continue
            has, (limit, raised) = applied + taken[setting], self._limit(setting)
            if has + claim[setting] > limit:
                return (
                    f"the group has {has} {what} and may have {limit} in all: delete some, or "
                    f"raise {raised}"
                )
        if claim[MAX_PRODUCERS] and self._pushes_out_the_living(taken[MAX_PRODUCERS]):
            limit, raised = self._limit(MAX_PRODUCERS)
            return (
                f"the group has {limit} producer sessions, all of them in use "
                f"within the last hour: use fewer producers for longer, or raise {raised}"
            )
        more = claim[MAX_CATALOG_BYTES]
        if more and self._weigh(more) > self._settings.group.max_catalog_bytes:
            return (
                f"topics, groups, producers and transactions take about all of the "
                f"{self._settings.group.max_catalog_bytes} bytes "
                "that they may: delete some, or raise max_catalog_bytes: dledger settings set "
                "max_catalog_bytes=SIZE"
            )
        return ""

    def _limit(self, setting: str) -> tuple[int, str]:
        """How many there may be, and what says so: a quota of the group, else the setting."""
        name = setting.removeprefix("max_")
        quota = self._catalog.quotas.group_limit(name)
        if quota is None:
            limit: int = getattr(self._settings.group, setting)
            return limit, f"{setting}: dledger settings set {setting}=NUMBER"
        return quota, f"the limit: dledger quotas set --group-limit {name}=NUMBER"

    def _pushes_out_the_living(self, more: int) -> bool:
        """Whether a new session takes the place of one that a program may still use. The catalog
        itself forgets the longest unused ones where there are too many."""
        producers, catalog = self._catalog.producers, self._catalog
        if len(producers.sessions) + more < self._limit(MAX_PRODUCERS)[0]:
            return False
        if not producers.sessions:  # all of them are proposed just now
            return True
        if self._now_ms() >= self._looked_ms + WEIGH_MS:
            self._looked_ms = self._now_ms()
            self._oldest_ms = min(session.used_ms for session in producers.sessions.values())
        return catalog.clock_ms - self._oldest_ms < LIVE_MS

    def _weigh(self, more: int) -> int:
        """The catalog's weight with everything proposed and so much more; weighed anew when that is
        too much."""
        now = self._now_ms()
        is_old = self._weight < 0 or now - self._weighed_ms >= WEIGH_MS
        if self._weight < 0 or (
            is_old and self._weight + self._grown + more > self._settings.group.max_catalog_bytes
        ):
            self._weight, self._weighed_ms = weigh(self._catalog), now
            self._grown = self._sum[MAX_CATALOG_BYTES]
        return self._weight + self._grown + more
