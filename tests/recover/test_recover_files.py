"""The files of a disk that is left: a crash at any point, damage, and what the new record says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dledger.errors import ConfigError, CorruptStore, UnsupportedVersion
from dledger.node.handlers.replaced_disks import body_of
from dledger.protocol.messages.membership import Membership, check_members
from dledger.raft.state.incarnations import Admission
from dledger.raft.state.log import LogSummary, RaftLog
from dledger.recover.new_group import group_name, recover, recovered_membership
from dledger.recover.others import check_gone, other_addresses, own_address
from dledger.recover.survivor import Survivor, look_at
from dledger.storage.meta.snapshots import SnapshotFiles
from dledger.types import Index, NodeId
from tests.recover.conftest import append_bodies, listing
from tests.storage.conftest import Kit
from verification.disk.memory_disk import MemoryDisk, kills

kit = Kit()
DRAWN = "0123456789abcdef" * 2
MEMBERS = ("n0", "n1", "n2")


def made(
    group: str = "default", *bodies: bytes, listed: bool = False
) -> tuple[MemoryDisk, Survivor]:
    """The stopped node n0 of three, whose last entries only it has."""
    disk, store = kit.fresh(group=group)
    kit.append(store, [100, 200])
    store.sync()
    store.note_commit(Index(1))
    membership = Membership(
        incarnation=store.identity.incarnation,
        index=Index(-1),
        bound=tuple((NodeId(name), 1 + at) for at, name in enumerate(MEMBERS)),
        group_id=DRAWN if group == DRAWN else "old",
        members=tuple(map(NodeId, MEMBERS)),
    )
    if listed:
        membership = membership.with_list(listing(*MEMBERS))
    store.save_membership(membership)
    append_bodies(store, *(bodies or (bytes(50),)))
    store.close()
    return disk, look_at(kit.root, disk)


def _recover(disk: MemoryDisk, survivor: Survivor) -> None:
    recover(survivor, "h:7", group_name(survivor, None), disk)


@pytest.mark.parametrize("group", ["default", DRAWN])
@pytest.mark.parametrize("choose", [None, lambda n: 0, lambda n: n // 2, lambda n: n - 1])
def test_crash_at_any_operation_leaves_the_old_group_or_the_new(
    group: str, choose: Callable[[int], int] | None
) -> None:
    """Said again it is brought to its end, and there is one new group."""
    old = made(group)[1]
    for disk, survivor in kills(lambda: made(group), _recover, least=5):
        disk.reboot(choose is not None, choose)
        found = look_at(kit.root, disk)
        is_new = found.group_id != old.group_id
        assert found.is_alone == is_new
        assert is_new or found == survivor
        name = group_name(found, None)
        done = recover(found, "h:7", name, disk)
        assert done.group_id == found.group_id or not is_new
        disk.reboot(power=True)
        last = look_at(kit.root, disk)
        assert (last.group_id, last.group, last.is_alone) == (done.group_id, "default", True)
        assert (last.end, last.committed) == (old.end, old.committed)
        store = kit.open(disk, is_alone=True)
        assert store.end.position == old.end
        kit.close_sound(store, disk)


def test_record_of_the_new_group() -> None:
    """One voter, under the disk's own incarnation; a node starts with the list of the old group."""
    _, survivor = made()
    known = recovered_membership(survivor, "h:7", "new")
    assert known.ancestors == (("old", 1),)
    assert known.members == ("n0",)
    assert [(m.id, m.host, m.port, m.incarnation) for m in known.listed] == [
        ("n0", "h", 7, survivor.membership.incarnation)
    ]
    assert known.bound == (("n0", survivor.membership.incarnation),)
    for fine in (MEMBERS, ("n0",)):
        check_members(known, tuple(map(NodeId, fine)))
    with pytest.raises(ConfigError, match="files say that the group's members are n0"):
        check_members(known, (NodeId("n0"), NodeId("n1")))


