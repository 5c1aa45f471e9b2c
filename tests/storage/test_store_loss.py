"""A log that ends before what its own files know to be committed."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest

from dledger.errors import ConfigError, CorruptStore
from dledger.protocol.messages.entry import HardState
from dledger.protocol.messages.membership import Change, Member, MemberRole, Membership
from dledger.storage.background import BackgroundState
from dledger.storage.meta.snapshots import SNAPSHOTS, SnapshotFiles
from dledger.types import Index, NodeId, Position, Term
from verification.disk.memory_disk import MemoryDisk, kills

WHY = "the log ends at entry 2, but entries up to 5 were committed here: the disk has lost them"
OLD = 11


BY_HINT, BY_CHECKPOINT = "by hint", "by checkpoint"
WAYS = pytest.mark.parametrize("way", [BY_HINT, BY_CHECKPOINT])


def disk_that_lost_entries(kit, way: str = BY_HINT, known: Membership | None = None) -> MemoryDisk:
    """Entries 0 to 5 were synced and committed; of data, index and mark the disk has what they were
    after entry 2. What else it knows of the others is the hint of a commit, or a checkpoint of the
    catalog."""
    disk, store = kit.fresh(BackgroundState.MANUAL)
    kit.fill(store, [60] * 3)
    three = ((NodeId("n0"), OLD), (NodeId("n1"), 12), (NodeId("n2"), 13))
    store.save_membership(known or Membership(OLD, bound=three))
    store.keep()
    store.save_hard_state(HardState(Term(2), NodeId("n1"), Index(2)))
    before = {
        path: bytes(inode.written)
        for path, inode in disk.names.items()
        if lost_with(kit, path, way)
    }
    kit.fill(store, [60] * 3)
    store.note_commit(Index(5))
    store.save_hard_state(HardState(Term(2), NodeId("n1"), Index(5)))
    if way == BY_CHECKPOINT:
        for index in (2, 5):
            checkpoints_of(kit, disk).save(Index(index), b"state")
    store.close()
    for path, content in before.items():
        inode = disk.names[path]
        inode.written[:], inode.durable[:] = content, content
    disk.reboot(power=True)
    return disk


def lost_with(kit, path: Path, way: str) -> bool:
    with_hint = {kit.root / "state"} if way == BY_CHECKPOINT else set()
    return path.parent.name in {"data", "index"} or path in {kit.root / "mark"} | with_hint


def checkpoints_of(kit, disk) -> SnapshotFiles:
    return SnapshotFiles(kit.root / SNAPSHOTS, disk)


def test_a_damaged_checkpoint_beyond_the_log_tells_of_no_loss(kit):
    disk = disk_that_lost_entries(kit, BY_CHECKPOINT)
    path = kit.root / SNAPSHOTS / f"{5:020d}"
    disk.names[path].written[-1] ^= 1
    store = kit.open(disk)
    assert (store.recovery.lost, store.identity.incarnation) == ("", OLD)
    store.close()


@WAYS
def test_member_that_lost_committed_entries_gets_a_new_incarnation(kit, caplog, way):
    """The member also reports the loss."""
    disk = disk_that_lost_entries(kit, way)
    store = kit.open(disk)
    assert store.recovery.lost.startswith(WHY)

    assert store.recovery.lost in caplog.text
    assert store.identity.incarnation != OLD
    assert store.membership.of(NodeId("n0")) == OLD, "the one that counts, which this is no more"
    assert store.hard_state == HardState(Term(2), NodeId("n1"), Index(2))
    known = store.identity.incarnation
    store = kit.reopen(store, disk)
    assert (store.recovery.lost, store.identity.incarnation) == ("", known)
    store.close()


@WAYS
@pytest.mark.parametrize("power", [False, True])
def test_crash_keeps_the_loss_known_until_the_new_incarnation_exists(kit, power, way):
    whole = disk_that_lost_entries(kit, way)
    for (disk,) in kills(
        lambda: (copy.deepcopy(whole),), lambda disk: kit.open(disk).close(), least=21
    ):
        killed_at = disk.operations
        store = kit.restart(disk, power=power)
        assert store.identity.incarnation != OLD, f"killed at operation {killed_at}"


@WAYS
def test_lone_node_that_lost_committed_entries_needs_the_exact_index(kit, way):
    """It starts only when the accepted index is the last one that is left."""
    disk = disk_that_lost_entries(kit, way)
    says = f"{WHY}, and the group has no other voter.*--accept-loss 2'"
    kit.refuses(disk, CorruptStore, says, is_alone=True)
    for wrong in (-1, 1, 3, 5):
        says = f"--accept-loss {wrong}: not for .* its log ends at entry 2"
        kit.refuses(disk, ConfigError, says, is_alone=True, accept_loss=wrong)
    store = kit.open(disk, is_alone=True, accept_loss=2)
    assert store.recovery.lost == f"{WHY}, which was accepted"
    assert store.identity.incarnation == OLD
    kit.fill(store, [60], term=2)
    store = kit.reopen(store, disk, is_alone=True)
    assert (store.recovery.lost, store.end.position.index) == ("", 3)
    kit.fill(store, [60] * 3, term=2)
    store.close()
    if way == BY_CHECKPOINT:
        newest = checkpoints_of(kit, disk).load(6)
        assert newest == (2, b"state"), (
            "a checkpoint of what is lost would take the place of what was written since"
        )


def test_nonexistent_or_recoverable_loss_is_not_accepted(kit, disk, store):
    """A loss is recoverable where other members have the entries."""
    kit.fill(store, [60] * 3)
    store.close()
    says = r"--accept-loss 2: not for .* nothing is lost that only it had"
    for lossy, alone in ((disk, True), (disk_that_lost_entries(kit), False)):
        kit.refuses(lossy, ConfigError, says, is_alone=alone, accept_loss=2)


def listed(*roles: MemberRole) -> tuple[Member, ...]:
    return tuple(
        Member(NodeId(f"n{number}"), "host", 7001 + number, role, OLD + number)
        for number, role in enumerate(roles)
    )


VOTER, LEARNER, OBSERVER = MemberRole
ONE = (NodeId("n0"),)
THREE = (NodeId("n0"), NodeId("n1"), NodeId("n2"))


@pytest.mark.parametrize(
    ("founders", "now", "soon", "alone"),
    [
        (ONE, (), (), True),
        (THREE, (), (), False),
        (ONE, (VOTER, VOTER, VOTER), (), False),
        (THREE, (VOTER,), (), True),
        (THREE, (VOTER, LEARNER, OBSERVER), (), True),
        (ONE, (VOTER,), (VOTER, VOTER), False),
        (THREE, (VOTER, VOTER), (VOTER,), False),
    ],
)
def test_whether_a_node_is_alone_goes_by_the_members_of_today(kit, founders, now, soon, alone):
    """The settings may say what the group was founded with; a list that is under way counts too."""
    known = Membership(OLD, Index(0), bound=((NodeId("n0"), OLD),), members=founders)
    known = known.with_list(listed(*now)) if now else known
    changes = (Change(Position(Term(2), Index(1)), Index(0), NodeId(""), 0, listed(*soon)),)
    disk = disk_that_lost_entries(kit, known=replace(known, changes=changes if soon else ()))
    told = len(founders) == 1
    if alone:
        kit.refuses(disk, CorruptStore, "--accept-loss 2", is_alone=told)
    else:
        says = "nothing is lost that only it had"
        kit.refuses(disk, ConfigError, says, is_alone=told, accept_loss=2)
        assert kit.open(disk, is_alone=told).identity.incarnation != OLD
