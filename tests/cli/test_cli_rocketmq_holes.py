"""``dledger rocketmq search`` where index files are missing, cut, or not what they were."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from dledger.cli.main import main
from dledger.errors import FormatError
from dledger.rocketmq.format.message import Message
from dledger.rocketmq.store.message_store import MessageStore

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
    words = [
        "rocketmq",
        "search",
        str(root),
        "--topic",
        "orders",
        "--key",
        key,
        "--index-slots",
        str(SLOTS),
    ]
    done = CliRunner().invoke(main, words, standalone_mode=False)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return (
        done.exit_code,
        [json.loads(line)["physical_offset"] for line in done.stdout.splitlines()],
        done.stderr,
    )


@pytest.fixture(scope="module")
def places(whole: Path) -> dict[str, list[int]]:
    return {key: search(whole, key)[1] for key in [*(f"k{n}" for n in range(COUNT)), "twice"]}


def remove(path: Path) -> None:
    path.unlink()


def cut_at(size: int) -> Callable[[Path], None]:
    def cut(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:size])

    return cut


def zeros_from(at: int) -> Callable[[Path], None]:
    def clear(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[:at].ljust(len(data), b"\0"))

    return clear


def flip(at: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    return change


UNITS_AT = 40 + 4 * SLOTS
HOLES = {
    "removed": remove,
    "empty": cut_at(0),
    "cut in the header": cut_at(30),
    "cut in the slots": cut_at(60),
    "cut between units": cut_at(UNITS_AT + 20 * 10),
    "cut in a unit": cut_at(UNITS_AT + 20 * 10 + 7),
    "zeros behind some units": zeros_from(UNITS_AT + 20 * 10),
    "zeros behind the header": zeros_from(40),
    "first place changed": flip(16 + 6),
    "last place changed": flip(24 + 6),
    "count changed": flip(39),
    "place of the first unit changed": flip(UNITS_AT + 20 + 4 + 6),
    "place of a unit changed": flip(UNITS_AT + 20 * 10 + 4 + 6),
}


def files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


@pytest.mark.parametrize("number", range(FILES))
@pytest.mark.parametrize("hole", HOLES)
def test_search_finds_every_message_of_a_key_over_a_hole_in_the_index(
    whole: Path, places: dict[str, list[int]], tmp_path: Path, hole: str, number: int
) -> None:
    root = tmp_path / "store"
    shutil.copytree(whole, root)
    HOLES[hole](files(root)[number])
    for n in (0, 9, 10, 37, 38, 39, 75, 76, 77, 110, 114, 149):
        code, found, told = search(root, f"k{n}")
        assert (code, found) == (0, places[f"k{n}"]), told
    assert search(root, "twice")[:2] == (0, places["twice"])


def test_search_finds_key_of_message_whose_other_keys_are_lost(whole: Path, tmp_path: Path) -> None:
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


def test_search_tells_which_index_file_it_cannot_use(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    cut_at(60)(files(tmp_path)[1])
    told = search(tmp_path, "k1")[2]
    assert str(files(tmp_path)[1]) in told
    assert "read through" in told
    for path in files(tmp_path):
        cut_at(60)(path)
    with pytest.raises(FormatError, match="move it out of the folder"):
        search(tmp_path, "k1")


def test_search_tells_of_a_file_that_the_log_lacks(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    logs = sorted((tmp_path / "commitlog").iterdir())
    logs[1].unlink()
    code, found, told = search(tmp_path, "k80")
    assert (code, found) == (1, [])
    assert "and the log has none there" in told
    assert "no file has these bytes" in told


@pytest.mark.parametrize("end", ["file missing", "cut", "zeros"])
def test_search_tells_that_the_log_ends_before_the_index_does(
    whole: Path, tmp_path: Path, end: str
) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    last = sorted((tmp_path / "commitlog").iterdir())[-1]
    {"file missing": remove, "cut": cut_at(150), "zeros": zeros_from(150)}[end](last)
    code, found, told = search(tmp_path, "k1")
    assert (code, len(found)) == (0, 1)
    assert "the log has lost its end" in told
