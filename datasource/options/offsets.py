"""Offsets as options say them and as Spark's checkpoint keeps them. Pure.

The checkpoint's JSON::

    {"v": 1, "logs": {"orders": {"id": "<log id>", "p": {"0": 123}}}, "group": "<group id>"}

The log id tells a topic from one of the same name that was created later, the group's id, where it
has one, tells the group from another one at its path or addresses. Two more keys close a gap in
Spark's API, which asks a source for its first offset several times and never keeps the answer: the
first offset carries ``"init": true``, and the end of the first batch, which Spark does keep,
carries in ``"from"`` where that batch starts. Topics and partitions that the query has read and
does not read now keep their places in ``"unread"``, which looks like ``"logs"``: when the options
name them again, the query goes on there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dledger.errors import ConfigError

EARLIEST: Final = -2
LATEST: Final = -1
FORMAT: Final = 1

Positions = dict[str, dict[int, int]]
"""topic -> partition -> offset."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """One of Spark's offsets: how far each partition of each topic has been read."""

    logs: Positions
    ids: dict[str, str]
    """topic -> log id."""
    init: bool = False
    """True: a first offset, resolved again at each start; only ``begin`` of the batch's end
    counts."""
    begin: Positions = field(default_factory=dict)
    """In a batch's end: where it starts, for partitions whose start is not in the offset before."""
    group: str = ""
    """Id of the group that it was taken from; empty where that one, or the release that wrote it,
    is older than ids."""
    unread: Positions = field(default_factory=dict)
    """Places of topics and partitions that were read once, and are not read now."""
    unread_ids: dict[str, str] = field(default_factory=dict)
    """topic -> log id, of all topics in ``unread``."""

    def as_json(self) -> dict[str, Any]:
        """The form that Spark keeps. The same offset is always the same text: Spark compares
        texts."""
        data: dict[str, Any] = {"v": FORMAT, "logs": _logs(self.logs, self.ids)}
        if self.init:
            data["init"] = True
        if self.begin:
            data["from"] = {t: _texts(self.begin[t]) for t in sorted(self.begin)}
        if self.group:
            data["group"] = self.group
        if self.unread:
            data["unread"] = _logs(self.unread, self.unread_ids)
        return data

    def known(self) -> StreamOffset:
        """The same offset with all places that it knows, read or not, as if all of them were
        read."""
        logs = {t: self.unread.get(t, {}) | self.logs.get(t, {}) for t in self.unread | self.logs}
        return replace(self, logs=logs, ids=self.unread_ids | self.ids, unread={}, unread_ids={})

    @staticmethod
    def from_json(data: dict[str, Any]) -> StreamOffset:
        """Read a checkpoint's offset.

        Raises:
            ConfigError: it was written by something else, or by a newer release.
        """
        try:
            if data["v"] != FORMAT:
                raise ConfigError(
                    f"the checkpoint's offsets have format {data['v']}; this release reads {FORMAT}"
                )
            logs, ids = _places(data["logs"])
            begin = {t: _numbers(p) for t, p in data.get("from", {}).items()}
            unread, unread_ids = _places(data.get("unread", {}))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(
                "the checkpoint holds offsets that dledger did not write: "
                f"{json.dumps(data)[:200]}; give this query a checkpointLocation of its own"
            ) from error
        group, init = str(data.get("group", "")), bool(data.get("init", False))
        return StreamOffset(logs, ids, init, begin, group, unread, unread_ids)


def is_of_kafka(data: Any) -> bool:
    """Whether a checkpoint's offset is of Spark's Kafka connector: topic -> partition -> offset."""
    try:
        return bool(data) and all(_numbers(partitions) for partitions in data.values())
    except (TypeError, AttributeError, ValueError):
        return False


def _logs(positions: Positions, ids: dict[str, str]) -> dict[str, Any]:
    return {t: {"id": ids[t], "p": _texts(positions[t])} for t in sorted(positions)}


def _places(logs: dict[str, Any]) -> tuple[Positions, dict[str, str]]:
    return {t: _numbers(log["p"]) for t, log in logs.items()}, {
        t: str(log["id"]) for t, log in logs.items()
    }


def _texts(offsets: dict[int, int]) -> dict[str, int]:
    numbers = sorted(offsets)
    return dict(zip(map(str, numbers), map(offsets.__getitem__, numbers), strict=True))


def _numbers(offsets: dict[str, int]) -> dict[int, int]:
    return dict(zip(map(int, offsets), map(int, offsets.values()), strict=True))


def without(places: Mapping[int, int], others: Mapping[int, int]) -> dict[int, int]:
    """The places of the partitions that the others do not have; nearly always there are none."""
    if places.keys() <= others.keys():
        return {}
    return {p: at for p, at in places.items() if p not in others}


def batch_start(start: StreamOffset, end: StreamOffset) -> Positions:
    """Where the batch that ends at ``end`` starts, the same at every replay.

    Raises:
        ConfigError: neither offset says it.
    """
    begins: Positions = {}
    for topic, partitions in end.logs.items():
        same = start.ids.get(topic) == end.ids[topic]  # a topic that was created again starts anew
        known = start.logs.get(topic, {}) if same and not start.init else {}
        # A first offset is asked for anew after a crash; by then "latest" is somewhere else.
        places = end.begin.get(topic, {}) | known
        if missing := partitions.keys() - places.keys():
            raise ConfigError(
                f"the checkpoint does not say where topic {topic!r}, partition {min(missing)} "
                "starts; give this query a new checkpointLocation"
            )
        begins[topic] = dict(zip(partitions, map(places.__getitem__, partitions), strict=True))
    return begins
