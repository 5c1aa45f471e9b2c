"""The schemas of typed topics, by topic and version. Versions count from 1; one that was given
stays for ever.

Two writers that change a topic's columns at once both name the version that they started from. The
first one is taken; the other one is told the present columns, and puts its own together with these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dledger.catalog.results import CommandResult, DataResult
from dledger.catalog.topics.partition import RAW, Partition
from dledger.catalog.topics.topics import Topics
from dledger.errors import ConfigError
from dledger.protocol.messages.catalog_commands import EvolveSchema
from dledger.protocol.messages.client import TopicInfo
from dledger.protocol.messages.codes import Code
from dledger.records.body.header import BodyHeader
from dledger.records.columns.evolution import is_evolution
from dledger.records.columns.types import Columns

MAX_VERSIONS: Final = 1000
MAX_ANSWER: Final = 512 << 10
"""Characters in one answer: it travels in a frame's header, which has an end."""


class Schemas:
    """JSON texts of each typed topic's versions, in order."""

    def __init__(self, topics: Topics, used: Mapping[int, Partition]) -> None:
        """``used``: see `Partitions`; one that is made later asks for the newest version."""
        self._topics = topics
        self._used = used
        self.by_topic: dict[int, list[str]] = {}

    def add(self, info: TopicInfo) -> None:
        """A new topic."""
        if info.typed:
            self.by_topic[info.topic_id] = []

    def drop(self, topic_id: int) -> None:
        self.by_topic.pop(topic_id, None)

    def newest(self, topic_id: int) -> int:
        """The newest version, 0 while there is none, `RAW` for a topic without schemas."""
        versions = self.by_topic.get(topic_id)
        return RAW if versions is None else len(versions)

    def behind(self, topic_id: int, version: int) -> tuple[tuple[str, ...], int]:
        """The schemas behind a version, one at least and as many as an answer has room for; and the
        newest one."""
        room = MAX_ANSWER
        some: list[str] = []
        for schema in self.by_topic.get(topic_id, ())[max(version, 0) :]:
            if some and len(schema) > room:
                break
            some.append(schema)
            room -= len(schema)
        return tuple(some), self.newest(topic_id)

    def evolve(self, command: EvolveSchema) -> CommandResult:
        """The answer says whether the columns were ``accepted`` (also when a repeat finds them
        there already), and the ``version`` and ``schema`` that they have or that stand in their
        way."""
        info = self._topics.by_name.get(command.topic)
        if info is None or info.log_id != command.log_id:
            text = (
                f"there is no topic {command.topic!r} with log id {command.log_id}; it was deleted"
            )
            return CommandResult(Code.UNKNOWN_TOPIC, text)
        versions = self.by_topic.get(info.topic_id)
        if versions is None:
            text = (
                f"topic {info.name!r} is raw: it has key, value and headers, and no columns "
                f"of its own"
            )
            return CommandResult(Code.SCHEMA_MISMATCH, text)
        try:
            columns = Columns.parse(command.schema)
        except ConfigError as error:
            return CommandResult(Code.MALFORMED, f"topic {info.name!r}: {error}")
        if columns.text in versions[max(command.base_version, 0) :]:
            return _answer(True, versions.index(columns.text) + 1, columns.text)
        if command.base_version != len(versions):
            return _answer(False, len(versions), versions[-1] if versions else "")
        if versions and not is_evolution(Columns.parse(versions[-1]), columns):
            text = (
                f"topic {info.name!r}: columns can be added and widened, nothing else; "
                f"version {len(versions)} stays"
            )
            return CommandResult(Code.SCHEMA_MISMATCH, text)
        if len(versions) >= MAX_VERSIONS:
            text = (
                f"topic {info.name!r} has {MAX_VERSIONS} versions of its schema: write to a "
                f"new topic"
            )
            return CommandResult(Code.MALFORMED, text)
        versions.append(columns.text)
        for number in range(info.partitions):
            if (partition := self._used.get(info.topic_id << 32 | number)) is not None:
                partition.newest_schema = len(versions)
        return _answer(True, len(versions), columns.text)


def _answer(accepted: bool, version: int, schema: str) -> CommandResult:
    return CommandResult(
        Code.SUCCESS, "", {"accepted": accepted, "version": version, "schema": schema}
    )


def refuse(header: BodyHeader, newest: int, topic: str) -> DataResult | None:
    """None when a batch is of its topic's kind, else the answer to it.

    Args:
        newest: the topic's newest version, `RAW` for a raw one.
    """
    if newest == RAW:
        if not header.schema_version:
            return None
        text = (
            f"topic {topic!r} is raw, and the batch has columns of schema version "
            f"{header.schema_version}"
        )
    elif not header.schema_version:
        text = (
            f"topic {topic!r} is typed, and the batch has plain records: write a frame of its "
            f"columns"
        )
    elif header.schema_version <= newest:
        return None
    else:
        text = f"topic {topic!r} has schema versions 1 to {newest}, not {header.schema_version}"
    return DataResult(Code.SCHEMA_MISMATCH, -1, text)
