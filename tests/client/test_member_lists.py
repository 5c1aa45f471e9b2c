"""What a client makes of the lists of members that nodes tell."""

from __future__ import annotations

from dledger.client.member_lists import listed_members


def test_the_newest_leader_has_the_last_word() -> None:
    stale = {"role": "LEADER", "term": 1, "members": ["n0", "n3"], "member_roles": {"n3": "VOTER"}}
    newest = {
        "role": "LEADER",
        "term": 2,
        "members": ["n0", "n1"],
        "member_roles": {"n0": "VOTER", "n1": "OBSERVER"},
        "member_racks": {"n1": "east"},
    }
    found = listed_members([newest, stale, {"error": "gone"}])
    assert found == {"n0": ("VOTER", None), "n1": ("OBSERVER", "east")}


def test_without_a_leader_all_that_any_node_names_are_there() -> None:
    one = {
        "role": "FOLLOWER",
        "term": 2,
        "members": ["n0", "n1"],
        "member_roles": {"n1": "LEARNER"},
    }
    older = {"role": "CANDIDATE", "term": 1, "members": ["n0", "n2"]}
    found = listed_members([one, older])
    assert {name: member.role for name, member in found.items()} == {
        "n0": "VOTER",
        "n1": "LEARNER",
        "n2": "VOTER",
    }
    assert listed_members([{"error": "gone"}]) == {}
