"""Dynamic settings: those that a group may change while it runs, as replicated state. Their values
are texts, as ``--set`` and the log have them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeVar

from dledger.config.names import check_name, nearest
from dledger.config.settings import LEAST_CATCH_UP, MIB, GroupConfig, NodeConfig
from dledger.errors import ConfigError
from dledger.types import NodeId

C = TypeVar("C", GroupConfig, NodeConfig)
MOST: Final = (1 << 62) - 1
HOUR_MS: Final = 3_600_000
MAX_TEXT: Final = 1024
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_HOUR: Final = "([01]?[0-9]|2[0-3])"
_HOURS: Final = re.compile(f"({_HOUR}(;{_HOUR})*)?")


@dataclass(frozen=True, slots=True)
class Numbers:
    """The whole numbers that a dynamic setting may be."""

    least: int = 0
    most: int = MOST
    or_zero: bool = False
    """0 is one of them, too: no limit."""

    def __contains__(self, number: int) -> bool:
        return self.least <= number <= self.most or (self.or_zero and number == 0)

    def __str__(self) -> str:
        return f"{'0, or one ' if self.or_zero else ''}from {self.least} to {self.most}"


class Hours:
    """Hours of the day, as ``delete_when`` has them."""


class Nodes:
    """Ids of nodes, with commas."""


DYNAMIC: Final[Mapping[str, Numbers | Hours | Nodes]] = {
    "ack_timeout_ms": Numbers(100, HOUR_MS),
    "push_timeout_ms": Numbers(100, HOUR_MS),
    "catch_up_bytes_per_s": Numbers(LEAST_CATCH_UP, or_zero=True),
    "pending_bytes": Numbers(MIB),
    "max_topics": Numbers(1),
    "max_partitions": Numbers(1),
    "max_consumer_groups": Numbers(1),
    "max_producers": Numbers(1, 100_000),
    "max_catalog_bytes": Numbers(MIB),
    "max_transfer_lag": Numbers(),
    "preferred_leaders": Nodes(),
    "retention_ms": Numbers(),
    "retention_bytes": Numbers(),
    "hold_retention_ms": Numbers(),
    "hold_retention_bytes": Numbers(),
    "member_retention_ms": Numbers(),
    "member_retention_bytes": Numbers(),
    "delete_when": Hours(),
}
"""By name; those of `GroupConfig` come first."""
OF_TOPICS: Final[Mapping[str, Numbers]] = {"retention_ms": Numbers(), "retention_bytes": Numbers()}
"""Those that a topic may have of its own, called ``TOPIC/NAME``: no topic's name has a slash."""
_ELECTS: Final = "a wrong value would keep the group from electing the leader that mends it"
_FRAMES: Final = "it bounds the frames and buffers of connections, which every node makes at start"
_FILES: Final = "files of the log are made with it, and the place of each entry follows from it"
NOT_DYNAMIC: Final[Mapping[str, str]] = {
    "group": "it is the group's identity",
    "members": "they are no setting of a running group",
    "heartbeat_ms": _ELECTS,
    "election_ms": _ELECTS,
    "takeover_ms": _ELECTS,
    "vote_interval_ms": _ELECTS,
    "push_window_bytes": _FRAMES,
    "push_batch_bytes": _FRAMES,
    "max_body_bytes": _FRAMES,
    "segment_bytes": _FILES,
    "index_file_bytes": _FILES,
    "commit_log": "it says what the files of the log hold",
    "founding_version": "it counts when the group is founded",
}
"""The other settings of a group, with the reason."""


def topic_and_name(name: str) -> tuple[str, str]:
    """The topic whose setting this is, empty for one of the group, and its name there."""
    topic, _, plain = name.rpartition("/")
    return topic, plain


def of_topic(topic: str, name: str) -> str:
    """The inverse of `topic_and_name`."""
    return f"{topic}/{name}"


def unknown_setting(name: str) -> str:
    """Why this is no dynamic setting; empty where it is one."""
    if name in DYNAMIC:
        return ""
    if "/" in name:
        return _unknown_of_topic(*topic_and_name(name))
    if (why := NOT_DYNAMIC.get(name)) is not None:
        return f"{name} does not change at run time: {why}"
    if name in {one.name for one in fields(NodeConfig)}:
        return f"{name} is each node's own: change it in the node's file of settings"
    return f"there is no dynamic setting {name[:40]!r}{nearest(name[:40], [*DYNAMIC])}; " + (
        f"there are {', '.join(DYNAMIC)}"
    )


def _unknown_of_topic(topic: str, name: str) -> str:
    try:
        check_name("topic", topic)
    except ConfigError as error:
        return str(error)
    if name in OF_TOPICS:
        return ""
    known = f"{nearest(name[:40], [*OF_TOPICS])}; there are {', '.join(OF_TOPICS)}"
    return f"topic {topic!r}: no setting {name[:40]!r} that changes at run time{known}"


def wrong_value(name: str, text: str) -> str:
    """Why a dynamic setting cannot be set to this; empty where it can."""
    if len(text) > MAX_TEXT:
        return f"{name}: {text[:40]!r}... has more than {MAX_TEXT} characters"
    match DYNAMIC[topic_and_name(name)[1]]:
        case Numbers() as numbers:
            if not _NUMBER.fullmatch(text) or int(text) not in numbers:
                return f"{name}: {text[:40]!r} is no whole number {numbers}"
        case Hours():
            if not _HOURS.fullmatch(text):
                return f"{name}: {text[:40]!r}: write hours, as in '04' or '04;16'"
        case Nodes():
            return _wrong_nodes(name, _nodes(text))
    return ""


def _wrong_nodes(name: str, nodes: tuple[NodeId, ...]) -> str:
    if len(set(nodes)) != len(nodes):
        return f"{name}: name each node once, as in 'n0,n1'"
    try:
        for node in nodes:
            check_name("node id", node)
    except ConfigError as error:
        return str(error)
    return ""


def _nodes(text: str) -> tuple[NodeId, ...]:
    return tuple(NodeId(part) for part in text.split(",") if part)


def _value_of(name: str, text: str) -> Any:
    """A node's own value may be one that `wrong_value` refuses: files have wider bounds."""
    kind = DYNAMIC[name]
    if isinstance(kind, Nodes):
        return _nodes(text)
    return int(text) if isinstance(kind, Numbers) else text


def text_of(value: Any) -> str:
    """The text of a value, as `with_texts` takes it back."""
    return ",".join(value) if isinstance(value, tuple) else str(value)


def texts_of(config: GroupConfig | NodeConfig) -> dict[str, str]:
    """The dynamic settings among those of a config."""
    names = {one.name for one in fields(config)}
    return {name: text_of(getattr(config, name)) for name in DYNAMIC if name in names}


def with_texts(config: C, texts: Mapping[str, str]) -> C:
    """A config with those of the dynamic settings that it has."""
    names = {one.name for one in fields(config)} & DYNAMIC.keys()
    values = {name: _value_of(name, text) for name, text in texts.items() if name in names}
    return replace(config, **values)


def check_preferred(config: GroupConfig) -> None:
    """Raises `ConfigError` where a file prefers a leader that is none of its members. What the
    group keeps goes by its own list, which may have others."""
    if not set(config.preferred_leaders) <= set(config.members):
        raise ConfigError(
            f"preferred leaders {config.preferred_leaders} are not all members {config.members}"
        )
