"""Which faults come when, what is told of them, and the small parts of a campaign."""

from __future__ import annotations

import errno
import os
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from dledger.errors import ConfigError
from verification.chaos.acks import Acks
from verification.chaos.faults.damage import DAMAGE_FAULTS
from verification.chaos.faults.fault import Fault
from verification.chaos.faults.members import MEMBER_CHANGES
from verification.chaos.node import WrongClock
from verification.chaos.panel import COUNTS, SWITCHES, Panel
from verification.chaos.report import as_dict, lines
from verification.chaos.run import Part
from verification.chaos.schedule import ALL_FAULTS, named_faults, schedule
from verification.chaos.sick import SickDisk


def test_every_round_has_every_kind_once() -> None:
    assert len(ALL_FAULTS) >= 12
    plan = schedule(7, ALL_FAULTS)
    for _ in range(20):
        seen: Counter[str] = Counter()
        while sum(seen.values()) < len(ALL_FAULTS):
            seen.update(fault.name for fault in next(plan))
        assert seen == Counter({fault.name: 1 for fault in ALL_FAULTS})


def drawn_together() -> list[tuple[Fault, ...]]:
    return [faults for faults in islice(schedule(1, ALL_FAULTS), 2000) if len(faults) == 2]


def test_two_faults_of_links_never_come_together() -> None:
    faults = [pair for pair in drawn_together() if not pair[0].is_change]
    assert faults
    assert all(first.on_links != second.on_links for first, second in faults)


def test_a_change_of_members_comes_alone_or_beside_a_fault() -> None:
    beside = [pair for pair in drawn_together() if any(fault.is_change for fault in pair)]
    assert {first.name for first, _ in beside} == {change.name for change in MEMBER_CHANGES}
    others = {second for _, second in beside}
    assert not others & {*MEMBER_CHANGES, *DAMAGE_FAULTS}
    assert {fault.on_links for fault in others} == {True, False}
    alone = [faults for faults in islice(schedule(1, ALL_FAULTS), 500) if len(faults) == 1]
    assert {faults[0] for faults in alone} >= set(MEMBER_CHANGES)


def test_the_seed_decides_the_schedule() -> None:
    def begin(seed: int) -> list[list[str]]:
        return [
            [fault.name for fault in faults] for faults in islice(schedule(seed, ALL_FAULTS), 50)
        ]

    assert begin(3) == begin(3)
    assert begin(3) != begin(4)


def test_an_unknown_fault_is_told_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'kill_leader'"):
        named_faults(["kill_leadr"])
    assert named_faults([]) == ALL_FAULTS


def test_a_fault_that_never_bit_makes_the_report_red() -> None:
    kill, pause = named_faults(["kill", "pause"])
    part = Part(3, runs=Counter(kill=2, pause=3), bites=Counter(kill=2))
    report = as_dict([part], (kill, pause), 1, 5)
    assert not report["ok"]
    assert "fault pause never bit, in 3 runs" in "\n".join(lines(report))
    part.bites["pause"] = 1
    assert as_dict([part], (kill, pause), 1, 5)["ok"]
    assert as_dict([Part(3)], (kill,), 1, 5)["not_scheduled"] == ["kill"]


def test_a_gap_is_told_with_the_fault_that_was_under_way() -> None:
    now = [0.0]
    acks = Acks(lambda: now[0])
    for moment in (0.1, 0.2):
        now[0] = moment
        acks.note()
    with acks.during("isolate"):
        now[0] = 1.0
    now[0] = 2.0
    acks.note()
    now[0] = 2.7
    acks.note()
    now[0] = 9.0
    acks.finish()
    assert acks.count == 4
    assert [
        (round(gap.start_s, 1), round(gap.length_s, 1), gap.cause) for gap in acks.longest()[:3]
    ] == [
        (2.7, 6.3, "after isolate"),
        (0.2, 1.8, "isolate"),
        (2.0, 0.7, "after isolate"),
    ]


def test_a_panel_is_the_same_for_all_who_open_it(tmp_path: Path) -> None:
    one, other = Panel(tmp_path / "panel"), Panel(tmp_path / "panel")
    for number, name in enumerate((*SWITCHES, *COUNTS), 1):
        one[name] = -number
        assert other[name] == -number
    other.clear()
    assert [one[name] for name in SWITCHES] == [0] * len(SWITCHES)
    one["syncs"] = 1
    other.count("syncs")
    assert one["syncs"] == 2


def test_a_sick_disk_fails_as_its_panel_says_and_is_well_again(tmp_path: Path) -> None:
    panel = Panel(tmp_path / "panel")
    disk = SickDisk(panel)
    file = disk.open(tmp_path / "file", create=True)
    for switch, call, number, counter in (
        ("sync_error", file.fdatasync, errno.EIO, "sync_errors"),
        ("write_error", lambda: file.pwritev([b"x"], 0), errno.EIO, "write_errors"),
        ("full", lambda: file.fallocate(4096), errno.ENOSPC, "full_refusals"),
    ):
        panel[switch] = 1
        with pytest.raises(OSError, match=os.strerror(number)):
            call()
        assert panel[counter] == 1
        assert (disk.statvfs(tmp_path).free == 0) == (switch == "full")
        panel[switch] = 0
        call()
    panel["sync_delay_us"] = 10
    file.fdatasync()
    assert panel["syncs_delayed"] == 1
    assert file.pread(9, 0)[:1] == b"x"


def test_a_wrong_clock_is_off_by_what_its_panel_says(tmp_path: Path) -> None:
    panel = Panel(tmp_path / "panel")
    clock = WrongClock(panel)
    year_ms = 365 * 24 * 3600 * 1000
    right = clock.wall_ms()
    assert panel["wall_shifted"] == 0
    panel["wall_shift_ms"] = 10 * year_ms
    assert clock.wall_ms() >= right + 10 * year_ms
    panel["wall_shift_ms"] = -100 * year_ms
    assert clock.wall_us() == 0
    assert panel["wall_shifted"] == 2
