"""The release before."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter that has the release before."""
    from tests.compatibility.old_release import NotThere, install

    try:
        return install(tmp_path_factory.mktemp("old"))
    except NotThere as reason:
        pytest.skip(f"the release before is not there: {reason}")
