"""A plugin for pytest: the fixture ``dledger_group``, a new group for each test that asks for it.

``pytest_plugins = ["dledger.testing.pytest_plugin"]`` in the top conftest.py loads it. It is no
entry point: by one, pytest would rewrite the assertions of each module of dledger in each run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dledger.testing.in_process_group import InProcessGroup


@pytest.fixture
def dledger_group() -> Iterator[InProcessGroup]:
    """Three nodes with a leader and no topics; they end with the test, and their files go."""
    # Arrow is loaded by the tests that need it, not at each start.
    from dledger.testing.in_process_group import InProcessGroup

    with InProcessGroup() as group:
        yield group
