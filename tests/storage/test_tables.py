"""Tables in files are what tables in memory are, and outlive crashes up to the last sync."""

from __future__ import annotations

import errno
import random
import sys
import threading
from pathlib import Path

import pytest

from dledger.catalog.topics.table import MemoryTables
from dledger.errors import CorruptStore, DiskFull, StorageError
from dledger.storage.meta.tables import BUFFER_BYTES, CHUNK_ROWS, FileTable, TableFiles
from verification.disk.memory_disk import MemoryDisk, kills

ROOT = Path("/disk/n0/tables")


def row(number: int) -> bytes:
    return number.to_bytes(8, "big") + bytes([number % 251]) * 4


def rows(begin: int, end: int) -> bytes:
    return b"".join(map(row, range(begin, end)))


def opened(disk: MemoryDisk, name: str = "t") -> FileTable:
    """A table as the next process finds it."""
    return TableFiles(ROOT, disk).open(name, 12)


@pytest.fixture
def files(disk: MemoryDisk) -> TableFiles:
    return TableFiles(ROOT, disk)


@pytest.fixture
def table(files: TableFiles) -> FileTable:
    return files.open("t", 12)


@pytest.fixture(params=["memory", "files"])
def tables(request, disk):
    return MemoryTables() if request.param == "memory" else TableFiles(ROOT, disk)


def test_rows_are_read_back_by_number(tables):
    table = tables.open("topic-1", 12)
    assert (table.begin, table.end) == (0, 0)
    for number in range(10):
        table.append(row(number))
    table.append(row(10) + row(11))
    assert table.end == 12
    assert bytes(table.read(3, 5)) == row(3) + row(4)
    assert bytes(table.read(0, 12)) == rows(0, 12)
    assert bytes(table.read(4, 4)) == b""
    for start, stop in [(0, 13), (12, 13), (-1, 2)]:
        with pytest.raises(CorruptStore):
            table.read(start, stop)


def test_open_gives_the_same_table_and_refuses_another_row_size(tables):
    tables.open("a", 12).append(row(1))
    assert tables.open("a", 12).end == 1
    with pytest.raises(CorruptStore, match="rows of 12 bytes, not 16"):
        tables.open("a", 16)
    tables.open("a-b", 4)
    assert tables.names() == ["a", "a-b"]
    tables.remove("a")
    tables.remove("never-there")
    assert tables.names() == ["a-b"]
    assert tables.open("a", 16).end == 0


def test_truncate_and_drop_front_keep_the_numbers(tables):
    table = tables.open("t", 12)
    for number in range(20):
        table.append(row(number))
    table.truncate(15)
    table.drop_front(5)
    assert table.end == 15
    assert bytes(table.read(5, 15)) == rows(5, 15)
    table.append(row(100))
    assert bytes(table.read(15, 16)) == row(100)
    with pytest.raises(CorruptStore, match="fewer"):
        table.truncate(17)
    table.truncate(2)
    assert table.end == 2
    table.append(row(2))
    assert bytes(table.read(2, 3)) == row(2)


def test_any_steps_give_what_tables_in_memory_give(disk):
    """Random appends, cuts, drops, syncs and restarts, against the model."""
    dice = random.Random(7)
    files, model = TableFiles(ROOT, disk), MemoryTables()
    for _ in range(400):
        ours, theirs = files.open("t", 12), model.open("t", 12)
        what = dice.randrange(6)
        if what <= 1:
            count = dice.choice([1, 3, CHUNK_ROWS])
            rows = b"".join(row(theirs.end + n) for n in range(count))
            ours.append(rows)
            theirs.append(rows)
        elif what == 2:
            end = dice.randrange(max(theirs.begin - 50, 0), theirs.end + 1)
            ours.truncate(end)
            theirs.truncate(end)
        elif what == 3:
            begin = dice.randrange(theirs.begin, theirs.end + 1)
            ours.drop_front(begin)
            theirs.drop_front(begin)
        elif what == 4:
            files.sync()
            files.close()
            files = TableFiles(ROOT, disk)
            ours = files.open("t", 12)
        assert ours.end == theirs.end
        assert ours.begin <= theirs.begin
        low = dice.randrange(theirs.begin, theirs.end + 1)
        high = min(theirs.end, low + 50)
        assert bytes(ours.read(low, high)) == bytes(theirs.read(low, high))


