"""``dledger rocketmq search`` where index files are missing, cut, or not what they were."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from dledger.errors import FormatError
from dledger.rocketmq.format.message import Message
from dledger.rocketmq.store.message_store import MessageStore
from tests.cli.commands import carried_out, flip

SLOTS = 16
UNITS = 40
COUNT = 150
FILES = 4
"""Index files of the store, about 38 messages in each."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with keys, some with two, over several files of the index and of the log."""
    root = tmp_path_factory.mktemp("whole")
    clock = iter(range(1_790_000_000_000, 1_790_000_000_000 + 10_000_000, 1000))
    with MessageStore(
        root,
        file_size=8192,
        units_in_file=100,
        index_slots=SLOTS,
        index_units=UNITS,
        clock=lambda: next(clock),
    ) as store:
        for n in range(COUNT):
            store.put_message(
                Message("orders", f"{n}".encode() * 9, f"KEYS\x01k{n}" + " twice" * (n % 50 == 7))
            )
    assert len(list((root / "index").iterdir())) == FILES
    return root


def search(root: Path, key: str) -> tuple[int, list[int], str]:
    """Exit code, places of what was found, what was told beside."""
    words = f"--topic orders --key {key} --index-slots {SLOTS}"
    done = carried_out(f"rocketmq search {root} {words}")
    found = [json.loads(line)["physical_offset"] for line in done.stdout.splitlines()]
    return done.exit_code, found, done.stderr


@pytest.fixture(scope="module")
def places(whole: Path) -> dict[str, list[int]]:
    return {key: search(whole, key)[1] for key in [*(f"k{n}" for n in range(COUNT)), "twice"]}


def cut_at(size: int) -> Callable[[Path], None]:
    def cut(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:size])

    return cut


def zeros_from(at: int) -> Callable[[Path], None]:
    def clear(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[:at].ljust(len(data), b"\0"))

    return clear


def flipped(at: int) -> Callable[[Path], None]:
    return partial(flip, at=at)


UNITS_AT = 40 + 4 * SLOTS
HOLES = {
    "removed": Path.unlink,
    "empty": cut_at(0),
    "cut in the header": cut_at(30),
    "cut in the slots": cut_at(60),
    "cut between units": cut_at(UNITS_AT + 20 * 10),
    "cut in a unit": cut_at(UNITS_AT + 20 * 10 + 7),
    "zeros behind some units": zeros_from(UNITS_AT + 20 * 10),
    "zeros behind the header": zeros_from(40),
    "first place changed": flipped(16 + 6),
    "last place changed": flipped(24 + 6),
    "count changed": flipped(39),
    "place of the first unit changed": flipped(UNITS_AT + 20 + 4 + 6),
    "place of a unit changed": flipped(UNITS_AT + 20 * 10 + 4 + 6),
}


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    """A copy of the store, which may be damaged."""
    return shutil.copytree(whole, tmp_path / "store")


def files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


@pytest.mark.parametrize("number", range(FILES))
@pytest.mark.parametrize("hole", HOLES)
def test_search_finds_every_message_of_a_key_over_a_hole_in_the_index(
    store: Path, places: dict[str, list[int]], hole: str, number: int
) -> None:
    HOLES[hole](files(store)[number])
    for n in (0, 9, 10, 37, 38, 39, 75, 76, 77, 110, 114, 149):
        code, found, told = search(store, f"k{n}")
        assert (code, found) == (0, places[f"k{n}"]), told
    assert search(store, "twice")[:2] == (0, places["twice"])


def test_search_finds_key_of_message_whose_other_keys_are_lost(tmp_path: Path) -> None:
    """The other keys were in an index file that is gone."""
    with MessageStore(
        tmp_path, index_slots=SLOTS, index_units=4, file_size=8192, units_in_file=100
    ) as store:
        for n in range(5):
            store.put_message(
                Message("orders", b"x", "KEYS\x01" + " ".join(f"m{n}w{word}" for word in range(5)))
            )
    words = [f"m{n}w{word}" for n in range(5) for word in range(5)]
    before = {word: search(tmp_path, word)[1] for word in words}
    assert all(len(found) == 1 for found in before.values())
    for path in files(tmp_path):
        data = path.read_bytes()
        path.unlink()
        assert {word: search(tmp_path, word)[1] for word in words} == before
        path.write_bytes(data)


def test_search_tells_which_index_file_it_cannot_use(store: Path) -> None:
    cut_at(60)(files(store)[1])
    told = search(store, "k1")[2]
    assert str(files(store)[1]) in told
    assert "read through" in told
    for path in files(store):
        cut_at(60)(path)
    with pytest.raises(FormatError, match="move it out of the folder"):
        search(store, "k1")


def test_search_tells_of_a_file_that_the_log_lacks(store: Path) -> None:
    logs = sorted((store / "commitlog").iterdir())
    logs[1].unlink()
    code, found, told = search(store, "k80")
    assert (code, found) == (1, [])
    assert "and the log has none there" in told
    assert "no file has these bytes" in told


@pytest.mark.parametrize("end", ["file missing", "cut", "zeros"])
def test_search_tells_that_the_log_ends_before_the_index_does(store: Path, end: str) -> None:
    last = sorted((store / "commitlog").iterdir())[-1]
    {"file missing": Path.unlink, "cut": cut_at(150), "zeros": zeros_from(150)}[end](last)
    code, found, told = search(store, "k1")
    assert (code, len(found)) == (0, 1)
    assert "the log has lost its end" in told
