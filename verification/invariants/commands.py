"""The effects of committed commands, followed apart from any catalog: I27 topics and consumer
groups, I28 stages, I31 version, settings and list of members.

A node's catalog, also one that was restored or taken over, has the topics and groups that the
commands up to there make. An acknowledged command is among them at that moment: its group has these
offsets, its topic is gone. A stage ends by a commit, by an abort, or when its time is over, never
sooner.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dledger.catalog.results import CommandResult
from dledger.catalog.versions import too_new
from dledger.protocol.messages.catalog_commands import (
    AlterSettings,
    ChangeMembers,
    Command,
    CommitConsumed,
    CommitConsumedTransaction,
    CommitOffsets,
    CommitProgress,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    Expire,
    HoldRetention,
    JoinGroup,
    OpenStage,
    UpgradeGroup,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import Entry
from dledger.protocol.messages.membership import Member, ids_of
from dledger.protocol.wire import decode_command
from dledger.records.body.header import BODY_HEADER_SIZE
from verification.invariants.broken import Broken
from verification.invariants.view import WatchedNode

LEAST_SHARE = 0.85
"""Of a stage's time-out that passes at least: a leader's monotonic clock may be a tenth too
fast."""
SLACK_MS = 200


@dataclass(slots=True)
class Group:
    """A consumer group: whether it holds retention back, and (topic id, partition) -> offset."""

    holds: bool = False
    offsets: dict[tuple[int, int], int] = field(default_factory=dict)


class State:
    """Topics by name, with their ids, and groups by name."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self.groups: dict[str, Group] = {}
        self.commits: dict[str, int] = {}
        """Of members of groups: the number of the last one."""
        self.version = 0
        self.settings: dict[str, str] = {}
        self.members: tuple[Member, ...] = ()
        """The newest list by a command; empty: none has one."""

    def take(self, command: Command, result: CommandResult) -> None:
        """A command that succeeded."""
        match command:
            case CreateTopic():
                self.topics[command.name] = int(result.result["topic_id"])
            case DeleteTopic():
                gone = self.topics.pop(command.name)
                for group in self.groups.values():
                    group.offsets = {
                        place: at for place, at in group.offsets.items() if place[0] != gone
                    }
            case CommitOffsets() | CommitProgress():
                group = self.groups.setdefault(command.consumer_group, Group())
                for topic, spans in command.offsets.items():
                    group.offsets |= {
                        (self.topics[topic], number): at for number, at in spans.items()
                    }
            case JoinGroup():
                self.groups.setdefault(command.consumer_group, Group())
            case CommitConsumed():
                self._consumed(command)
            case CommitConsumedTransaction() if not result.result.get("repeated"):
                self._consumed(command.consumed)
            case HoldRetention():
                if command.hold or command.consumer_group in self.groups:
                    self.groups.setdefault(command.consumer_group, Group()).holds = command.hold
            case DeleteGroup():
                self.groups.pop(command.consumer_group, None)
            case UpgradeGroup():
                self.version = max(self.version, command.version)
            case AlterSettings():
                kept = self.settings | command.values
                self.settings = {name: kept[name] for name in kept if name not in command.reset}
            case ChangeMembers():
                self.members = command.members
            case _:
                return

    def _consumed(self, command: CommitConsumed) -> None:
        if command.sequence > self.commits.get(command.member_id, -1):
            self.commits[command.member_id] = command.sequence
            for topic, spans in command.offsets.items():
                self.groups[command.consumer_group].offsets |= {
                    (self.topics[topic], number): at for number, at in spans.items()
                }


