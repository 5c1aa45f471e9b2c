"""A plugin for pytest: the fixture ``dledger_group``, a new group for each test that asks for it,
and the mark of the same name, which says how that group is.

``pytest_plugins = ["dledger.testing.pytest_plugin"]`` in the top conftest.py loads it. It is no
entry point: by one, pytest would rewrite the assertions of each module of dledger in each run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from dledger.testing.in_process_group import InProcessGroup

MARK: Final = "dledger_group"
_SIGNATURE: Final = f"{MARK}(replicas=3, on_disk=False, **settings)"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{_SIGNATURE}: the group that a test is given")


@pytest.fixture
def dledger_group(request: pytest.FixtureRequest) -> Iterator[InProcessGroup]:
    """Three nodes with a leader and no topics, which end with the test; in memory.

    ``@pytest.mark.dledger_group(replicas=1, on_disk=True, retention_ms=1000)`` asks for another
    number of nodes, for files in the test's ``tmp_path``, which pytest keeps for a while, and for
    settings of a group or a node. The mark nearest to the test counts, value by value.

    Raises:
        ConfigError, UnknownOption: a value of the mark cannot be.
    """
    # Arrow is loaded by the tests that need it, not at each start.
    from dledger.testing.in_process_group import InProcessGroup

    wanted = _wanted(request.node)
    if wanted.pop("on_disk", False):
        wanted["directory"] = request.getfixturevalue("tmp_path") / "dledger"
    with InProcessGroup(**wanted) as group:
        yield group


def _wanted(test: pytest.Item) -> dict[str, Any]:
    """What the marks of a test, its class and its module say together."""
    from dledger.errors import ConfigError

    wanted: dict[str, Any] = {}
    for mark in test.iter_markers(MARK):
        if mark.args:
            raise ConfigError(f"the mark takes values by name: @pytest.mark.{_SIGNATURE}")
        wanted = {**mark.kwargs, **wanted}
    return wanted
