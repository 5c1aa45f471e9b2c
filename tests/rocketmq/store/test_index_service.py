"""The index by key: the same keys whatever is put twice, cut off or torn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dledger.errors import CorruptStore
from dledger.rocketmq.format.index_file import HEADER, SLOT, UNIT
from dledger.rocketmq.store.index_service import IndexService
from tests.rocketmq.made_logs import index_units, overwrite

SLOTS = 8
UNITS = 21
NOW = 1_790_000_000_000


def ticks() -> int:
    """A clock that stands still: names of files must differ all the same."""
    return NOW


def service(folder: Path) -> IndexService:
    return IndexService(folder, SLOTS, units=UNITS, clock=ticks)


def put(index: IndexService, begin: int, end: int, keys: int = 3) -> None:
    """Messages at 100 times their number, stored a second after one another, with a key of their
    own, and common ones that all have."""
    for n in range(begin, end):
        index.put("t", [f"k{n}", *(f"c{m}" for m in range(1, keys))], 100 * n, NOW + 1000 * n)
    index.write()


def contents(index: IndexService) -> list[list[tuple[int, int]]]:
    """(hash, place) of the units of each file, after a check that each file agrees with itself."""
    return [index_units(path, SLOTS) for path in index.files]


def lookups(index: IndexService, count: int) -> Sequence[Sequence[int]]:
    return [index.lookup("t", f"k{n}") for n in range(count)]


@pytest.fixture
def index(tmp_path: Path) -> IndexService:
    return service(tmp_path / "index")


def test_message_is_found_by_each_key_newest_first_across_files(index: IndexService) -> None:
    put(index, 0, 20)
    assert lookups(index, 20) == [[100 * n] for n in range(20)]
    assert index.lookup("t", "c1") == [100 * n for n in range(19, -1, -1)]
    assert index.lookup("other", "c1") == []
    assert [len(units) for units in contents(index)] == [20, 20, 20]
    assert [path.name for path in index.files] == sorted({path.name for path in index.files})
    assert index.lookup("t", "c1", NOW + 5000, NOW + 7000) == [700, 600, 500]


@pytest.mark.parametrize("again", range(0, 20, 3))
def test_messages_that_are_put_again_from_any_place_change_nothing(
    index: IndexService, again: int
) -> None:
    put(index, 0, 20)
    before = contents(index)
    put(index, again, 20)
    assert contents(index) == before
    reopened = service(index.directory)
    put(reopened, again, 20)
    assert contents(reopened) == before
    put(reopened, 20, 24)
    assert lookups(reopened, 24) == [[100 * n] for n in range(24)]


@pytest.mark.parametrize("written", range(1, 60, 4))
def test_a_message_of_which_some_keys_were_put_gets_the_others_alone(
    tmp_path: Path, index: IndexService, written: int
) -> None:
    """A process may be killed between two keys of one message, of which one closes a file."""
    keys = [(n, m) for n in range(20) for m in range(3)]
    for n, m in keys[:written]:
        index.end_offset, index.end_keys = 100 * n, m
        index.put("t", [f"k{n}", "c1", "c2"][: m + 1], 100 * n, NOW + 1000 * n)
    index.write()
    index.close()
    opened = service(index.directory)
    put(opened, 0, 20)
    assert contents(opened) == whole(tmp_path)


def whole(tmp_path: Path) -> list[list[tuple[int, int]]]:
    """The content of an index of 20 messages that nothing has happened to."""
    index = service(tmp_path / "whole")
    put(index, 0, 20)
    return contents(index)


@pytest.mark.parametrize("cut", [0, 50, 100, 650, 700, 1333, 1350, 1400, 1900, 1950, 5000])
def test_keys_of_messages_behind_a_place_are_forgotten_and_nothing_else(
    tmp_path: Path, index: IndexService, cut: int
) -> None:
    put(index, 0, 20)
    assert index.truncate_dirty(cut) == cut
    kept = min(20, -(-cut // 100))
    assert lookups(index, 20) == [[100 * n] if n < kept else [] for n in range(20)]
    contents(index)
    reopened = service(index.directory)
    put(reopened, kept, 20)
    assert contents(reopened) == whole(tmp_path)


UNITS_AT = HEADER.size + SLOTS * SLOT.size


@pytest.mark.parametrize("number", [1, 2, 7, 12])
@pytest.mark.parametrize("data", [bytes(UNIT.size), b"\xff" * UNIT.size, bytes(12) + b"\0\0\0\x13"])
def test_torn_units_are_dropped_and_the_place_to_put_again_is_returned(
    index: IndexService, number: int, data: bytes
) -> None:
    """A power failure tore the units."""
    put(index, 0, 10, keys=2)
    index.close()
    overwrite(index.files[-1], UNITS_AT + (number + 1) * UNIT.size - len(data), data)
    opened = service(index.directory)
    again = opened.truncate_dirty(1000, doubted=True)
    assert again < 1000
    put(opened, max(0, again // 100), 10, keys=2)
    assert lookups(opened, 10) == [[100 * n] for n in range(10)]
    contents(opened)


def test_slots_that_a_power_failure_lost_are_made_again(index: IndexService) -> None:
    put(index, 0, 6)
    index.close()
    overwrite(index.files[-1], HEADER.size, bytes(SLOTS * SLOT.size))
    opened = service(index.directory)
    assert opened.lookup("t", "k3") == []
    assert opened.truncate_dirty(600, doubted=True) == 600
    assert lookups(opened, 6) == [[100 * n] for n in range(6)]


def test_files_of_messages_that_the_commit_log_has_no_more_are_removed(
    index: IndexService,
) -> None:
    put(index, 0, 20)
    assert index.delete_before(1200) == 1
    assert index.delete_before(99_999) == 1
    assert [len(units) for units in contents(index)] == [20]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: data[:36] + b"\x7f\0\0\0" + data[40:],
    ],
)
def test_an_index_file_that_cannot_be_is_an_error_that_says_what_to_do(
    index: IndexService, change
) -> None:  # type: ignore[no-untyped-def]
    put(index, 0, 3)
    index.close()
    (path,) = index.files
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CorruptStore, match="remove the file"):
        service(index.directory)


def test_a_message_at_place_0_is_indexed_too(index: IndexService) -> None:
    assert index.end_offset == -1
    put(index, 0, 1)
    assert (index.end_offset, index.lookup("t", "k0")) == (0, [0])
