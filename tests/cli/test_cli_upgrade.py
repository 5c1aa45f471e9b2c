"""``dledger upgrade``; with nodes of the release before, it is in ``tests/compatibility``."""

from __future__ import annotations

import pytest

from dledger.catalog.versions import BRINGS
from dledger.release import GROUP_VERSION
from dledger.testing import InProcessGroup
from tests.cli.commands import out, refusal, run

ACTIVE = f"group version {GROUP_VERSION} is active"


def test_group_is_upgraded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with InProcessGroup(1, founding_version=0) as group:
        monkeypatch.setenv("DLEDGER_BOOTSTRAP", group.bootstrap_servers)
        assert f"'dledger upgrade --check' says what version {GROUP_VERSION}" in out("status")
        said = out("upgrade --check")
        assert said.endswith("possible: dledger upgrade\n")
        assert BRINGS[GROUP_VERSION][-1] in said
        assert ["n0", "0.2.0", "0", "to", "1", "0"] in [line.split() for line in said.splitlines()]
        assert out("upgrade --check") == said
        assert out("upgrade").endswith(f"{ACTIVE} now\n")
        for words in ("", "--check", group.bootstrap_servers):
            assert out(f"upgrade {words}").endswith(f"{ACTIVE}\n")
        assert "upgrade" not in out("status")


def test_new_group_needs_no_upgrade() -> None:
    with InProcessGroup(3) as group:
        assert out(f"upgrade {group.bootstrap_servers}").endswith(f"{ACTIVE}\n")


def test_upgrade_that_is_not_possible_names_the_member() -> None:
    with InProcessGroup(3, founding_version=0) as group:
        down = next(node for node in group.nodes if node != group.leader)
        group.kill(down)
        for server in group._servers.values():  # as nodes that began when it was down
            server.parts.gate.supporting.pop(down)
        done = run(f"upgrade --check {group.bootstrap_servers}")
        assert done.exit_code == 1
        assert f"not possible yet: {down} has not been here" in done.stdout
        assert f"{down} has not been here" in refusal(f"upgrade {group.bootstrap_servers}")


def test_upgrade_of_no_group_in_particular_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DLEDGER_BOOTSTRAP", raising=False)
    assert "bootstrap" in refusal("upgrade")
