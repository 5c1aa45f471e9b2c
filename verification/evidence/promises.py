"""The campaigns that test each promise, and the cases that none of them covers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Coverage:
    """Campaigns by name, and the cases that are not covered, in words."""

    campaigns: tuple[str, ...]
    missing: str


SIM: Final = "sim"
MUTANTS: Final = "mutants"
SCHEDULES: Final = "schedules"
CRASHES: Final = "crash states"
FLIPS: Final = "byte flips"
ERRORS: Final = "disk errors"
CHAOS: Final = "chaos"
MATRIX: Final = "partition matrix"
AVAILABILITY: Final = "availability"
JOB_KILLS: Final = "job kills"
JUDGES: Final = "judges"
STRANGERS: Final = "strangers"
COUNTED: Final = "counted bench"
INTERRUPTS: Final = "interrupts"
FORKS: Final = "forks"
MEMBERS: Final = "members"
RIGHTS: Final = "rights"
BACKUPS: Final = "backups"

PROMISES: Final[dict[str, Coverage]] = {
    "P1": Coverage(
        (SIM, MUTANTS, SCHEDULES, CRASHES, ERRORS, CHAOS, COUNTED, BACKUPS),
        "no power plug was pulled: power loss rests on a model of the disk, in the simulator, in "
        "the crash states and in chaos, which undoes or tears what no sync covers in the files of "
        "real nodes; a member that cuts an entry of which its disk has lost data and index, and "
        "stops with its leader before it has it again",
    ),
    "P2": Coverage((SIM, MUTANTS, CHAOS, JUDGES), "nothing known"),
    "P3": Coverage((SIM, MUTANTS, CHAOS), "nothing known"),
    "P4": Coverage(
        (SIM, MUTANTS, CHAOS, JUDGES), "a pause of a node while its machine sleeps, for hours"
    ),
    "P5": Coverage(
        (SIM, MUTANTS, CHAOS, INTERRUPTS, FORKS),
        "real processes whose producers come back after their session has expired",
    ),
    "P6": Coverage(
        (SIM, CHAOS), "errors of the operating system that no test can order, as a failing memory"
    ),
    "P7": Coverage(
        (SIM, SCHEDULES, FLIPS, CRASHES, CHAOS),
        "two bytes damaged at once so that a CRC-32 still fits",
    ),
    "P8": Coverage((SIM, ERRORS, CHAOS), "quotas of a user or a project on a real file system"),
    "P9": Coverage(
        (SIM, ERRORS, MUTANTS, CHAOS), "disks that report success for a flush that they did not do"
    ),
    "P10": Coverage((SIM, MUTANTS, CHAOS), "a monotonic clock that goes back"),
    "P11": Coverage(
        (SIM, MATRIX, AVAILABILITY, CHAOS),
        "directed graphs on 5 nodes; graphs in which no node has two-way links to a majority",
    ),
    "P12": Coverage((SIM, CHAOS, JOB_KILLS, JUDGES), "executors on other machines"),
    "P13": Coverage((), "what is not promised is not tested"),
    "P14": Coverage(
        (STRANGERS,),
        "a stranger on another machine; a program between two ends that talk without TLS",
    ),
    "P15": Coverage(
        (SIM, MUTANTS, MEMBERS),
        "a machine of a member that sleeps between the end of its session and its next look at the "
        "clock: one record may be in work twice then",
    ),
    "P16": Coverage(
        (RIGHTS, MUTANTS),
        "rules that change while a leader is cut off: it goes by those that it knows, until it "
        "notices that it leads no more",
    ),
}
"""By promise, as in docs/guarantees.md."""
