"""The steps of ``dledger members replace``, and how long it waits."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from dledger.cli.group.filling import filling
from dledger.cli.group.replacing import Replacement, ReplaceStep, next_step
from dledger.client.catching_up import CatchingUp, lack_of
from dledger.errors import ConfigError, Unavailable
from dledger.node.handlers.altered_members import Members, altered
from dledger.protocol.messages.member_requests import AlterMemberRequest, MemberAction
from dledger.protocol.messages.membership import Member, MemberRole
from dledger.types import NodeId

NEW = NodeId("n9")
WANTED = Replacement("n0", NEW, "h:7009")
ACTIONS = {
    ReplaceStep.ADD: (NEW, MemberAction.ADD),
    ReplaceStep.PROMOTE: (NEW, MemberAction.PROMOTE),
    ReplaceStep.REMOVE: (NodeId("n0"), MemberAction.REMOVE),
}


def voters(count: int) -> Members:
    names = [f"n{number}" for number in range(count)]
    return tuple(
        Member(NodeId(name), "h", 7000 + at, MemberRole.VOTER, 1) for at, name in enumerate(names)
    )


def says(listed: Members, *, dead: frozenset[str] = frozenset(), near: bool = True) -> Any:
    """The leader's status."""
    leader = next(one.id for one in listed if one.id not in dead)
    return {
        "node_id": leader,
        "member_roles": {one.id: one.role.name for one in listed},
        "member_addresses": {one.id: f"{one.host}:{one.port}" for one in listed},
        "replacing": {one.id: one.replaces for one in listed if one.replaces},
        "standings": {
            one.id: {"heard": one.id not in dead, "near": near and one.id not in dead}
            for one in listed
            if one.id != leader
        },
    }


def carried_out(listed: Members, step: ReplaceStep) -> Members:
    node, action = ACTIONS[step]
    place: dict[str, Any] = {"host": "h", "port": 7009, "replaces": "n0"}
    fields = place if action is MemberAction.ADD else {}
    return altered(listed, AlterMemberRequest(node_id=node, action=action, **fields), {NEW: 2})


