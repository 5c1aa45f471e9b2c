"""The double-slot record: never half there, and no single damaged byte brings an older one back
(D5, B13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.errors import CorruptStore
from dledger.protocol.messages.entry import HardState, LogEnd
from dledger.storage.api import Identity
from dledger.storage.meta.hard_state import StateRecord, imported_hard_state
from dledger.storage.meta.recovery_point import RecoveryPoint
from dledger.storage.meta.slots import SLOT_SIZE, SlotFile, create_slots, pack_slot, unpack_slot
from dledger.types import Index, NodeId, Position, Term
from verification.disk.memory_disk import MemoryDisk, ProcessKilled

PATH = Path("/disk/record")
MAGIC = b"test"


def open_slots(disk: MemoryDisk) -> SlotFile:
    return SlotFile(disk.open(PATH), MAGIC)


@pytest.fixture
def slots(disk) -> SlotFile:
    create_slots(disk, PATH, MAGIC, b"first")
    return open_slots(disk)


def test_slot_is_read_back_and_any_changed_byte_makes_it_invalid():
    slot = pack_slot(MAGIC, 7, b"payload")
    assert len(slot) == SLOT_SIZE
    assert unpack_slot(MAGIC, slot) == (7, b"payload")
    assert unpack_slot(b"else", slot) is None
    assert unpack_slot(MAGIC, slot[:-1]) is None
    for offset in range(SLOT_SIZE):
        damaged = bytearray(slot)
        damaged[offset] ^= 1
        assert unpack_slot(MAGIC, bytes(damaged)) is None
    with pytest.raises(ValueError, match="does not fit"):
        pack_slot(MAGIC, 1, bytes(SLOT_SIZE))


def test_write_without_settle_never_harms_the_settled_record(disk, slots):
    slots.write_both(b"second")
    for n in range(5):
        slots.write(b"loose %d" % n)
    assert open_slots(disk).payload == b"loose 4"
    disk.reboot(power=True)
    assert open_slots(disk).payload == b"second"


def test_D5_one_damaged_slot_of_a_saved_record_is_made_up_for_by_the_other(disk, slots):
    """With one copy only, a byte of rot would bring the record before it back, and a vote would be
    given twice."""
    slots.write_both(b"second")
    slots.write_both(b"third")
    for offset in range(2 * SLOT_SIZE):
        disk.flip(PATH, offset)
        assert open_slots(disk).payload == b"third"
        assert open_slots(disk).damaged
        disk.flip(PATH, offset)
    assert not open_slots(disk).damaged


@pytest.mark.parametrize("torn", [0, 1, 23, 24, 30, 511, 512, 4095])
def test_torn_write_leaves_the_old_or_the_new_record(disk, slots, torn):
    for write in (0, 2):
        old = open_slots(disk).payload
        disk.kill_at, disk.kill_short = disk.operations + write, torn
        with pytest.raises(ProcessKilled):
            open_slots(disk).write_both(b"new %d" % write)
        disk.reboot(power=False)
        assert open_slots(disk).payload in (old, b"new %d" % write)


def test_D5_hard_state_survives_any_damaged_byte_of_its_file(kit, disk, store):
    store.save_hard_state(HardState(Term(4), NodeId("n1")))
    store.save_hard_state(HardState(Term(5), NodeId("n2")))
    store.close()
    path = kit.root / "state"
    for offset in [*range(120), *range(SLOT_SIZE, SLOT_SIZE + 120), 4000, 8191]:
        disk.flip(path, offset)
        store = kit.open(disk)
        assert (store.hard_state.term, store.hard_state.voted_for) == (5, "n2")
        assert any("written again" in note for note in store.recovery.notes)
        store.close()
    disk.flip(path, 30)
    disk.flip(path, SLOT_SIZE + 30)
    kit.refuses(disk, CorruptStore, "cannot know what it voted")


def test_records_are_packed_and_unpacked():
    for vote in (None, NodeId("n2")):
        record = StateRecord(
            Identity("gruppe", NodeId("n0"), 2**63 - 1), HardState(Term(-1), vote, Index(3)), 9, 8
        )
        assert StateRecord.unpack(record.pack()) == record
    end = LogEnd(Position(Term(3), Index(4)), 5, 0xFFFFFFFF)
    for boot in (b"", bytes(range(16))):
        mark = RecoveryPoint(end, LogEnd(), Index(2), boot, Index(1), 7, -1)
        assert RecoveryPoint.unpack(mark.pack()) == mark


def test_files_of_dledger_give_a_hard_state():
    state = imported_hard_state(
        b"#comment\nvoteLeader=n1\ncurrTerm=7\n", b"endIndex=5\ncommittedIndex=4\n"
    )
    assert state == HardState(Term(7), NodeId("n1"), Index(4))
    assert imported_hard_state(b"voteLeader=\ncurrTerm=7", b"") == HardState(
        Term(7), None, Index(-1)
    )
    with pytest.raises((ValueError, KeyError)):
        imported_hard_state(b"voteLeader=n1", b"")