def test_dropped_rows_give_their_space_back(disk):
    table = opened(disk)
    table.append(rows(0, 4 * CHUNK_ROWS))
    table.sync()
    table.drop_front(3 * CHUNK_ROWS)
    (name,) = disk.listdir(ROOT)
    assert name == f"t.{3 * CHUNK_ROWS:020d}"
    assert len(disk.content(ROOT / name)) < 2 * CHUNK_ROWS * 16
    assert opened(disk).begin == 3 * CHUNK_ROWS


@pytest.mark.parametrize("power", [True, False])
def test_crash_at_every_operation_keeps_what_was_synced(power):
    def live(disk: MemoryDisk, ends: list[int]) -> None:
        files = TableFiles(ROOT, disk)
        table = files.open("t", 12)
        for count in [CHUNK_ROWS // 2] * 4 + [1]:
            table.append(rows(table.end, table.end + count))
            files.sync()
            ends.append(table.end)
            if table.end == 2 * CHUNK_ROWS:
                table.drop_front(CHUNK_ROWS + 5)

    for at, (disk, ends) in enumerate(kills(lambda: (MemoryDisk(), [0]), live)):
        synced = ends[-1]
        disk.reboot(power, random.Random(at).randrange if power else None)
        table = opened(disk)
        assert table.end >= synced
        table.truncate(synced)
        begin = min(synced, CHUNK_ROWS + 5)
        assert bytes(table.read(begin, synced)) == rows(begin, synced)
        table.append(row(synced))
        assert bytes(table.read(synced, synced + 1)) == row(synced)


@pytest.mark.parametrize("power", [True, False])
def test_a_crash_in_a_start_that_truncates_all_rows_leaves_no_old_row(
    power,
):
    """A start from the older checkpoint, whose rows retention has dropped since, takes all rows
    away and appends them again from the log; interrupted, the next one does."""
    synced, known = CHUNK_ROWS * 2, CHUNK_ROWS + 7

    def dropped() -> tuple[MemoryDisk]:
        disk = MemoryDisk()
        files = TableFiles(ROOT, disk)
        table = files.open("t", 12)
        table.append(rows(0, synced))
        files.sync()
        table.drop_front(known + 5)
        assert disk.listdir(ROOT) == [f"t.{known + 5:020d}"]
        return (disk,)

    def start(disk: MemoryDisk) -> None:
        files = TableFiles(ROOT, disk)
        table = files.open("t", 12)
        table.truncate(known)
        assert (table.begin, table.end) == (known, known)
        table.append(row(known) + row(known + 1))
        files.sync()

    for at, (disk,) in enumerate(kills(dropped, start)):
        disk.reboot(power, random.Random(at).randrange if power else None)
        start(disk)
        disk.reboot(power=True)
        table = opened(disk)
        assert (table.begin, table.end) == (known, known + 2)
        assert bytes(table.read(known, known + 2)) == row(known) + row(known + 1)


@pytest.mark.parametrize("operation", ["fsync_dir", "unlink"])
def test_d12_rows_that_cannot_follow_their_renamed_file_stop_the_node(
    disk, operation, files, table
):
    """Going on with the old file would leave the new one behind; a later start would take it for
    the older of two."""
    table.append(rows(0, 3 * CHUNK_ROWS))
    files.sync()
    disk.fail(operation, "tables", errno.ENOSPC, times=1)
    with pytest.raises(StorageError, match="this node stops"):
        table.drop_front(2 * CHUNK_ROWS)
    disk.reboot(power=False)
    assert opened(disk).end == 3 * CHUNK_ROWS


def test_table_file_is_made_by_the_first_sync_and_synced_only_if_changed(disk, files):
    """Whoever appends on another thread waits for no file to be made, be there thousands of
    tables."""
    operations = disk.operations
    tables = [files.open(f"t{number}", 12) for number in range(3)]
    for table in tables[:2]:
        table.append(row(0))
    assert disk.operations == operations
    files.sync()
    assert [name.partition(".")[0] for name in disk.listdir(ROOT)] == ["t0", "t1"]
    operations = disk.operations
    files.sync()
    assert disk.operations == operations
    disk.reboot(power=True)
    again = TableFiles(ROOT, disk)
    assert [again.open(f"t{number}", 12).end for number in range(3)] == [1, 1, 0]


def test_rows_are_read_and_appended_while_another_thread_syncs(disk, files, table):
    done = threading.Event()

    def keep_syncing() -> None:
        while not done.is_set():
            files.sync()

    syncer, interval = threading.Thread(target=keep_syncing), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    syncer.start()
    try:
        for number in range(3000):
            table.append(row(number))
            low = max(0, number - 40)
            assert table.read(low, number + 1) == rows(low, number + 1)
    finally:
        sys.setswitchinterval(interval)
        done.set()
        syncer.join()
    files.sync()
    assert opened(disk).read(0, 3000) == rows(0, 3000)


def test_any_damaged_row_is_refused_and_named(disk, files, table):
    for number in range(3):
        table.append(row(number))
    files.sync()
    path = ROOT / disk.listdir(ROOT)[0]
    for offset in range(64, 64 + 3 * 16):
        disk.flip(path, offset)
        number = (offset - 64) // 16
        with pytest.raises(CorruptStore, match=f"row {number} of"):
            table.read(number, number + 1)
        disk.flip(path, offset)
    content = disk.content(path)
    content[64:80], content[80:96] = content[80:96], content[64:80]
    with pytest.raises(CorruptStore, match="row 0"):
        table.read(0, 1)


def test_damaged_table_header_is_refused(disk, files):
    files.open("t", 12).append(row(0))
    files.sync()
    for offset in range(64):
        disk.flip(ROOT / disk.listdir(ROOT)[0], offset)
        with pytest.raises(CorruptStore, match="header is damaged"):
            opened(disk)
        disk.flip(ROOT / disk.listdir(ROOT)[0], offset)
    assert opened(disk).end == 1


@pytest.mark.parametrize("operation", ["pwritev", "fdatasync"])
def test_D2_failing_disk_is_a_storage_error(disk, operation, files, table):
    table.append(row(0))
    disk.fail(operation)
    with pytest.raises(StorageError, match="this node stops"):
        files.sync()


def test_D12_rows_without_room_wait_in_memory_and_are_written_later(disk, files):
    table, other = files.open("t", 12), files.open("u", 12)
    other.append(row(0))
    files.sync()
    disk.free = 0
    big = [row(number) for number in range(BUFFER_BYTES // 16 + 2)]
    for one in big:
        table.append(one)
    other.append(row(1))
    assert table.read(0, len(big)) == b"".join(big)
    for _ in range(2):
        with pytest.raises(DiskFull, match="free some space"):
            files.sync()
    assert [name.partition(".")[0] for name in disk.listdir(ROOT) if not name.endswith(".new")] == [
        "u"
    ]
    disk.free = 1 << 30
    files.sync()
    disk.reboot(power=True)
    assert opened(disk).read(0, len(big)) == b"".join(big)
    assert opened(disk, "u").end == 2


def test_D12_rows_not_synced_due_to_another_full_table_are_synced_later(disk, files):
    tables = [files.open(name, 12) for name in "abc"]
    for number in range(2):
        for table in tables:
            table.append(row(number))
        if number:
            disk.fail("pwritev", "tables/b", code=errno.ENOSPC, times=1)
            with pytest.raises(DiskFull):
                files.sync()
        files.sync()
    disk.reboot(power=True)
    assert [opened(disk, name).end for name in "abc"] == [2, 2, 2]


class Telling(bytearray):
    """Rows that wait, and whoever looks at the table while they are handed over."""

    def __init__(self, look) -> None:
        super().__init__()
        self._look = look

    def clear(self) -> None:
        self._look()
        super().clear()


def test_row_numbers_do_not_change_while_a_checkpoint_writes_the_rows(disk):
    """Between the two steps of that the loop may append: a wrong number would be in the new row's
    checksum."""
    tables, seen = TableFiles(ROOT, disk), []
    table = tables.open("a", 12)
    table.append(row(0))
    tables.sync()
    table._waiting = Telling(lambda: seen.append(table.end))
    table.append(row(1))
    thread = threading.Thread(target=tables.sync)
    thread.start()
    thread.join()
    table.append(row(2))
    assert (seen, table.end) == ([2], 3)
    assert bytes(table.read(0, 3)) == rows(0, 3)
