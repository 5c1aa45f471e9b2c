"""Where a consumer group goes on when it is reset: the plan, and its commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.client.positions import Kind, OffsetSpec, offsets_of, parse_position
from dledger.errors import ConfigError

if TYPE_CHECKING:
    from dledger.client.blocking.client import Client

Offsets = dict[str, dict[int, int]]
"""topic -> partition -> offset."""


@dataclass(frozen=True, slots=True)
class Moved:
    """One partition of a plan."""

    topic: str
    partition: int
    offset: int | None
    """The group's present one; None: it has none."""
    new_offset: int
    lag: int
    """Records that are then to be read."""


def wanted_offsets(
    client: Client,
    topic: str,
    partitions: Mapping[int, int | None],
    to: str | None,
    shift: int | None,
) -> dict[int, int]:
    """The offsets of a topic that ``to`` means, or those ``shift`` records on.

    Args:
        partitions: each with the group's present offset.
        to: a place as `parse_position` takes it, or ``current``.
    """
    if to is not None and to != "current":
        return offsets_of(client, topic, parse_position("--to", to), partitions)
    begins = offsets_of(client, topic, OffsetSpec(Kind.EARLIEST), partitions)
    # where the group has no offset it begins at the first record
    return {
        number: (begins[number] if offset is None else offset) + (shift or 0)
        for number, offset in partitions.items()
    }


def plan_reset(client: Client, current: Offsets, wanted: Offsets) -> list[Moved]:
    """What would be: each new offset within what its partition keeps.

    Raises:
        TopicNotFound, ConfigError: a topic or partition is not there.
    """
    rows = []
    for topic, offsets in sorted(wanted.items()):
        client.topic(topic)  # its error has the names that may be meant
        begins, ends = client.begin_offsets(topic), client.end_offsets(topic)
        for number, offset in sorted(offsets.items()):
            if number not in ends:
                raise ConfigError(
                    f"topic {topic!r} has partitions 0..{len(ends) - 1}, not {number}"
                )
            new = min(max(offset, begins[number]), ends[number])
            present = current.get(topic, {}).get(number)
            rows.append(Moved(topic, number, present, new, ends[number] - new))
    return rows


def commit_reset(client: Client, group: str, plan: list[Moved], log_ids: Mapping[str, str]) -> None:
    """All offsets of a plan, or none; raises as `commit_offsets`."""
    offsets: Offsets = {}
    for row in plan:
        offsets.setdefault(row.topic, {})[row.partition] = row.new_offset
    client.commit_offsets(group, offsets, log_ids=log_ids, reset=True)
