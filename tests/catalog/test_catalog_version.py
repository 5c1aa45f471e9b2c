"""The group version as catalog state, and which commands it allows."""

from __future__ import annotations

import pytest

from dledger.catalog import state_machine
from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.catalog.versions import BRINGS, FIRST_TAG, SINCE, too_new
from dledger.errors import UnsupportedVersion
from dledger.protocol.messages.catalog_commands import CreateTopic, DeleteTopic, UpgradeGroup
from dledger.protocol.wire.message_numbers import COMMANDS
from dledger.release import FIRST_RELEASES, GROUP_VERSION

NEWEST = UpgradeGroup(version=GROUP_VERSION, release=FIRST_RELEASES[GROUP_VERSION])
NEXT = UpgradeGroup(version=GROUP_VERSION + 1, release="9.8.7")


def test_each_later_command_has_the_version_that_allows_it() -> None:
    later = {command for tag, command in COMMANDS.items() if tag >= FIRST_TAG}
    assert later == set(SINCE)
    assert all(0 <= version <= GROUP_VERSION for version in SINCE.values())


def test_each_version_says_what_it_brings_and_from_which_release_on() -> None:
    assert list(BRINGS) == list(FIRST_RELEASES) == list(range(1, GROUP_VERSION + 1))


def test_version_never_falls() -> None:
    catalog = Catalog(MemoryTables())
    assert catalog.apply_command(0, NEWEST).result == {"version": GROUP_VERSION}
    older = UpgradeGroup(version=GROUP_VERSION - 1, release="0.0.1")
    assert catalog.apply_command(1, older).result == {"version": GROUP_VERSION}
    assert catalog.version.release == NEWEST.release


def test_version_stands_in_the_snapshot_once_there_is_one() -> None:
    tables = MemoryTables()
    catalog = Catalog(tables)
    assert b"version" not in catalog.snapshot()
    assert Catalog.restore(catalog.snapshot(), tables).version.active == 0
    catalog.apply_command(0, NEWEST)
    again = Catalog.restore(catalog.snapshot(), tables)
    assert (again.version.active, again.version.release) == (GROUP_VERSION, NEWEST.release)


def test_newer_version_is_neither_applied_nor_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the release to install, and the state is as it was."""
    catalog = Catalog(MemoryTables())
    with pytest.raises(UnsupportedVersion, match=r"install dledger 9\.8\.7 or newer"):
        catalog.apply_command(0, NEXT)
    assert (catalog.version.active, catalog.applied_index) == (0, -1)
    monkeypatch.setattr(state_machine, "check_supported", lambda *_: None)
    newer = Catalog(MemoryTables())
    newer.apply_command(0, NEXT)
    data = newer.snapshot()
    monkeypatch.undo()
    with pytest.raises(UnsupportedVersion, match=r"install dledger 9\.8\.7 or newer"):
        Catalog.restore(data, MemoryTables())


def test_command_of_a_later_version_is_too_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SINCE, CreateTopic, 1)
    text = too_new(CreateTopic(name="t", log_id="l"), 0)
    assert text == "CreateTopic needs group version 1; run 'dledger upgrade'"
    assert not too_new(CreateTopic(name="t", log_id="l"), 1)
    assert not too_new(DeleteTopic(name="t"), 0)