def spare(listed: Members, dead: frozenset[str]) -> int:
    """How many voters that live may fail, and the others still commit."""
    ids = [one.id for one in listed if one.role is MemberRole.VOTER]
    return sum(one not in dead for one in ids) - (len(ids) // 2 + 1)


def way(listed: Members, dead: frozenset[str]) -> list[ReplaceStep]:
    """The steps to the end, each of them decided anew; fewer may fail at no time than before."""
    steps, least = [], spare(listed, dead)
    while (step := next_step(says(listed, dead=dead), WANTED)) is not ReplaceStep.DONE:
        steps.append(step)
        listed = carried_out(listed, step)
        assert spare(listed, dead) >= least
    ids = {one.id for one in listed if one.role is MemberRole.VOTER}
    assert NEW in ids
    assert "n0" not in ids
    assert not any(one.replaces for one in listed)
    return steps


@pytest.mark.parametrize("count", range(1, 8))
def test_a_voter_that_lives_is_removed_last(count: int) -> None:
    listed = voters(count)
    others = [[one.id] for one in listed[1:]] if count > 3 else []
    for dead in ([], *others):
        assert way(listed, frozenset(dead)) == [
            ReplaceStep.ADD,
            ReplaceStep.PROMOTE,
            ReplaceStep.REMOVE,
        ]


@pytest.mark.parametrize("count", range(3, 8))
def test_a_voter_that_is_dead_is_removed_before_the_new_one_counts(count: int) -> None:
    listed, dead = voters(count), frozenset(["n0"])
    assert way(listed, dead) == [ReplaceStep.ADD, ReplaceStep.REMOVE, ReplaceStep.PROMOTE]


@pytest.mark.parametrize("role", [MemberRole.LEARNER, MemberRole.OBSERVER])
def test_one_that_does_not_vote_is_removed_when_the_new_one_has_everything(
    role: MemberRole,
) -> None:
    old = Member(NodeId("n0"), "h", 7000, role, 0)
    listed = carried_out((*voters(3)[1:], old), ReplaceStep.ADD)
    assert next_step(says(listed, near=False), WANTED) is ReplaceStep.WAIT
    assert next_step(says(listed), WANTED) is ReplaceStep.REMOVE
    assert next_step(says(carried_out(listed, ReplaceStep.REMOVE)), WANTED) is ReplaceStep.DONE


@pytest.mark.parametrize("is_dead", [False, True])
def test_nothing_is_removed_before_the_new_one_has_everything(is_dead: bool) -> None:
    dead = frozenset(["n0"] if is_dead else [])
    listed = carried_out(voters(3), ReplaceStep.ADD)
    assert next_step(says(listed, dead=dead, near=False), WANTED) is ReplaceStep.WAIT
    assert next_step(says(listed, dead=dead | {NEW}), WANTED) is ReplaceStep.WAIT


def test_a_voter_that_dies_or_comes_back_meanwhile_changes_only_the_order() -> None:
    alive, dead = frozenset[str](), frozenset(["n0"])
    for first, second in product((alive, dead), repeat=2):
        listed = carried_out(voters(3), ReplaceStep.ADD)
        listed = carried_out(listed, next_step(says(listed, dead=first), WANTED))
        listed = carried_out(listed, next_step(says(listed, dead=second), WANTED))
        assert next_step(says(listed, dead=second), WANTED) is ReplaceStep.DONE


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Replacement("n7", "n9", "h:7009"), "'n7' is not a member"),
        (Replacement("n0", "n1", "h:7001"), "n1 is a member already, as voter"),
        (Replacement("n5", "n1", "h:9"), "n1 is a member already, at h:7001"),
    ],
)
def test_what_cannot_be_replaced_is_refused(wanted: Replacement, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        next_step(says(voters(3)), wanted)


def test_another_address_on_the_way_is_refused() -> None:
    listed = carried_out(voters(3), ReplaceStep.ADD)
    with pytest.raises(ConfigError, match="at h:7009: say n9=h:7009"):
        next_step(says(listed), Replacement("n0", NEW, "h:1"))


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def far(entries: int, size: int, **more: Any) -> dict[str, dict[str, Any]]:
    """The nodes, one of which lacks so much of the leader's log."""
    leader = {
        **{"role": "LEADER", "term": 1, "end_index": 1000, "end_pos": 9 << 20},
        "watermarks": {"n9": 1000 - entries},
        "standings": {"n9": {"heard": True, "near": False, "too_slow": False}},
    }
    return {"n0": leader, "n9": {"role": "FOLLOWER", "end_pos": (9 << 20) - size, **more}}


def test_progress_has_entries_bytes_rate_and_what_is_left() -> None:
    clock, told = Clock(), []
    catching = CatchingUp("n9", 10, now_s=clock, tell=told.append)
    for clock.now_s, lack in ((0, 900), (1, 800), (6, 450)):
        catching.look(far(lack, lack << 10))
    assert told == [
        "n9 lacks 900 entries, 921,600 bytes",
        "n9 lacks 450 entries, 460,800 bytes; 0.1 MiB/s, about 6 s more",
    ]


def test_bytes_are_shown_in_place_of_lines_where_somebody_shows_them() -> None:
    """Also where more is appended meanwhile than comes: nothing is shown twice, or goes back."""
    told: list[str] = []
    shown: list[tuple[int, int]] = []
    clock = Clock()
    catching = CatchingUp(
        "n9", 10, now_s=clock, tell=told.append, moved=lambda *so: not shown.append(so)
    )
    for clock.now_s, lack in ((0, 900), (6, 700), (7, 800), (12, 100)):
        catching.look(far(lack, lack << 10))
    kib = [(size >> 10, total >> 10) for size, total in shown]
    assert kib == [(0, 900), (200, 900), (0, 900), (600, 900)]
    assert told == []


def test_bytes_of_a_whole_state_come_before_those_of_the_log() -> None:
    shown: list[tuple[int, int]] = []
    catching = CatchingUp(
        "n9", 10, now_s=Clock(), tell=lambda text: None, moved=lambda *so: not shown.append(so)
    )
    for got in (1000, 4000):
        catching.look(far(1001, 9 << 20, install={"bytes": got, "of": 5000}))
    for lack in (700, 200):
        catching.look(far(lack, lack))
    assert shown == [(0, 4000), (3000, 4000), (0, 3700), (500, 3700)]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_has_a_line_of_progress_and_a_log_has_lines(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    with filling() as shown:
        catching = CatchingUp("n9", 10, now_s=Clock(), tell=shown.tell, moved=shown.moved)
        catching.look(far(900, 900))
    assert ("n9 lacks 900 entries" in capsys.readouterr().err) == (not is_terminal)


def test_progress_of_one_that_takes_the_state_over() -> None:
    clock, told = Clock(), []
    catching = CatchingUp("n9", 10, now_s=clock, tell=told.append)
    for clock.now_s, got in ((0, 0), (8, 1 << 20), (16, 2 << 20), (24, 3 << 20)):
        catching.look(far(1001, 9 << 20, install={"bytes": got, "of": 4 << 20}))
    assert told[-1] == (
        "n9 takes over the leader's state: 3,145,728 of 4,194,304 bytes; 0.1 MiB/s, about 8 s more"
    )


def test_who_gets_no_further_is_given_up() -> None:
    clock = Clock()
    catching = CatchingUp("n9", 10, now_s=clock, tell=lambda text: None)
    catching.look(far(900, 900))
    clock.now_s = 9
    catching.look(far(899, 899))
    clock.now_s = 19
    catching.look(far(899, 899))
    clock.now_s = 20
    with pytest.raises(Unavailable, match="gets no further for 10 s: it lacks 899 entries"):
        catching.look(far(899, 899))
    slow = far(1, 1)
    slow["n0"]["standings"]["n9"]["too_slow"] = True
    with pytest.raises(ConfigError, match="more is appended than it can take"):
        catching.look(slow)


def test_bytes_are_not_known_of_one_that_does_not_answer() -> None:
    found = far(900, 900)
    found["n9"] = {"error": "does not answer"}
    lack = lack_of(found, "n9")
    assert lack is not None
    assert (lack.entries, lack.bytes) == (900, None)
    assert lack_of(found, "n8") is None
