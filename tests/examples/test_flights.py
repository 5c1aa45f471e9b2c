"""What the flights demo hands to Spark, so that what Spark makes of it is in order."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example's own module."""
    monkeypatch.syspath_prepend(str(TOP / "examples"))
    from flights import data  # type: ignore[import-not-found]

    return data


@pytest.mark.parametrize("widen", [1, -1])
def test_pieces_are_in_order_by_age_and_by_size(data: Any, tmp_path: Path, widen: int) -> None:
    """Two pieces in one micro-batch are read by size; lines that grow or shrink must not turn that
    around."""
    lines = [f"{n}," + "x" * (60 + widen * n // 200) for n in range(6_000)]
    data.write_pieces(lines, tmp_path / "inbox", 30)
    pieces = sorted((tmp_path / "inbox").iterdir())
    assert len(pieces) == 30
    assert [line for piece in pieces for line in piece.read_text().splitlines()] == lines
    stats = [piece.stat() for piece in pieces]
    assert all(older.st_mtime < newer.st_mtime for older, newer in pairwise(stats))
    assert all(older.st_size > newer.st_size for older, newer in pairwise(stats))
