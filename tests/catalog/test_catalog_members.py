"""Who counts, as far as the log says so."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.errors import ConfigError
from dledger.node.handlers.replaced_disks import COMMAND_PREFIX, body_of, change_of
from dledger.protocol.messages.catalog_commands import Admit, ChangeMembers
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import MAGIC_NORMAL, LogEnd, stamp
from dledger.protocol.messages.membership import (
    Change,
    Member,
    MemberRole,
    Membership,
    check_members,
    fingerprint,
    is_outdated,
    pack_list,
    unpack_list,
)
from dledger.storage.meta.members import pack_membership, unpack_membership
from dledger.types import Index, NodeId, Position, Term


def test_of_two_admissions_made_from_the_same_view_only_the_first_counts():
    catalog = Catalog(MemoryTables())
    first = Admit(node_id="n1", members={"n0": 1, "n1": 20, "n2": 3}, after=-1)
    second = Admit(node_id="n2", members={"n0": 1, "n1": 2, "n2": 30}, after=-1)
    assert catalog.apply_command(5, first).code is Code.SUCCESS
    assert catalog.apply_command(6, second).code is Code.INCONSISTENT_STATE
    assert (catalog.members, catalog.members_index) == ({"n0": 1, "n1": 20, "n2": 3}, 5)
    again = Admit(node_id="n2", members={"n0": 1, "n1": 20, "n2": 30}, after=5)
    assert catalog.apply_command(7, again).code is Code.SUCCESS


def test_members_survive_a_snapshot_and_are_not_in_one_that_has_none():
    tables = MemoryTables()
    catalog = Catalog(tables)
    assert b"members" not in catalog.snapshot()
    catalog.apply_command(5, Admit(node_id="n1", members={"n0": 1, "n1": (1 << 63) - 1}, after=-1))
    again = Catalog.restore(catalog.snapshot(), tables)
    assert (again.members, again.members_index) == ({"n0": 1, "n1": (1 << 63) - 1}, 5)
    assert again.digest() == catalog.digest()


N0, N1 = NodeId("n0"), NodeId("n1")
LISTED = (
    Member(N0, "a", 1, MemberRole.VOTER, 7),
    Member(N1, "b", 2, MemberRole.OBSERVER, 0, "rack"),
)


def test_a_list_of_members_survives_a_snapshot_with_later_admissions():
    tables = MemoryTables()
    catalog = Catalog(tables)
    assert catalog.apply_command(5, ChangeMembers(after=4, members=LISTED)).code is not Code.SUCCESS
    assert catalog.apply_command(6, ChangeMembers(after=-1, members=LISTED)).code is Code.SUCCESS
    admit = Admit(node_id="n0", members={"n0": 8, "n1": 0}, after=6)
    assert catalog.apply_command(7, admit).code is Code.SUCCESS
    again = Catalog.restore(catalog.snapshot(), tables)
    assert again.group_list == catalog.group_list
    assert again.group_list.members == (replace(LISTED[0], incarnation=8), LISTED[1])
    assert again.group_list.former == (fingerprint(["n0", "n1"]),)
    assert again.digest() == catalog.digest()


def test_a_list_with_other_incarnations_than_those_that_count_is_dropped():
    """It is that of the group from whose backup this one was made."""
    catalog = Catalog(MemoryTables())
    voters = (LISTED[0], Member(N1, "b", 2, MemberRole.VOTER, 9))
    catalog.apply_command(6, ChangeMembers(after=-1, members=voters))
    catalog.apply_command(7, Admit(node_id="n0", members={"n0": 8, "n1": 10}, after=6))
    assert not catalog.group_list


def test_the_entry_of_a_list_is_told_from_its_bytes():
    body = body_of(Index(4), LISTED)
    assert body.startswith(COMMAND_PREFIX)
    entry = stamp(LogEnd(), Term(3), MAGIC_NORMAL, body, 1 << 20)
    assert change_of(entry) == Change(entry.position, Index(4), NodeId(""), 0, LISTED)


def test_what_a_member_is_to_replace_is_kept_and_takes_no_room_else():
    """Entries, records and snapshots from before it stay readable, and are written as ever."""
    assert [len(row) for row in pack_list(LISTED)] == [6, 6]
    assert unpack_list(json.loads(json.dumps(pack_list(LISTED)))) == LISTED
    marked = (LISTED[0], replace(LISTED[1], replaces="n0"))
    assert len(body_of(Index(4), marked)) == len(body_of(Index(4), LISTED)) + len("n0") + 1
    entry = stamp(LogEnd(), Term(3), MAGIC_NORMAL, body_of(Index(4), marked), 1 << 20)
    change = change_of(entry)
    assert change is not None
    assert change.members == marked
    known = Membership(7, Index(6), group_id="A", members=(N0,), changes=(change,))
    known = known.with_list(marked)
    assert unpack_membership(pack_membership(known)) == known
    catalog = Catalog(tables := MemoryTables())
    assert catalog.apply_command(6, ChangeMembers(after=-1, members=marked)).code is Code.SUCCESS
    assert Catalog.restore(catalog.snapshot(), tables).group_list.members == marked


def test_a_record_of_members_has_lists_and_changes():
    change = Change(Position(Term(2), Index(9)), Index(6), NodeId(""), 0, LISTED[:1])
    admitted = Change(Position(Term(2), Index(8)), Index(6), N1, 5)
    known = Membership(7, Index(6), group_id="A", members=(N0,), changes=(admitted, change))
    known = known.with_list(LISTED)
    assert unpack_membership(pack_membership(known)) == known
    assert known.of(N1) == 0
    assert b"removed" not in pack_membership(known), "as releases before have it"
    ended = replace(known, removed=True)
    assert unpack_membership(pack_membership(ended)) == ended


def test_a_node_starts_with_any_list_that_the_group_has_had_and_no_other():
    founders = (N0, N1, NodeId("n2"))
    known = Membership(7, Index(6), group_id="A", members=founders)
    known = known.with_list(LISTED).with_list(LISTED[:1])
    for members in (founders, (N1, N0), (N0,)):
        check_members(known, members)
    for members in ((N1,), (*founders, NodeId("n3"))):
        with pytest.raises(ConfigError, match="members are n0, and were n0, n1, n2 at its found"):
            check_members(known, members)
    soon = Change(Position(Term(2), Index(9)), Index(6), NodeId(""), 0, LISTED)
    just_founded = replace(known, listed=(), former=(), changes=(soon,))
    with pytest.raises(ConfigError, match="members are n0, n1, n2, but"):
        check_members(just_founded, (N0, N1))
    check_members(replace(known, former=(), changes=(soon,)), (N0, N1))


def test_only_the_list_of_today_is_not_outdated():
    founders = (N0, N1, NodeId("n2"))
    known = Membership(7, Index(6), group_id="A", members=founders)
    assert not is_outdated(known, founders)
    known = known.with_list(LISTED)
    assert not is_outdated(known, (N1, N0))
    assert is_outdated(known, founders)


def test_an_admission_of_a_node_that_is_in_no_list_changes_nothing():
    known = Membership(7, Index(6)).with_list(LISTED)
    assert known.with_incarnation(NodeId("n9"), 5) == known
    assert known.with_incarnation(N1, 5).of(N1) == 5
