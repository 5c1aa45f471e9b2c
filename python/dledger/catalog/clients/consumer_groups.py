"""Consumer groups: how far each has got in which topics, and which of them hold retention back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dledger.catalog.results import CommandResult
from dledger.catalog.topics.partition import Partition
from dledger.catalog.topics.topics import Topics
from dledger.protocol.messages.catalog_commands import (
    CommitOffsets,
    CommitProgress,
    DeleteGroup,
    HoldRetention,
)
from dledger.protocol.messages.codes import Code

_DONE: Final = CommandResult(Code.SUCCESS)


class Hold(NamedTuple):
    """The first records that a group still wants: no entry from ``index`` on can go."""

    index: int  # type: ignore[assignment]  # tuple.index is not needed here
    group: str
    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class ConsumerGroup:
    """The offsets that one group has processed."""

    offsets: dict[int, dict[int, int]] = field(default_factory=dict)
    """topic id -> partition -> next offset."""
    committed_ms: int = 0
    """When it said so last, in ms since 1970 by the leader's clock; 0: before that was noted."""
    holds: bool = False
    """Records that it has not processed are kept over their time, as far as an operator allows."""


class Groups:
    """All consumer groups by name."""

    def __init__(self, topics: Topics, partition: Callable[[int, int], Partition]) -> None:
        """``partition(topic id, number)`` raises where there is none."""
        self._topics = topics
        self._partition = partition
        self.by_name: dict[str, ConsumerGroup] = {}

    def commit(self, command: CommitOffsets | CommitProgress) -> CommandResult:
        """All or nothing: a refused commit changes nothing."""
        refused = self.no_partition(command)
        if refused is not None:
            return refused
        checked: list[tuple[int, int, int]] = []
        for name, offsets in command.offsets.items():
            info = self._topics.by_name[name]
            for number, offset in offsets.items():
                end = self._partition(info.topic_id, number).next_offset
                if not 0 <= offset <= end:
                    text = (
                        f"{name}/{number} ends at offset {end}; {offset} cannot have been processed"
                    )
                    return CommandResult(Code.OFFSET_OUT_OF_RANGE, text)
                checked.append((info.topic_id, number, offset))
        group = self.by_name.setdefault(command.consumer_group, ConsumerGroup())
        for topic_id, number, offset in checked:
            group.offsets.setdefault(topic_id, {})[number] = offset
        # the older command never noted it, and a replay must not either
        if isinstance(command, CommitProgress):
            group.committed_ms = command.time_ms
        return _DONE

    def no_partition(self, command: CommitOffsets | CommitProgress) -> CommandResult | None:
        """The answer where a topic or partition is not there, or another one by now."""
        log_ids = command.log_ids if isinstance(command, CommitProgress) else {}
        for name, offsets in command.offsets.items():
            info = self._topics.by_name.get(name)
            if info is None:
                return CommandResult(Code.UNKNOWN_TOPIC, f"there is no topic {name!r}")
            log_id = log_ids.get(name, info.log_id)
            if log_id != info.log_id:
                text = (
                    f"topic {name!r} was deleted and created again: its log id is "
                    f"{info.log_id}, not {log_id}"
                )
                return CommandResult(Code.UNKNOWN_TOPIC, text)
            for number in offsets:
                if not 0 <= number < info.partitions:
                    text = f"topic {name!r} has partitions 0 to {info.partitions - 1}, not {number}"
                    return CommandResult(Code.UNKNOWN_TOPIC, text)
        return None

    def hold(self, command: HoldRetention) -> CommandResult:
        """A group holds retention back, or lets go; a group that does not exist can only let go."""
        if command.hold:
            self.by_name.setdefault(command.consumer_group, ConsumerGroup()).holds = True
        elif command.consumer_group in self.by_name:
            self.by_name[command.consumer_group].holds = False
        return _DONE

    def delete(self, command: DeleteGroup) -> CommandResult:
        """Forget a group; without effect when there is none."""
        self.by_name.pop(command.consumer_group, None)
        return _DONE

    def forget_topic(self, topic_id: int) -> None:
        for group in self.by_name.values():
            group.offsets.pop(topic_id, None)

    def offsets(self, name: str) -> dict[str, dict[int, int]]:
        """topic -> partition -> offset; empty when there is no such group."""
        group = self.by_name.get(name)
        if group is None:
            return {}
        by_id = self._topics.by_id
        return {
            by_id[topic_id].name: dict(sorted(spans.items()))
            for topic_id, spans in group.offsets.items()
        }

    def holds(self) -> list[Hold]:
        """The first records that each group with a retention hold still wants, the oldest entry
        first. This node's view: it knows nothing of records that it has not kept."""
        found: list[Hold] = []
        for name, group in self.by_name.items():
            needed: list[Hold] = []
            for topic_id, spans in group.offsets.items() if group.holds else ():
                topic = self._topics.by_id[topic_id].name
                for number, offset in spans.items():
                    index = self._partition(topic_id, number).needed_from(offset)
                    if index is not None:
                        needed.append(Hold(index, name, topic, number, offset))
            if needed:
                found.append(min(needed))
        return sorted(found)
