"""Changed bytes: a share of what ``make byte-flips`` tries, and that it sees planted bugs."""

from __future__ import annotations

import pytest

from dledger.storage.log.reader import Reader
from dledger.storage.log.walker import Chain
from dledger.storage.meta.slots import SLOT_SIZE, SlotFile
from dledger.storage.meta.tables import FileTable
from dledger.storage.recovery import recovery
from dledger.storage.recovery import snapshot_install as install
from tests.verification.watching import shown
from verification.disk_states.campaign import flip_campaign
from verification.disk_states.flips import flip_all
from verification.disk_states.images import images, kind_of, places

OFFSETS = 500


def test_B7_B8_every_changed_byte_is_mended_or_named_and_never_served(capsys):
    result = shown(capsys, lambda out: flip_campaign(OFFSETS, 1, out))
    figures = result["figures"]
    assert figures["flips"] >= OFFSETS
    ended = ("repaired", "rebuilt", "reported", "unread")
    assert figures["flips"] == sum(figures[end] for end in ended)
    assert figures["repaired"] > OFFSETS // 3
    assert figures["unread"] < OFFSETS // 100
    assert figures["live"] > OFFSETS // 3


def test_only_what_nothing_reads_or_its_owner_rebuilds_stays_as_it_is():
    """The entries, the hard state, the mark, the index and the other records are always mended."""
    for image, every in zip(images(), (997, 997, 997, 97, 97), strict=True):
        tally = flip_all(image, places(image)[::every], live=False)
        assert {name for name, counts in tally.kinds.items() if counts.reported} <= {
            "data: padding",
            "data: padding's header",
            "snapshot: newest",
            "snapshot: the one before",
            "table: header",
            "table: rows",
            "state that waits: table",
            "state that waits: snapshot",
        }


# --- planted bugs ---------------------------------------------------------------------------------


def records_stand_in_one_slot_only(monkeypatch):
    def write_both(slots, payload):
        slots.write(payload)
        slots.settle()

    monkeypatch.setattr(SlotFile, "write_both", write_both)
    return "state"


def readers_check_no_checksums(monkeypatch):
    monkeypatch.setattr("dledger.storage.log.reader.body_is_sound", lambda entry: True)
    return "data"


def chain_of_headers_is_not_checked(monkeypatch):
    def follows(chain, entry):
        chain._seeds = (entry.chain_crc,)
        return True

    monkeypatch.setattr(Chain, "follows", follows)
    return "data"


def units_of_the_index_are_believed(monkeypatch):
    monkeypatch.setattr(Reader, "_fits", lambda reader, unit, view: True)
    return "index"


def log_is_cut_at_the_first_damage(monkeypatch):
    """DLedger's rule."""
    monkeypatch.setattr(recovery, "_lost_pages", lambda *args: True)
    return "data"


def record_of_a_state_is_believed(monkeypatch):
    """Its last copy, whatever its checksum says."""
    real = SlotFile

    def believing(file, magic):
        slots = real(file, magic)
        stored = file.pread(2 * SLOT_SIZE, 0)
        payload = stored[SLOT_SIZE:][24:].rstrip(b"\0")
        slots.payload = payload if payload.startswith(b"{") else slots.payload
        return slots

    monkeypatch.setattr(install, "SlotFile", believing)
    return install.INSTALL_FILE


def rows_of_tables_are_believed(monkeypatch):
    def verified(table, stored, number):
        step = table._step
        return b"".join(stored[at : at + table.row_size] for at in range(0, len(stored), step))

    monkeypatch.setattr(FileTable, "_verified", verified)
    return "tables"


@pytest.mark.parametrize(
    "plant",
    [
        records_stand_in_one_slot_only,
        readers_check_no_checksums,
        chain_of_headers_is_not_checked,
        units_of_the_index_are_believed,
        log_is_cut_at_the_first_damage,
        record_of_a_state_is_believed,
        rows_of_tables_are_believed,
    ],
)
def test_check_of_stored_bytes_that_is_taken_out_is_seen(plant, monkeypatch):
    where = plant(monkeypatch)
    for image in images():
        chosen = [
            (path, offset)
            for path, offset in places(image)
            if where in {path.name, path.parent.name}
        ]
        tally = flip_all(image, chosen[:: max(1, len(chosen) // 150)])
        if tally.findings:
            return
    pytest.fail("nothing was seen")


def test_bytes_are_told_apart_by_what_they_belong_to():
    kinds = {
        image.name: {kind_of(image, *place)[0] for place in places(image)} for image in images()
    }
    plain = {
        "data: header", "data: body", "data: padding's header", "data: padding", "data: free space",
        "index: unit", "index: free space", "hard state and identity", "mark", "members",
        "snapshot: newest", "snapshot: the one before", "table: header", "table: rows",
    }  # fmt: skip
    assert kinds["stopped"] == kinds["killed"] == kinds["restarted"] == plain
    assert kinds["has taken over a state"] == (
        plain - {"members", "snapshot: the one before"}
        | {"install record", "index: unit of an entry that is gone"}
    )
    assert kinds["waits for a state"] == {
        "hard state and identity",
        "mark",
        "install record",
        "files that a state takes the place of",
        "state that waits: log",
        "state that waits: table",
        "state that waits: snapshot",
    }
