"""The lists of members that requests lead to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dledger.node.handlers.altered_members import NotPossible, altered
from dledger.protocol.messages.member_requests import AlterMemberRequest, MemberAction
from dledger.protocol.messages.membership import Member, MemberRole
from dledger.types import NodeId
from tests.node.growing import ADD, DEMOTE, LABEL, PROMOTE, READDRESS, REMOVE

VOTER, LEARNER, OBSERVER = MemberRole
PORTS = {f"n{number}": 7000 + number for number in range(6)}


def member(name: str, role: MemberRole = VOTER, replaces: str = "") -> Member:
    incarnation = int(role is VOTER)
    return Member(NodeId(name), "h", PORTS[name], role, incarnation, replaces=replaces)


THREE = tuple(map(member, ("n0", "n1", "n2")))


def after(listed: tuple[Member, ...], action: MemberAction, node: str, **fields: Any) -> Any:
    request = AlterMemberRequest(node_id=NodeId(node), action=action, **fields)
    return altered(listed, request, {NodeId(node): 1})


def add(listed: tuple[Member, ...], node: str, replaces: str, port: int = 0) -> Any:
    return after(listed, ADD, node, host="h", port=port or PORTS[node], replaces=replaces)


def test_the_list_remembers_a_replacement_until_the_new_one_is_promoted() -> None:
    """The former voter was removed first, as one is that is dead."""
    added = add(THREE, "n3", "n0")
    assert added == (*THREE, member("n3", LEARNER, "n0"))
    removed = after(added, REMOVE, "n0")
    assert removed == (*THREE[1:], member("n3", LEARNER, "n0"))
    assert after(removed, PROMOTE, "n3") == (*THREE[1:], member("n3"))


def test_the_list_remembers_a_replacement_until_the_former_is_removed() -> None:
    """The new one was promoted first."""
    promoted = after(add(THREE, "n3", "n0"), PROMOTE, "n3")
    assert promoted == (*THREE, member("n3", VOTER, "n0"))
    assert after(promoted, REMOVE, "n1") == (THREE[0], THREE[2], member("n3", VOTER, "n0"))
    assert after(promoted, REMOVE, "n0") == (*THREE[1:], member("n3"))


@pytest.mark.parametrize("role", [LEARNER, OBSERVER])
def test_one_that_does_not_vote_is_replaced_by_its_like(role: MemberRole) -> None:
    listed = (*THREE, member("n4", role))
    added = add(listed, "n3", "n4")
    assert added[-1] == member("n3", role, "n4")
    assert after(added, REMOVE, "n4") == (*THREE, member("n3", role))


def test_what_is_asked_for_again_is_no_change() -> None:
    added = add(THREE, "n3", "n0")
    assert add(added, "n3", "n0") == added
    assert add(after(added, REMOVE, "n0"), "n3", "n0") == after(added, REMOVE, "n0")
    assert after(THREE, REMOVE, "n3") == THREE
    assert after(THREE, READDRESS, "n1", host="h", port=7001) == THREE


def test_a_member_that_moves_stays_what_it_is() -> None:
    moved = after(THREE, READDRESS, "n1", host="i", port=1)
    assert moved == (THREE[0], replace(THREE[1], host="i", port=1), THREE[2])


def test_a_member_is_labelled_with_its_rack_and_unlabelled() -> None:
    labelled = after(THREE, LABEL, "n1", rack="east")
    assert labelled == (THREE[0], replace(THREE[1], rack="east"), THREE[2])
    assert after(labelled, LABEL, "n1", rack="east") == labelled
    assert after(labelled, READDRESS, "n1", host="i", port=1)[1].rack == "east"
    assert after(labelled, LABEL, "n1") == THREE


UNDER_WAY = add(THREE, "n3", "n0")


@pytest.mark.parametrize(
    ("listed", "action", "node", "fields", "said"),
    [
        (THREE, ADD, "n3", {"port": 7003, "replaces": "n9"}, "'n9' is not a member; members: n0"),
        (THREE, ADD, "n1", {"port": 7001, "replaces": "n0"}, "n1 is a member already, as voter"),
        (THREE, ADD, "n3", {"port": 7001, "replaces": "n0"}, "n1 is at h:7001 already"),
        (UNDER_WAY, ADD, "n4", {"port": 7004, "replaces": "n0"}, "n3 is about to replace n0"),
        (UNDER_WAY, ADD, "n4", {"port": 7004, "replaces": "n1"}, "n3 is about to replace n0"),
        (UNDER_WAY, ADD, "n3", {"port": 7004, "replaces": "n0"}, "n3 is a member already, at h"),
        (UNDER_WAY, ADD, "n3", {"port": 7003, "replaces": "n1"}, "not added to replace n1"),
        (THREE, READDRESS, "n9", {"port": 7009}, "'n9' is not a member"),
        (THREE, READDRESS, "n0", {"port": 7001}, "n1 is at h:7001 already"),
        (THREE, DEMOTE, "n10", {}, "(did you mean"),
        (THREE, LABEL, "n9", {"rack": "east"}, "'n9' is not a member"),
        (THREE, LABEL, "n1", {"rack": "a b"}, "rack 'a b': use 1 to 63 of"),
        (THREE, ADD, "n3", {"port": 7003, "rack": "r" * 64}, "rack 'rrrr"),
    ],
)
def test_what_contradicts_the_list_is_not_possible(
    listed: tuple[Member, ...], action: MemberAction, node: str, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(NotPossible) as refusal:
        after(listed, action, node, host="h", **fields)
    assert said in str(refusal.value)
