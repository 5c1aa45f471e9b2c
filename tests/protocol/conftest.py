"""The memory that a piece of a test takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest


@pytest.fixture
def allocates_less_than() -> Callable[[int], AbstractContextManager[None]]:
    """A context that never takes as many bytes at a time."""

    @contextmanager
    def measured(size: int) -> Iterator[None]:
        tracemalloc.start()
        try:
            yield
            assert tracemalloc.get_traced_memory()[1] < size
        finally:
            tracemalloc.stop()

    return measured