class Commands:
    """All commands that succeeded, and the stages that are open."""

    def __init__(self) -> None:
        self._done: list[tuple[int, Command, CommandResult]] = []
        self.stages: dict[int, tuple[int, int]] = {}
        """Stage -> when it was written into a log first, and its time-out, in ms."""

    def applied(
        self, view: WatchedNode, entry: Entry, result: CommandResult, written_ms: int, now_ms: int
    ) -> None:
        """The first node has applied a command."""
        if result.code is not Code.SUCCESS:
            return
        command = decode_command(entry.body[BODY_HEADER_SIZE:])
        if text := too_new(command, view.catalog.version.active):
            raise Broken("I31", f"{view} applies entry {entry.index}: {text}")
        self._done.append((entry.index, command, result))
        if isinstance(command, OpenStage) and "stage_id" in result.result:
            self.stages[result.result["stage_id"]] = (written_ms, command.timeout_ms)
        for stage in self.stages.keys() - view.catalog.transactions.stages.keys():
            opened_ms, timeout_ms = self.stages.pop(stage)
            if (
                isinstance(command, Expire)
                and now_ms - opened_ms < LEAST_SHARE * timeout_ms - SLACK_MS
            ):
                after = now_ms - opened_ms
                raise Broken(
                    "I28",
                    f"{view}: stage {stage} with a time-out of {timeout_ms} ms ends after {after} "
                    f"ms",
                )

    def as_of(self, index: int) -> State:
        """The state that the commands up to that entry make."""
        state = State()
        for at, command, result in self._done:
            if at > index:
                break
            state.take(command, result)
        return state

    def check(self, view: WatchedNode) -> None:
        """I27: the catalog of a node has what the commands make."""
        catalog = view.catalog
        state = self.as_of(catalog.applied_index)
        topics = {name: info.topic_id for name, info in catalog.topics_state.by_name.items()}
        if topics != state.topics:
            raise Broken("I27", f"{view} has the topics {topics}, the commands make {state.topics}")
        mine = catalog.version.active, catalog.settings.values, ids_of(catalog.group_list.members)
        made = state.version, state.settings, ids_of(state.members)
        if mine != made:
            what = "version, settings and members"
            raise Broken("I31", f"{view} has {what} {mine}, the commands make {made}")
        for name in state.groups.keys() | catalog.consumer_groups.by_name.keys():
            group, wanted = catalog.consumer_groups.by_name.get(name), state.groups.get(name)
            if group is None or wanted is None:
                raise Broken(
                    "I27",
                    f"{view} has the group {name}: {group is not None}, by the commands {wanted}",
                )
            offsets = {
                (topic, number): at
                for topic, spans in group.offsets.items()
                for number, at in spans.items()
            }
            if (group.holds, offsets) != (wanted.holds, wanted.offsets):
                raise Broken(
                    "I27",
                    f"{view} has group {name} at {offsets}, holds {group.holds}; it is {wanted}",
                )

    def progress_acknowledged(self, name: str, topic: str, partition: int, offset: int) -> None:
        """I27: a client was told that its group has processed up to this offset; no other client
        commits for that group."""
        state = self.as_of(1 << 62)
        group, topic_id = state.groups.get(name), state.topics.get(topic)
        if (
            group is None
            or topic_id is None
            or group.offsets.get((topic_id, partition), -1) != offset
        ):
            raise Broken(
                "I27",
                f"group {name} was told that {topic}/{partition} is processed up to {offset}: "
                f"{group}",
            )

    def deletion_acknowledged(self, topic: str) -> None:
        """I27: a client was told that its topic is deleted; no client creates that topic again."""
        if topic in self.as_of(1 << 62).topics:
            raise Broken("I27", f"topic {topic} is there although its deletion was acknowledged")

    def held_from(self, view: WatchedNode) -> int | None:
        """The first entry with a record that a group wants, which holds retention back; None: no
        group wants any."""
        wanted: list[int] = []
        for group in self.as_of(view.catalog.applied_index).groups.values():
            for (topic_id, number), offset in group.offsets.items() if group.holds else ():
                partition = view.catalog.partitions[topic_id << 32 | number]
                rows = partition.placed(0, 1 << 62)
                wanted += [index for base, count, index, _ in rows if base + count > offset]
        return min(wanted, default=None)
