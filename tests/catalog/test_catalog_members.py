"""Who counts, as far as the log says so."""

from __future__ import annotations

from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.protocol.messages.catalog_commands import Admit
from dledger.protocol.messages.codes import Code


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
