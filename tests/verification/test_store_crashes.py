"""Crashes of a RocketMQ store: a share of what ``make crash-points`` tries."""

from __future__ import annotations

import pytest

from dledger.rocketmq.store.files import NEW
from verification.disk.memory_disk import MemoryFile
from verification.disk_states.message_stores import crash, sweep
from verification.disk_states.promise import BrokenPromise


@pytest.mark.parametrize("seed", [3, 8, 17])
def test_a_crashed_store_starts_and_has_what_it_promised(seed: int) -> None:
    tally = sweep(range(seed, seed + 1), every=3)
    assert not tally.findings
    assert tally.killed == tally.cut == tally.points > 10


def test_a_script_without_a_crash_keeps_its_promises() -> None:
    assert crash(5, None, power=False) == crash(5, None, power=True) > 50


def test_a_store_that_syncs_nothing_but_lengths_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sync = MemoryFile.fdatasync
    monkeypatch.setattr(
        MemoryFile, "fdatasync", lambda file: sync(file) if file.path.suffix == NEW else None
    )
    with pytest.raises(BrokenPromise):
        crash(3, None, power=False)
