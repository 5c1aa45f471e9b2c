"""Which faults come when: all kinds in rounds, in an order that the seed decides."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

from dledger.config import nearest
from dledger.errors import ConfigError
from verification.chaos.faults.clocks import CLOCK_FAULTS
from verification.chaos.faults.damage import DAMAGE_FAULTS
from verification.chaos.faults.disks import DISK_FAULTS
from verification.chaos.faults.fault import Fault
from verification.chaos.faults.links import LINK_FAULTS
from verification.chaos.faults.members import MEMBER_CHANGES
from verification.chaos.faults.power import POWER_FAULTS
from verification.chaos.faults.processes import PROCESS_FAULTS

ALL_FAULTS: Final[tuple[Fault, ...]] = (
    *LINK_FAULTS,
    *PROCESS_FAULTS,
    *POWER_FAULTS,
    *DISK_FAULTS,
    *DAMAGE_FAULTS,
    *CLOCK_FAULTS,
    *MEMBER_CHANGES,
)
TOGETHER: Final = 0.3
"""So often a fault of links, or a change of members, comes together with a fault of something
else."""


def named_faults(names: Sequence[str]) -> tuple[Fault, ...]:
    """The faults of these names; all without any.

    Raises:
        ConfigError: there is none of a name.
    """
    known = {fault.name: fault for fault in ALL_FAULTS}
    for name in names:
        if name not in known:
            raise ConfigError(
                f"no fault {name!r}{nearest(name, list(known))}; known: {', '.join(known)}"
            )
    return tuple(known[name] for name in names) or ALL_FAULTS


def may_meet(one: Fault, other: Fault) -> bool:
    """Whether the two may be under way at the same time."""
    if one.is_change or other.is_change:
        # damage is mended by commands and reads that take all members to be there
        return one.is_change != other.is_change and not {one, other} & set(DAMAGE_FAULTS)
    return one.on_links != other.on_links


def schedule(seed: int, faults: Sequence[Fault]) -> Iterator[tuple[Fault, ...]]:
    """Without end: one fault, or two at the same time. Each round has every kind once."""
    dice = random.Random(f"schedule {seed}")
    while True:
        left = list(faults)
        dice.shuffle(left)
        while left:
            first = left.pop()
            others = [fault for fault in left if may_meet(first, fault)]
            if others and dice.random() < TOGETHER:
                second = dice.choice(others)
                left.remove(second)
                # a change chooses its members before a fault does
                yield (second, first) if second.is_change else (first, second)
            else:
                yield (first,)
