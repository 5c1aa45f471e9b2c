"""Campaigns that change the members of a group: what they hold against it, and a short one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger.errors import OutcomeUnknown, Unavailable
from dledger.net import run
from dledger.testing.checkers.history import OperationKind, Recorder
from verification.chaos.acks import Acks
from verification.chaos.appends import Appends
from verification.chaos.faults.fault import Fault
from verification.chaos.nodes import Nodes
from verification.chaos.planned import Planned, planned
from verification.chaos.process import REMOVED
from verification.chaos.report import as_dict, lines
from verification.chaos.run import Part, run_part
from verification.chaos.scene import SAID, Scene
from verification.chaos.schedule import named_faults


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Group(Nodes):
    """Nodes that are well, and no processes."""

    async def statuses(self) -> dict[str, dict[str, Any]]:
        state = {"role": "LEADER", "term": 1, "node_id": self.names[0], "standings": {}}
        return {self.names[0]: state}


class NoFloor:
    def __init__(self, clock: Clock) -> None:
        self.acks = Acks(clock)

    async def begin(self) -> None:
        """It has begun."""


class Stage:
    """A scene whose clock a test turns."""

    def __init__(self, path: Path) -> None:
        self.clock, self.said = Clock(), list[str]()
        self.appends, self.acks = Appends(self.clock), Acks(self.clock)
        self.floor = NoFloor(self.clock)
        self.recorder = Recorder(lambda: 0)
        self.scene = Scene(
            nodes=Group(path, 1),
            proxy=cast("Any", None),
            acks=self.acks,
            appends=self.appends,
            floor=cast("Any", self.floor),
            small=cast("Any", None),
            say=self.said.append,
            dice=random.Random(1),
        )

    def append(self) -> Any:
        call = self.recorder.begin(OperationKind.APPEND, "c", "t", 0, values=(1,))
        self.appends.begun(call)
        return call


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_gaps_of_a_part_of_a_run_begin_and_end_with_it() -> None:
    clock = Clock()
    acks = Acks(clock)
    clock.now_s = 10.0
    with acks.watching() as whole:
        clock.now_s = 12.0
        acks.note()
        with acks.watching() as part:
            clock.now_s = 12.5
            acks.note()
            clock.now_s = 13.25
    assert whole.longest_s == 2.0, "and not the ten seconds before"
    assert part.longest_s == 0.75, "the time since the last one is a gap as well"


def test_an_append_that_began_in_a_planned_change_and_failed_is_a_problem(stage: Stage) -> None:
    """Whenever its client is told; one that began before is none of it."""
    earlier = stage.append()

    async def change() -> None:
        stage.clock.now_s = 2.0
        stage.appends.ended(earlier, Unavailable("of a fault before"))
        call = stage.append()
        stage.clock.now_s = 3.0
        stage.appends.ended(call, OutcomeUnknown("nobody answered"))

    stage.clock.now_s = 1.0
    stage.appends.all_ended = lambda until_s: True  # type: ignore[method-assign]
    found = run(planned(stage.scene, "resize", change))
    assert found.failed == 1
    (problem,) = stage.scene.problems
    assert "1 appends failed in a planned resize" in problem
    assert "OutcomeUnknown after 1.00 s: nobody answered" in problem
    assert not stage.appends.calm


def test_a_planned_change_waits_for_appends_that_began_in_it(stage: Stage) -> None:
    calls = []

    async def change() -> None:
        stage.clock.now_s = 1.0
        calls.append(stage.append())
        assert stage.appends.calm
        # answered once the change is over, with an error
        ask = stage.appends.all_ended

        def all_ended(until_s: float) -> bool:
            if calls:
                stage.clock.now_s = 4.0
                stage.appends.ended(calls.pop(), Unavailable("late"))
            return ask(until_s)

        stage.appends.all_ended = all_ended  # type: ignore[method-assign]

    found = run(planned(stage.scene, "resize", change))
    assert (found.failed, found.length_s, found.gap_s) == (1, 1.0, 4.0)


def former(*codes: int, words: str = SAID) -> Any:
    """A node that was removed, whose next starts end so."""
    ends = iter(codes)

    async def ended(timeout_s: float) -> int:
        return next(ends)

    def nothing() -> None:
        return None

    return SimpleNamespace(
        name="n7",
        gone=False,
        running=False,
        ended=ended,
        last_words=lambda: words,
        start=nothing,
        kill=nothing,
        exchange_disk=nothing,
    )


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (former(REMOVED), ""),
        (former(0), "n7 was removed, and its start ends with code 0"),
        (former(REMOVED, words="disk full"), "n7 was removed, and does not say so"),
    ],
)
def test_a_removed_node_that_starts_again_must_end_for_that(
    stage: Stage, node: Any, said: str
) -> None:
    stage.scene.former.append(node)
    run(stage.scene.bury())
    assert stage.scene.former == []
    assert [said in problem for problem in stage.scene.problems] == [True] * bool(said)


def test_the_report_has_gaps_of_planned_changes_beside_the_floor() -> None:
    (resize,) = named_faults(["resize"])
    part = Part(
        3, planned=[Planned("resize", 1.0, 2.0, 0.2, 0.1, 0), Planned("r", 5, 1, 0.1, 0.15, 2)]
    )
    report = as_dict([part], (resize,), 1, 5)
    assert (
        report["figures"]
        | {
            "planned changes": 2,
            "failed appends in them": 2,
            "longest gap in them, ms": 200,
            "longest gap of the floor, ms": 150,
        }
        == report["figures"]
    )
    assert "2 appends failed; nothing acknowledged for 200 ms at most" in "\n".join(lines(report))
    assert "planned changes" not in as_dict([Part(3)], (resize,), 1, 5)["figures"]


def plan(*rounds: str) -> Iterator[tuple[Fault, ...]]:
    """These and no more."""
    return iter([named_faults(names.split()) for names in rounds])


@pytest.mark.cluster
def test_members_come_move_are_replaced_and_go_and_no_append_fails(tmp_path: Path) -> None:
    said: list[str] = []
    rounds = plan("resize", "replace_member", "readdress", "resize", "replace_member kill_leader")
    part = run(run_part(tmp_path / "run", 3, 600.0, rounds, 3, said.append))
    assert not part.problems, part.problems
    assert part.bites == {
        "resize": 4,
        "replace_member": 2,
        "readdress": 1,
        "kill_leader": 1,
    }
    assert [change.failed for change in part.planned] == [0] * 4
    assert all(change.floor_s > 0 for change in part.planned)
    assert part.verdict.acknowledged > 100
    assert part.compared_bytes > 10_000
