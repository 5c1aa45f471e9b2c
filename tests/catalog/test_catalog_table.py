"""The table in memory: what the catalog relies on in every table."""

from __future__ import annotations

import pytest

from dledger.catalog.topics.table import MemoryTables, Table
from dledger.errors import CorruptStore


@pytest.fixture
def table() -> Table:
    """Ten rows of four bytes, each its own number."""
    table = MemoryTables().open("x", 4)
    for number in range(10):
        table.append(number.to_bytes(4, "big"))
    return table


def numbers(table: Table, start: int, stop: int) -> list[int]:
    data = bytes(table.read(start, stop))
    return [int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4)]


def test_rows_keep_their_numbers_when_the_front_goes(table: Table) -> None:
    table.drop_front(4)
    assert (table.begin, table.end) == (4, 10)
    assert numbers(table, 4, 10) == [4, 5, 6, 7, 8, 9]
    table.drop_front(2)
    assert table.begin == 4


def test_rows_behind_the_cut_go_and_new_ones_take_their_numbers(table: Table) -> None:
    table.drop_front(4)
    table.truncate(6)
    table.append((60).to_bytes(4, "big") + (70).to_bytes(4, "big"))
    assert (table.begin, table.end) == (4, 8)
    assert numbers(table, 5, 8) == [5, 60, 70]


def test_cut_below_the_front_leaves_an_empty_table_that_begins_there(table: Table) -> None:
    """A snapshot can be older than what was deleted since: the rows between come again with the
    replay."""
    table.drop_front(8)
    table.truncate(3)
    assert (table.begin, table.end) == (3, 3)
    table.append(bytes(4))
    assert table.end == 4


def test_rows_that_are_not_there_are_never_made_up(table: Table) -> None:
    table.drop_front(4)
    for start, stop in [(3, 5), (9, 11)]:
        with pytest.raises(CorruptStore):
            table.read(start, stop)
    with pytest.raises(CorruptStore):
        table.truncate(11)


def test_rows_read_stay_readable_while_the_table_grows(table: Table) -> None:
    row = table.read(0, 1)
    table.append(bytes(4))
    assert len(row) == 4


def test_tables_are_found_again_by_name_until_removed() -> None:
    tables = MemoryTables()
    tables.open("b", 4).append(bytes(4))
    tables.open("a", 8)
    assert tables.open("b", 4).end == 1
    assert tables.names() == ["a", "b"]
    with pytest.raises(CorruptStore):
        tables.open("b", 8)
    tables.remove("b")
    tables.remove("b")
    assert tables.open("b", 4).end == 0
