"""Files that are read again when they change."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.errors import ConfigError
from dledger.net.reloaded import Reloaded


class Pair:
    """Two files that fit when they have the same text."""

    def __init__(self, folder: Path) -> None:
        self.one, self.two = folder / "one", folder / "two"
        self.write("a", "a")
        self.reads = 0

    def write(self, one: str, two: str) -> None:
        self.one.write_text(one)
        self.two.write_text(two)

    def load(self) -> str:
        self.reads += 1
        try:
            one, two = self.one.read_text(), self.two.read_text()
        except OSError as error:
            raise ConfigError(f"{error.filename} is gone") from None
        if one != two:
            raise ConfigError(f"{one} does not fit {two}")
        return one


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def reloaded(pair: Pair) -> Reloaded[str]:
    return Reloaded([str(pair.one), "", str(pair.two)], pair.load)


def test_what_changed_is_used_when_two_looks_find_it_alike(pair: Pair) -> None:
    files = reloaded(pair)
    assert files.changed() == []
    pair.write("new", "new")
    assert files.changed() == []
    assert files.value == "a"
    assert files.changed() == [str(pair.one), str(pair.two)]
    assert files.value == "new"
    assert files.changed() == []
    assert pair.reads == 2, "files that are as they were are not read"


def test_a_pair_that_does_not_fit_leaves_the_former_with_one_warning(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    files = reloaded(pair)
    pair.one.write_text("new")
    for _ in range(5):
        assert files.changed() == []
    pair.one.unlink()
    assert files.changed(at_once=True) == []
    assert files.value == "a"
    pair.write("new", "new")
    assert files.changed(at_once=True)
    assert files.value == "new"
    assert [text.partition(": ")[2] for text in caplog.messages] == [
        "new does not fit a",
        f"{pair.one} is gone",
    ]


def test_a_file_that_is_replaced_by_one_of_its_size_and_time_is_noticed(pair: Pair) -> None:
    import os

    files = reloaded(pair)
    for path in (pair.one, pair.two):
        old, new = path.stat(), path.with_suffix(".new")
        new.write_text("b")
        os.utime(new, ns=(old.st_atime_ns, old.st_mtime_ns))
        new.replace(path)
    assert files.changed(at_once=True)
    assert files.value == "b"


def test_files_must_be_sound_at_the_start(pair: Pair) -> None:
    pair.one.write_text("x")
    with pytest.raises(ConfigError, match="does not fit"):
        reloaded(pair)