def test_change_that_only_this_disk_has_makes_no_members() -> None:
    """It will be applied, and the next change goes behind it; a node that learns of it later does
    not take its list, of the group before, for the new group's."""
    change = body_of(Index(-1), listing(*MEMBERS, "n3"))
    void = body_of(Index(0), listing("n0"))
    _, survivor = made("default", change, void)
    assert survivor.voters == (*MEMBERS, "n3")
    assert (survivor.changed.index, survivor.end.index, survivor.committed) == (2, 3, 1)
    known = recovered_membership(survivor, "h:7", "new")
    assert known.index == 2
    assert known.ancestors == (("old", 1), ("old-n0", 3))
    log = RaftLog(LogSummary(), 1 << 20)
    assert Admission(NodeId("n0"), known, log=log).shared_index == 3


def test_voters_that_are_left_are_counted_by_the_newest_list() -> None:
    """n3 is in it and not among the founders, so a disk is no majority of four by two."""
    _, survivor = made("default", body_of(Index(-1), listing(*MEMBERS, "n3")))
    assert own_address(survivor, {}) == "127.0.0.1:7000"
    assert set(other_addresses(survivor, {})) == {"n1", "n2", "n3"}
    check_gone(survivor, [])
    _, survivor = made("default", body_of(Index(-1), listing("n0")))
    with pytest.raises(ConfigError, match="not needed"):
        check_gone(survivor, [])


def test_list_in_the_log_has_the_addresses() -> None:
    _, survivor = made(listed=True)
    assert other_addresses(survivor, {}) == {"n1": "127.0.0.1:7001", "n2": "127.0.0.1:7002"}
    assert other_addresses(survivor, {NodeId("n1"): "h:1"})["n1"] == "h:1"
    assert not survivor.is_admitted


def test_damage_that_nothing_may_rely_on_is_refused() -> None:
    disk, survivor = made("default", bytes(50), bytes(50))
    entry = kit.open(disk).read(Index(2), 1)[0]
    disk.flip(kit.data(entry.pos), entry.pos % kit.segment + 60)
    disk.reboot(power=False)
    with pytest.raises(CorruptStore, match="entries 2 to 2 are damaged"):
        look_at(kit.root, disk)
    disk, survivor = made()
    for slot in range(2):
        disk.flip(kit.root / "members", 4096 * slot + 50)
    with pytest.raises(CorruptStore, match="nobody knows which group this is"):
        look_at(kit.root, disk)
    assert survivor.cut == ""


def test_disk_of_no_group_or_of_a_newer_release_is_refused() -> None:
    disk, store = kit.fresh()
    kit.append(store, [100])
    store.save_group_version(99, "9.9.9")
    store.close()
    with pytest.raises(UnsupportedVersion, match=r"install dledger 9\.9\.9"):
        look_at(kit.root, disk)
    disk, store = kit.fresh()
    kit.append(store, [100])
    store.close()
    with pytest.raises(ConfigError, match="belongs to no group"):
        look_at(kit.root, disk)


def test_disk_that_lost_committed_entries_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, survivor = made()
    disk.mkdir(kit.root / "snapshot")
    SnapshotFiles(kit.root / "snapshot", disk).save(Index(9), b"of a longer log")
    monkeypatch.setattr("dledger.recover.survivor.topic_ids_of", lambda data: ({}, 1))
    with pytest.raises(CorruptStore, match="ends with entry 2, and entry 9 was known"):
        look_at(kit.root, disk)
    assert survivor.end.index == 2


def test_names_of_groups() -> None:
    """A drawn name passes for an id, so it goes; another one stays."""
    _, drawn = made(DRAWN)
    assert group_name(drawn, None) == "default"
    assert group_name(drawn, "orders") == "orders"
    with pytest.raises(ConfigError, match="passes for a group's id"):
        group_name(drawn, DRAWN)
    _, named = made()
    assert group_name(named, "default") == "default"
    with pytest.raises(ConfigError, match="keeps its name"):
        group_name(named, "orders")
