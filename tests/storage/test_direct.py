"""Large writes past the page cache: the same bytes in the same places as through it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.storage.disk.direct_io import BLOCK, DIRECT_BYTES, STAGING_BYTES
from dledger.storage.disk.disk import RealDisk, RealFile

LENGTH = 4 << 20


def open_file(path: Path, *, is_direct: bool = True) -> RealFile:
    file = RealDisk(direct=is_direct).open(path, create=True)
    assert isinstance(file, RealFile)
    file.fallocate(LENGTH)
    return file


def skip_unless_direct(file: RealFile) -> None:
    if file._direct is None:
        pytest.skip("this file system knows no O_DIRECT")


edges = st.sampled_from(
    [0, 1, 47, 48, BLOCK - 1, BLOCK, BLOCK + 1, DIRECT_BYTES, STAGING_BYTES, STAGING_BYTES + 1]
)
writes = st.tuples(
    st.integers(0, 3 * BLOCK), st.lists(edges | st.integers(0, 3 * BLOCK), min_size=1, max_size=6)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(writes, min_size=1, max_size=6))
def test_writes_of_any_size_and_place_leave_the_same_bytes_as_a_model(tmp_path_factory, asked):
    """Small ones and large ones over one another, seen through the cache and by a second opener."""
    path = tmp_path_factory.mktemp("direct") / "file"
    file, model = open_file(path), bytearray(LENGTH)
    for offset, sizes in asked:
        data = os.urandom(sum(sizes))[: LENGTH - offset]
        # pages that the write has to take out of the cache
        file.pread(2 * BLOCK, max(0, offset - BLOCK))
        file.pwritev(
            [data[: len(data) // 3], memoryview(bytearray(data[len(data) // 3 :]))], offset
        )
        model[offset : offset + len(data)] = data
        assert file.pread(LENGTH, 0) == model
    file.fdatasync()
    assert path.read_bytes() == model


def test_large_write_goes_to_the_device_and_a_small_one_does_not(tmp_path, monkeypatch):
    seen: list[tuple[int, int]] = []
    real = os.pwrite

    def pwrite(fd: int, data: memoryview, at: int) -> int:
        seen.append((len(data), at))
        return real(fd, data, at)

    file = open_file(tmp_path / "file")
    monkeypatch.setattr(os, "pwrite", pwrite)
    file.pwritev([b"x" * (DIRECT_BYTES - 1)], 0)
    file.pwritev([b"x" * 1000] * 1000, 0)
    assert seen == [], "neither a small write nor one of many small pieces"
    file.pwritev([b"x" * 100, b"y" * DIRECT_BYTES], 10)
    skip_unless_direct(file)
    assert seen == [(DIRECT_BYTES - BLOCK, BLOCK)]
    assert file.pread(DIRECT_BYTES + 100, 10) == b"x" * 100 + b"y" * DIRECT_BYTES


@pytest.mark.parametrize("refused_at", ["open", "pwrite"])
def test_file_system_that_refuses_direct_writes_gets_cached_writes(
    tmp_path, monkeypatch, refused_at
):
    file, data, asked = open_file(tmp_path / "file"), os.urandom(DIRECT_BYTES), []

    def refuse(*args: object, **kwargs: object) -> int:
        asked.append(args)
        raise OSError(errno.EINVAL, "no O_DIRECT here")

    monkeypatch.setattr(os, refused_at, refuse)
    file.pwritev([data], 5)
    file.pwritev([data], 5 + len(data))
    monkeypatch.undo()
    assert file.pread(2 * len(data), 5) == data + data
    assert len(asked) == 1, "not tried again"


def test_error_of_the_disk_is_raised_and_not_taken_for_a_refusal(tmp_path, monkeypatch):
    file = open_file(tmp_path / "file")
    file.pwritev([bytes(DIRECT_BYTES)], 0)
    skip_unless_direct(file)

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(OSError, match="broken"):
        file.pwritev([bytes(DIRECT_BYTES)], 0)


def test_short_direct_write_is_gone_on_with_at_the_last_whole_block(tmp_path, monkeypatch):
    file, data, real, sizes = open_file(tmp_path / "file"), os.urandom(DIRECT_BYTES), os.pwrite, []

    def short(fd: int, view: memoryview, at: int) -> int:
        sizes.append(len(view))
        return (
            real(fd, view[: 3 * BLOCK], at) - 100 if len(view) > 3 * BLOCK else real(fd, view, at)
        )

    monkeypatch.setattr(os, "pwrite", short)
    file.pwritev([data], 0)
    skip_unless_direct(file)
    assert file.pread(len(data), 0) == data
    assert sizes[:2] == [DIRECT_BYTES, DIRECT_BYTES - 2 * BLOCK]
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError, match="no progress"):
        file.pwritev([data], 0)


def test_file_replaced_under_its_name_is_written_through_the_cache(tmp_path):
    """A handle keeps to its own file, whatever its old name leads to now."""
    path = tmp_path / "file"
    file = open_file(path)
    (tmp_path / "other").write_bytes(bytes(LENGTH))
    (tmp_path / "other").replace(path)
    data = os.urandom(DIRECT_BYTES)
    file.pwritev([data], 0)
    assert file.pread(len(data), 0) == data
    assert path.read_bytes() == bytes(LENGTH)


def test_disk_without_direct_writes_never_asks_for_them(tmp_path):
    file = open_file(tmp_path / "file", is_direct=False)
    file.pwritev([bytes(DIRECT_BYTES)], 0)
    assert file._direct is None
