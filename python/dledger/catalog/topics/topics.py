"""Topics by name and by id. A deleted topic's id and log id are never given again."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dledger.catalog.results import CommandResult
from dledger.config import check_name, nearest
from dledger.config.dynamic import topic_and_name
from dledger.errors import ConfigError
from dledger.protocol.messages.catalog_commands import AddPartitions, AlterSettings, CreateTopic
from dledger.protocol.messages.client import TopicInfo
from dledger.protocol.messages.codes import Code

MAX_PARTITIONS: Final = 10_000
"""Of one topic."""
MAX_RETIRED: Final = 100_000
"""Log ids of deleted topics that are remembered, so that a delayed repeat of a creation is
recognised."""
MAX_SETTING: Final = 4096
SETTINGS: Final = ("description", "type")
"""The settings with which a topic can be created. ``description``: a text for people, up to
MAX_SETTING characters; ``type``: ``raw`` (keys and values, the default) or ``typed`` (rows of
columns, see `dledger.catalog.topics.schemas`)."""
TYPES: Final = ("raw", "typed")


class Topics:
    """All topics, and which ids were used."""

    def __init__(self) -> None:
        self.by_name: dict[str, TopicInfo] = {}
        self.by_id: dict[int, TopicInfo] = {}
        self.partitions = 0
        """Of all topics together."""
        self.next_id = 1
        self.retired: dict[str, None] = {}
        self._log_ids: set[str] = set()

    def create(self, command: CreateTopic) -> tuple[CommandResult, TopicInfo | None]:
        """The answer, and the topic when it is new. Repeating a creation (same log id) is a
        success."""
        taken = self.taken(command)
        if taken is not None:
            return taken, None
        info = self.by_name.get(command.name)
        if info is not None:
            return CommandResult(Code.SUCCESS, "", _result(info)), None
        info = TopicInfo(
            name=command.name,
            topic_id=self.next_id,
            log_id=command.log_id,
            partitions=command.partitions,
            settings=dict(sorted(command.settings.items())),
        )
        self.next_id += 1
        self.add(info)
        return CommandResult(Code.SUCCESS, "", _result(info)), info

    def taken(self, command: CreateTopic) -> CommandResult | None:
        """Why the name or the log id cannot be had, or None."""
        name, info = command.name, self.by_name.get(command.name)
        if info is not None:
            if info.log_id == command.log_id:
                return None
            if info.partitions != command.partitions:
                message = (
                    f"topic {name!r} exists with {info.partitions} partitions, not "
                    f"{command.partitions}"
                )
                return CommandResult(Code.TOPIC_EXISTS, message)
            return (
                None
                if command.if_absent
                else CommandResult(Code.TOPIC_EXISTS, f"topic {name!r} exists")
            )
        if command.log_id in self.retired or command.log_id in self._log_ids:
            message = (
                f"log id {command.log_id!r} is or was another topic's; a new topic needs a new one"
            )
            return CommandResult(Code.TOPIC_EXISTS, message)
        return None

    def no_topic(self, name: str) -> CommandResult | None:
        """The answer where there is no such topic."""
        if name in self.by_name:
            return None
        return CommandResult(Code.UNKNOWN_TOPIC, f"there is no topic {name!r}")

    def no_setting(self, command: AlterSettings) -> CommandResult | None:
        """Why a setting has no topic that could have it, or None."""
        topics = {topic_and_name(name)[0] for name in (*command.values, *command.reset)}
        refused = (self.no_topic(topic) for topic in sorted(filter(None, topics)))
        return next(filter(None, refused), None)

    def no_growth(self, command: AddPartitions) -> CommandResult | None:
        """Why a topic cannot have so many partitions, or None."""
        old = self.by_name.get(command.name)
        if old is None:
            return self.no_topic(command.name)
        if not old.partitions <= command.partitions <= MAX_PARTITIONS:
            message = (
                f"topic {old.name!r} has {old.partitions} partitions and can have more, up to "
                f"{MAX_PARTITIONS}, but not {command.partitions}: records stay in their partition"
            )
            return CommandResult(Code.MALFORMED, message)
        return None

    def grow(self, command: AddPartitions) -> CommandResult:
        """The answer. As many partitions as there are is a success."""
        refused = self.no_growth(command)
        if refused is not None:
            return refused
        old = self.by_name[command.name]
        info = replace(old, partitions=command.partitions)
        self.add(info)
        return CommandResult(Code.SUCCESS, "", _result(info))

    def add(self, info: TopicInfo) -> None:
        known = self.by_id.get(info.topic_id)
        self.partitions += info.partitions - (0 if known is None else known.partitions)
        self.by_name[info.name] = self.by_id[info.topic_id] = info
        self._log_ids.add(info.log_id)

    def delete(self, name: str) -> TopicInfo | None:
        info = self.by_name.pop(name, None)
        if info is not None:
            del self.by_id[info.topic_id]
            self.partitions -= info.partitions
            self._log_ids.discard(info.log_id)
            self.retired[info.log_id] = None
            if len(self.retired) > MAX_RETIRED:
                del self.retired[next(iter(self.retired))]
        return info


def malformed_topic(command: CreateTopic) -> str:
    """The fault of a creation, or nothing."""
    try:
        check_name("topic", command.name)
        check_name("log id", command.log_id)
    except ConfigError as error:
        return str(error)
    if not 1 <= command.partitions <= MAX_PARTITIONS:
        return f"topic {command.name!r}: 1 to {MAX_PARTITIONS} partitions, not {command.partitions}"
    for setting, value in sorted(command.settings.items()):
        if setting not in SETTINGS:
            known = f"{nearest(setting, list(SETTINGS))}; known: {', '.join(SETTINGS)}"
            return f"topic {command.name!r}: no setting {setting!r}{known}"
        if len(value) > MAX_SETTING:
            return f"topic {command.name!r}: setting {setting!r} is over {MAX_SETTING} characters"
        if setting == "type" and value not in TYPES:
            return f"topic {command.name!r}: setting 'type' is {' or '.join(TYPES)}, not {value!r}"
    return ""


def _result(info: TopicInfo) -> dict[str, object]:
    return {"topic_id": info.topic_id, "log_id": info.log_id, "partitions": info.partitions}
