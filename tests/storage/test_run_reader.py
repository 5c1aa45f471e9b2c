"""Many entries read at once are the very entries that are read one by one, whatever has happened
to the files."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dledger.errors import CorruptEntry
from dledger.protocol.messages.entry_runs import Entries
from dledger.storage.disk.file_names import file_name
from dledger.storage.log import reader
from dledger.storage.log.index import UNIT_SIZE
from dledger.types import Index

SIZES = [0, 1, 30, 7, 64, 3, 300, 5, 0, 12, 90, 2, 2, 2]
INDEX_FILE = 320
"""Of the kit's stores."""
ONE_BY_ONE = 1 << 40


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few bytes are asked for."""
    monkeypatch.setattr(reader, "LEAST_BYTES", 0)


def filled(kit: Any, **settings: Any) -> tuple[Any, Any]:
    """A store whose index is all in its files: units that wait are not asked."""
    disk, store = kit.fresh(**settings)
    for term in (1, 2, 4):
        kit.fill(store, SIZES, term, segment=settings.get("segment_bytes", kit.segment))
    store.close()
    return disk, kit.open(disk, **settings)


def read(store: Any, begin: int, max_bytes: int, end: int | None) -> list[Any] | str:
    """The entries, or the damage."""
    try:
        return list(store.read(Index(begin), max_bytes, None if end is None else Index(end)))
    except CorruptEntry as error:
        return str(error)


def check(monkeypatch: pytest.MonkeyPatch, store: Any, rng: random.Random) -> int:
    """All is the same; how many reads gave runs."""
    last, count = store.end.position.index, 0
    for begin in range(last + 1):
        max_bytes, end = rng.randrange(1, 3000), rng.choice([None, rng.randint(begin, last + 5)])
        found = read(store, begin, max_bytes, end)
        if not isinstance(found, str):
            count += isinstance(store.read(Index(begin), max_bytes, end), Entries)
        with monkeypatch.context() as patched:
            patched.setattr(reader, "LEAST_BYTES", ONE_BY_ONE)
            expected = read(store, begin, max_bytes, end)
        if isinstance(found, str) or isinstance(expected, str):
            assert found == expected
        else:  # a file's end may end the one sooner than the other
            assert found == expected[: len(found)]
            assert len(found) >= min(1, len(expected))
    return count


@pytest.mark.parametrize("seed", range(5))
def test_runs_are_the_entries_that_are_read_one_by_one(kit, monkeypatch, seed):
    _, store = filled(kit, segment_bytes=4096, index_file_bytes=3200)
    assert check(monkeypatch, store, random.Random(seed)) > 20
    store.close()


@pytest.mark.parametrize("seed", range(30))
def test_damage_is_found_and_named_as_when_entries_are_read_one_by_one(kit, monkeypatch, seed):
    rng = random.Random(f"damage {seed}")
    disk, store = filled(kit)
    for _ in range(rng.randint(1, 4)):
        kit.flip(disk, rng.randrange(store.end.end_pos), mask=rng.choice([0xFF, 1, 0x80]))
    check(monkeypatch, store, rng)


@pytest.mark.parametrize("seed", range(30))
def test_a_wrong_index_misleads_no_read(kit, monkeypatch, seed):
    rng = random.Random(f"index {seed}")
    disk, store = filled(kit)
    for pos in range(0, (store.end.position.index + 1) * UNIT_SIZE, INDEX_FILE):
        name = kit.root / "index" / file_name(pos)
        disk.flip(name, rng.randrange(INDEX_FILE), rng.choice([0xFF, 1, 0x80]))
    check(monkeypatch, store, rng)
