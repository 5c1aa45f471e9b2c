"""Offsets as options say them and as Spark's checkpoint keeps them. Pure.

The checkpoint's JSON::

    {"v": 1, "logs": {"orders": {"id": "<log id>", "p": {"0": 123}}}, "group": "<group id>"}

The log id tells a topic from one of the same name that was created later, the group's id, where it has one, tells the
group from another one at its path or addresses. Two more keys close a gap in Spark's API, which asks a source for its
first offset several times and never keeps the answer: the first offset carries ``"init": true``, and the end of the
first batch, which Spark does keep, carries in ``"from"`` where that batch starts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
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
    """True: a first offset, resolved again at each start; only ``begin`` of the batch's end counts."""
    begin: Positions = field(default_factory=dict)
    """In a batch's end: where it starts, for partitions whose start is not in the offset before."""
    group: str = ""
    """Id of the group that it was taken from; empty where that one, or the release that wrote it, is older than ids."""

    def as_json(self) -> dict[str, Any]:
        """What Spark keeps. The same offset is always the same text: Spark compares texts."""
        data: dict[str, Any] = {
            "v": FORMAT,
            "logs": {t: {"id": self.ids[t], "p": _texts(self.logs[t])} for t in sorted(self.logs)},
        }
        if self.init:
            data["init"] = True
        if self.begin:
            data["from"] = {t: _texts(self.begin[t]) for t in sorted(self.begin)}
        if self.group:
            data["group"] = self.group
        return data

    @staticmethod
    def from_json(data: dict[str, Any]) -> StreamOffset:
        """Read a checkpoint's offset.

        Raises:
            ConfigError: it was written by something else, or by a newer release.
        """
        try:
            if data["v"] != FORMAT:
                raise ConfigError(f"the checkpoint's offsets have format {data['v']}; this release reads {FORMAT}")
            logs = {t: _numbers(log["p"]) for t, log in data["logs"].items()}
            ids = {t: str(log["id"]) for t, log in data["logs"].items()}
            begin = {t: _numbers(p) for t, p in data.get("from", {}).items()}
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(
                f"the checkpoint holds offsets that dledger did not write: {json.dumps(data)[:200]}; "
                "give this query a checkpointLocation of its own"
            ) from error
        return StreamOffset(logs, ids, bool(data.get("init", False)), begin, str(data.get("group", "")))


def _texts(offsets: dict[int, int]) -> dict[str, int]:
    return {str(p): offsets[p] for p in sorted(offsets)}


def _numbers(offsets: dict[str, int]) -> dict[int, int]:
    return {int(p): int(o) for p, o in offsets.items()}


def batch_start(start: StreamOffset, end: StreamOffset) -> Positions:
    """Where the batch that ends at ``end`` starts, the same at every replay.

    Raises:
        ConfigError: neither offset says it.
    """
    begins: Positions = {}
    for topic, partitions in end.logs.items():
        same = start.ids.get(topic) == end.ids[topic]  # a topic that was created again starts anew
        known = start.logs.get(topic, {}) if same and not start.init else {}
        said = end.begin.get(topic, {})
        # A first offset is asked for anew after a crash; by then "latest" is somewhere else.
        begins[topic] = {p: known[p] if p in known else said[p] for p in partitions if p in known or p in said}
        missing = partitions.keys() - begins[topic].keys()
        if missing:
            raise ConfigError(
                f"the checkpoint does not say where topic {topic!r}, partition {min(missing)} starts; "
                "give this query a new checkpointLocation"
            )
    return begins


__all__ = ["EARLIEST", "LATEST", "Positions", "StreamOffset", "batch_start"]
