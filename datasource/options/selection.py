"""The selection of a read: named topics, topics whose name fits a pattern, or named partitions.
Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dledger.config import AUDIT_TOPIC, check_name
from dledger.datasource.options.patterns import java_pattern, matches
from dledger.errors import ConfigError, OffsetOutOfRange

EXAMPLE: Final = '{"orders": [0, 1], "payments": [0]}'
WAYS: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class Selection:
    """One of the three; empty when no option says it."""

    names: tuple[str, ...] = ()
    """Of ``subscribe`` and ``assign``."""
    pattern: str = ""
    """Of ``subscribePattern``, for `dledger.datasource.options.patterns.matches`."""
    assigned: dict[str, frozenset[int]] = field(default_factory=dict)
    """Of ``assign``: the partitions of each topic; without it, all."""

    @property
    def given(self) -> bool:
        return bool(self.names or self.pattern)

    def fits(self, name: str) -> bool:
        """Whether a topic of this name is read. That of the audit log is by its name alone."""
        if not self.pattern:
            return name in self.names
        return name != AUDIT_TOPIC and matches(self.pattern, name)

    def part(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """The partitions that are read, of those there are.

        Raises:
            OffsetOutOfRange: one that is assigned is not there.
        """
        if topic not in self.assigned:
            return dict(offsets)
        if missing := self.assigned[topic] - offsets.keys():
            raise OffsetOutOfRange(
                f"option 'assign' names partition {min(missing)} of topic {topic!r}, which has "
                f"partitions 0 to {len(offsets) - 1}"
            )
        return {
            partition: offset
            for partition, offset in offsets.items()
            if partition in self.assigned[topic]
        }


def parse_selection(values: Mapping[str, str], topic: str) -> Selection:
    """Of the options; ``topic`` is the option of that name, in a read another word for
    ``subscribe``.

    Raises:
        ConfigError: more than one names topics, or one has an impossible value.
    """
    ways = [way for way in WAYS if values.get(way, "").strip()]
    if len(ways) > 1:
        raise ConfigError(
            f"{ways[0]!r} and {ways[1]!r} both say what to read: give one of {', '.join(WAYS)}"
        )
    if topic and ways and ways != ["subscribe"]:
        raise ConfigError(
            f"{ways[0]!r} and 'topic' both say what to read: leave 'topic' away in a read"
        )
    if "subscribePattern" in ways:
        return Selection(pattern=java_pattern("subscribePattern", values["subscribePattern"]))
    if "assign" in ways:
        assigned = _assigned(values["assign"])
        return Selection(tuple(assigned), assigned=assigned)
    names = [name for part in values.get("subscribe", topic).split(",") if (name := part.strip())]
    for name in names:
        check_name("topic", name)
    if topic and ways and names != [topic]:
        raise ConfigError(
            f"'subscribe' is {values['subscribe']!r} but 'topic' is {topic!r}: a read needs only "
            f"one"
        )
    return Selection(tuple(dict.fromkeys(names)))


def _assigned(text: str) -> dict[str, frozenset[int]]:
    wrong = ConfigError(
        f"option 'assign' is {text!r}: write the partitions of each topic, as in {EXAMPLE}"
    )
    try:
        data = json.loads(text)
        assigned = {
            check_name("topic", topic): frozenset(partitions) for topic, partitions in data.items()
        }
    except ConfigError:
        raise
    except (ValueError, TypeError, AttributeError) as error:
        raise wrong from error
    for partitions in assigned.values():
        if not partitions or not all(type(one) is int and one >= 0 for one in partitions):
            raise wrong
    if not assigned:
        raise wrong
    return assigned
