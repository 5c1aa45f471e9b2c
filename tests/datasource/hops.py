"""Spark's part between its processes: each hop is a pickle."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any


def hop(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def batches_of(reader: Any, slices: Iterable[Any]) -> list[Any]:
    """The Arrow batches of these tasks, in an executor."""
    executor = hop(reader)
    return [batch for one in slices for batch in executor.read(hop(one))]


def rows_of(reader: Any, slices: Iterable[Any]) -> list[dict[str, Any]]:
    return [row for batch in batches_of(reader, slices) for row in batch.to_pylist()]
