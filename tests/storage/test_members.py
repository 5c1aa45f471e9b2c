"""The record of which incarnations count: kept through crashes, and never half believed."""

from __future__ import annotations

from dledger.protocol.messages.membership import Change, Membership
from dledger.storage.offline.verify import verify_store
from dledger.types import Index, NodeId, Position, Term
from verification.disk.memory_disk import MemoryDisk, kills

BOUND = ((NodeId("n0"), 5), (NodeId("n1"), (1 << 63) - 1))


def test_membership_of_a_new_directory_is_only_its_own_incarnation(kit, disk, store):
    """No member counts yet."""
    drawn = store.identity.incarnation
    assert store.membership == Membership(drawn)
    assert not store.membership.founded
    store = kit.reopen(store, disk)
    assert store.membership == Membership(drawn)
    store.close()
    assert kit.open(MemoryDisk()).identity.incarnation != drawn


def test_membership_saved_is_there_after_a_power_cut_at_once(kit, disk, store):
    changes = (Change(Position(Term(4), Index(13)), Index(12), NodeId("n1"), 8),)
    for saved in (
        Membership(store.identity.incarnation, Index(-1), BOUND),
        Membership(77, Index(12), BOUND[:1]),
        Membership(77, Index(12), BOUND[:1], changes, Term(3)),
        Membership(
            7,
            Index(-1),
            BOUND,
            group_id="A",
            ancestors=(("B", 9),),
            members=(NodeId("n0"), NodeId("n1")),
        ),
    ):
        store.save_membership(saved)
        store = kit.restart(disk, power=True)
        assert store.membership == saved
        assert store.identity.incarnation == saved.incarnation
    store.close()


def test_crash_at_any_operation_leaves_the_old_membership_or_the_new_one(kit):
    first, second = Membership(7, Index(3), BOUND), Membership(8, Index(9), BOUND[1:])

    def saved():
        disk, store = kit.fresh()
        store.save_membership(first)
        return disk, store

    for disk, _ in kills(saved, lambda _, store: store.save_membership(second), least=4):
        disk.reboot(power=True, choose=lambda n: n // 2)
        assert kit.open(disk).membership in (first, second)


def test_damaged_copy_is_healed_and_two_change_the_incarnation(kit, disk, store):
    """The copies are those of the membership record of the node."""
    saved = Membership(store.identity.incarnation, Index(3), BOUND)
    store.save_membership(saved)
    store.close()
    path = kit.root / "members"
    disk.flip(path, 50)
    assert verify_store(kit.root, disk)["problems"] if disk.listdir(kit.root / "data") else True
    store = kit.open(disk)
    assert store.membership == saved
    assert any("members" in note for note in store.recovery.notes)
    store.close()
    disk.flip(path, 50)
    disk.flip(path, 4096 + 50)
    store = kit.open(disk)
    assert store.membership.incarnation != saved.incarnation
    assert not store.membership.founded
    store.close()
