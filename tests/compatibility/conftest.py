"""The scripts here are modules for the tests beside them; the release before."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are no packages


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter that has the release before."""
    from old_release import NotThere, install

    try:
        return install(tmp_path_factory.mktemp("old"))
    except NotThere as reason:
        pytest.skip(f"the release before is not there: {reason}")
