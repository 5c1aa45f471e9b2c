"""Offsets as options say them and as Spark's checkpoint keeps them. Pure.

The checkpoint's JSON::

    {"v": 1, "logs": {"orders": {"id": "<log id>", "p": {"0": 123}}}}

The log id tells a topic from one of the same name that was created later. Two more keys close a gap in Spark's API,
which asks a source for its first offset several times and never keeps the answer: the first offset carries
``"init": true``, and the end of the first batch, which Spark does keep, carries in ``"from"`` where that batch starts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from dledger.errors import ConfigError, OffsetOutOfRange

EARLIEST: Final = -2
LATEST: Final = -1
EXAMPLE: Final = '{"orders": {"0": 23, "1": -2}}'
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
        return StreamOffset(logs, ids, bool(data.get("init", False)), begin)


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
        known = {} if start.init else start.logs.get(topic, {})
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


def parse_positions(option: str, text: str) -> str | Positions:
    """``earliest``, ``latest``, or offsets by topic and partition as in Spark's Kafka connector.

    Raises:
        ConfigError: it is neither, with an example of what to write.
    """
    word = text.strip().lower()
    if word in {"earliest", "latest"}:
        return word
    hint = f"write earliest, latest or offsets as in {EXAMPLE} (-2 earliest, -1 latest)"
    try:
        data = json.loads(text)
        positions = {str(t): _numbers(p) for t, p in data.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"option {option!r} is {text!r}: {hint}") from error
    for topic, partitions in positions.items():
        bad = [o for o in partitions.values() if o < EARLIEST]
        if bad or not partitions or min(partitions) < 0:
            what = f"offset {bad[0]}" if bad else "no partition or a negative one"
            raise ConfigError(f"option {option!r} has {what} for topic {topic!r}: {hint}")
    return positions


def resolve(option: str, wanted: str | Positions, begins: Positions, ends: Positions) -> Positions:
    """Turn what an option says into offsets that exist; ``begins`` and ``ends`` hold every partition read.

    Raises:
        ConfigError: partitions are missing from the JSON, or it names some that are not there.
        OffsetOutOfRange: an offset is behind the end of its partition.
    """
    if isinstance(wanted, str):
        chosen = begins if wanted == "earliest" else ends
        return {t: dict(p) for t, p in chosen.items()}
    _check_same_partitions(option, wanted, ends)
    resolved: Positions = {}
    for topic, partitions in ends.items():
        for partition, end in partitions.items():
            offset = wanted[topic][partition]
            begin = begins[topic][partition]
            if offset > end:
                raise OffsetOutOfRange(
                    f"option {option!r}: offset {offset} of topic {topic!r}, partition {partition} is not there yet; "
                    f"the partition has offsets from {begin} up to, not including, {end}",
                    begin,
                    end,
                )
            real = begin if offset == EARLIEST else end if offset == LATEST else offset
            resolved.setdefault(topic, {})[partition] = real
    return resolved


def _check_same_partitions(option: str, wanted: Positions, there: Positions) -> None:
    missing = [f"{t}/{p}" for t in there for p in there[t] if p not in wanted.get(t, {})]
    unknown = [f"{t}/{p}" for t in wanted for p in wanted[t] if p not in there.get(t, {})]
    if missing:
        raise ConfigError(
            f"option {option!r} must say an offset for every partition; missing: {', '.join(missing)} "
            "(-2 is earliest, -1 latest)"
        )
    if unknown:
        raise ConfigError(f"option {option!r} names partitions that are not subscribed: {', '.join(unknown)}")


__all__ = ["EARLIEST", "LATEST", "Positions", "StreamOffset", "batch_start", "parse_positions", "resolve"]
