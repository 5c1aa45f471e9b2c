"""Crashes at every operation of the disk: of the process, and of the system with what was not
synced lost or torn."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from dledger.protocol.messages.entry import Entry, HardState
from dledger.storage.background import BackgroundState
from dledger.storage.log import index
from dledger.storage.offline.verify import verify_store
from dledger.types import Index, NodeId, Position, Term
from verification.disk.memory_disk import MemoryDisk, ProcessKilled, kills


@pytest.fixture(autouse=True, params=[1, 512])
def some_units_wait(each_unit_is_written: None, request, monkeypatch) -> None:
    """Index units are written at once, or none is before a clean end."""
    monkeypatch.setattr(index, "WAITING_UNITS", request.param)


class Run:
    """A node's life up to a crash, and what it was promised."""

    def __init__(
        self, kit, disk: MemoryDisk, keeping: BackgroundState = BackgroundState.INLINE
    ) -> None:
        self.kit = kit
        self.disk = disk
        self.keeping = keeping
        self.log: list[Entry] = []
        """What was appended, whether it arrived or not."""
        self.older: list[Entry] = []
        """The log in front of the truncation that may be in progress."""
        self.durable = -1
        self.states: list[HardState] = [HardState()]
        """Saved ones; the last one perhaps not."""
        self.saved = 0
        self.committed = -1

    def save(self, store, state: HardState) -> None:
        self.states.append(state)
        store.save_hard_state(state)
        self.saved = len(self.states) - 1

    def append(self, store, sizes: list[int], term: int, salt: int = 0) -> None:
        entries = self.kit.make(store.end, sizes, term, salt=salt)
        self.log = self.log + entries
        store.append(entries)

    def sync(self, store) -> None:
        self.durable = store.sync().index

    def truncate(self, store, after: int) -> None:
        self.older, self.log = self.log, self.log[: after + 1]
        self.durable = min(self.durable, after)
        store.truncate(Index(after))
        self.older = []

    def live(self) -> None:
        """Everything a node does, over several files of both kinds."""
        store = self.kit.open(self.disk, self.keeping)
        self.save(store, HardState(Term(1)))
        self.save(store, HardState(Term(1), NodeId("n1")))
        for size in (100, 300, 500, 20):
            self.append(store, [size, size // 2], 1)
            self.sync(store)
        store.note_commit(Index(2))
        self.committed = 2
        self.save(store, HardState(Term(2), NodeId("n0"), Index(2)))
        self.append(store, [900, 10, 928, 400], 2)
        self.sync(store)
        self.append(store, [300] * 4, 2)
        self.save(store, HardState(Term(3), None, Index(2)))
        self.truncate(store, 4)
        self.append(store, [50] * 8, 3, salt=1)
        self.sync(store)
        store.close()

    def check(self) -> None:
        """The next process starts by itself and finds what was promised."""
        store = self.kit.open(self.disk, self.keeping)
        found = self.kit.bytes_of(self.kit.all(store))
        expected, older = self.kit.bytes_of(self.log), self.kit.bytes_of(self.older)
        assert found in (expected[: len(found)], older[: len(found)]), (
            "not the log, nor a prefix of it"
        )
        assert len(found) > self.durable, (
            f"{self.durable} was durable, {len(found)} entries are there"
        )
        assert store.durable.index == len(found) - 1
        assert store.recovery.faulty == (), store.recovery
        state = store.hard_state
        promised = [(s.term, s.voted_for) for s in self.states[self.saved :]]
        assert (state.term, state.voted_for) in promised, "a vote or term was lost"
        self.kit.fill(store, [33], term=9)
        self.kit.close_sound(store, self.disk)


def lives(kit, keeping: BackgroundState) -> Iterator[tuple[MemoryDisk, Run]]:
    """Of nodes that were killed in front of one operation after the other."""

    def born() -> tuple[MemoryDisk, Run]:
        disk = MemoryDisk()
        return disk, Run(kit, disk, keeping)

    return kills(born, lambda _, run: run.live(), least=101)


@pytest.mark.parametrize("keeping", [BackgroundState.INLINE, BackgroundState.MANUAL])
@pytest.mark.parametrize("outcome", ["process", "lost", "survived", "seed 1", "seed 2", "seed 3"])
def test_B4_B5_B13_crash_at_every_operation_keeps_every_promise(kit, keeping, outcome):
    """Covers creation, append, sync, rolls, both records, truncation over files, and close."""
    for at, (disk, run) in enumerate(lives(kit, keeping)):
        kit.crash(disk, outcome, at)
        try:
            run.check()
        except AssertionError as error:
            raise AssertionError(
                f"killed at {at}, in front of {disk.trace[at - 2 : at + 1]}: {error}"
            ) from error


@pytest.mark.parametrize("cut_first", [True, False])
def test_D15_whatever_a_store_says_at_start_survives_a_power_cut(kit, cut_first):
    """A killed process leaves pages and names that were never synced. The next one reads them, so
    it has to make them durable before it acts on them: the log, the index, the term and vote, and
    the files it goes on in."""
    for disk, _ in lives(kit, BackgroundState.INLINE):
        store = kit.restart(disk, BackgroundState.MANUAL, power=False)
        seen = store.end, store.hard_state
        names = {path: inode for path, inode in disk.durable_names.items() if path.suffix != ".new"}
        assert names == disk.names, "a name that only the cache knows"
        loose = [path.name for path, inode in disk.names.items() if inode.written != inode.durable]
        assert loose == [], "bytes that only the cache knows"
        if cut_first:
            store = kit.restart(disk, BackgroundState.MANUAL, power=True)
            assert (store.end, store.hard_state) == seen
        entries = kit.all(store) + kit.fill(store, [900, 900], term=9)
        store = kit.restart(disk, power=True)
        assert kit.bytes_of(kit.all(store)) == kit.bytes_of(entries)
        kit.close_sound(store, disk)


@pytest.mark.parametrize("outcome", ["process", "lost", "survived", "seed"])
def test_crash_while_recovering_from_a_crash_recovers_all_the_same(kit, outcome):
    whole = MemoryDisk()
    Run(kit, whole, BackgroundState.MANUAL).live()
    for at in range(whole.operations - 41, whole.operations, 8):

        def crashed(at: int = at) -> tuple[MemoryDisk, Run]:
            disk = MemoryDisk()
            run = Run(kit, disk, BackgroundState.MANUAL)
            disk.kill_at = at
            with pytest.raises(ProcessKilled):
                run.live()
            disk.reboot(True, random.Random(at).randrange)
            return disk, run

        recoveries = kills(crashed, lambda disk, _: kit.open(disk, BackgroundState.MANUAL))
        for disk, run in recoveries:
            kit.crash(disk, outcome)
            run.check()


@pytest.mark.parametrize("outcome", ["process", "lost", "survived", "seed 5", "seed 6"])
@pytest.mark.parametrize("after", [-1, 0, 3, 5, 6])
def test_B20_crash_in_a_truncation_across_files_leaves_a_prefix(kit, outcome, after):
    """Whole files go from the end, so a crash leaves the old log, the new one, or one cut at a file
    between them."""

    def prepared() -> tuple[MemoryDisk, object, list[Entry]]:
        disk, store = kit.fresh()
        return disk, store, kit.fill(store, [500] * 8)

    for step, (disk, _, entries) in enumerate(
        kills(prepared, lambda _, store, __: store.truncate(Index(after)), least=6)
    ):
        kit.crash(disk, outcome, step)
        store = kit.open(disk)
        found = kit.bytes_of(kit.all(store))
        assert found == kit.bytes_of(entries)[: len(found)]
        assert len(found) >= after + 1
        files = {entry.pos // kit.segment for entry in entries[len(found) :]}
        kept = {entry.pos // kit.segment for entry in entries[: len(found)]}
        assert not files & kept or len(found) == after + 1, (
            "cut inside a file, but not where it was asked"
        )
        more = kit.fill(store, [300, 300], term=2, salt=3)
        assert kit.bytes_of(kit.all(store)) == found + kit.bytes_of(more)
        kit.close_sound(store, disk)


def test_truncated_entries_never_come_back(kit, disk, store):
    """DLedger only moves its write position, so that they do."""
    entries = kit.fill(store, [100] * 6)
    store.truncate(Index(2))
    store = kit.restart(disk, power=False)
    assert store.end.position == entries[2].position
    kit.fill(store, [20], term=2)
    store = kit.restart(disk, power=True)
    assert store.end.position == Position(Term(2), Index(3))


@pytest.mark.parametrize("seed", range(40))
def test_B4_B5_any_life_with_any_crashes_keeps_what_was_promised(kit, seed):
    """Random appends, syncs, commits, cuts, votes and housekeeping; crashes anywhere, over several
    lives."""
    dice = random.Random(seed)
    disk = MemoryDisk()
    run = Run(kit, disk, BackgroundState.MANUAL)
    term, crashes = 1, 0
    for life in range(8):
        disk.kill_at = disk.operations + dice.randrange(1, 120)
        disk.kill_short = dice.choice([None, 0, 10, 100, 600])
        try:
            store = kit.open(disk, dice.choice([BackgroundState.MANUAL, BackgroundState.INLINE]))
            for _ in range(40):
                term = _random_step(dice, run, store, term, salt=life)
            store.close()
        except ProcessKilled:
            crashes += 1
        disk.reboot(dice.random() < 0.5, dice.choice([None, dice.randrange]))
        store = kit.open(disk, BackgroundState.MANUAL)
        assert store.recovery.faulty == ()
        entries = kit.all(store)
        found = kit.bytes_of(entries)
        assert found in (kit.bytes_of(run.log[: len(found)]), kit.bytes_of(run.older[: len(found)]))
        assert len(found) - 1 >= max(run.durable, run.committed)
        state = store.hard_state
        assert (state.term, state.voted_for) in [
            (s.term, s.voted_for) for s in run.states[run.saved :]
        ]
        run.log, run.older, run.durable = entries, [], len(entries) - 1
        run.committed = store.hard_state.commit_hint
        run.states, run.saved = [state], 0
        term = max(state.term, 1)
        store.close()
    assert crashes > 2
    assert verify_store(kit.root, disk)["problems"] == []


def _random_step(dice: random.Random, run: Run, store, term: int, salt: int) -> int:
    what = dice.randrange(10)
    if what <= 3 and store.hard_state.term >= term:
        sizes = [dice.choice([0, 1, 40, 200, 500, 928]) for _ in range(dice.randrange(1, 5))]
        run.append(store, sizes, term, salt)
    elif what <= 5:
        run.sync(store)
        store.note_commit(Index(dice.randrange(-1, run.durable + 1)))
        run.committed = max(
            run.committed, store._commit if store.durable.index == run.durable else -1
        )
    elif what == 6:
        store.keep()
    elif what == 7 or store.hard_state.term < term:
        term = max(store.hard_state.term, term) + dice.randrange(2)
        state = store.hard_state
        vote = (
            state.voted_for
            if term == state.term
            else dice.choice([None, NodeId("n1"), NodeId("n2")])
        )
        run.save(store, HardState(Term(term), vote, state.commit_hint))
    elif what == 8 and len(run.log) > 1:
        after = dice.randrange(max(store._commit, -1), len(run.log))
        if after < len(run.log) - 1:
            run.truncate(store, after)
    return term
