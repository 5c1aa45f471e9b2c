"""Old plain commit logs as they are found, closed and copied, before a group goes on behind
them."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dledger.errors import CorruptStore, PathError
from dledger.rocketmq.format.consume_queue_unit import ConsumeQueueUnit, encode_units
from dledger.rocketmq.format.message import Message, TransactionType, encode_blank
from dledger.rocketmq.format.scan import scan
from dledger.rocketmq.format.scanned_piece import PieceKind
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.message_store import MessageStore
from dledger.rocketmq.upgrade.adoption import Adoption, close_last_file, copy_store
from dledger.rocketmq.upgrade.examine import examine
from dledger.rocketmq.upgrade.old_commit_log import Adopted, OldCommitLog
from tests.rocketmq.made_logs import flip, golden, overwrite

SIZE = 65_536


def make_store(root: Path, count: int = 300) -> Path:
    with MessageStore(root, file_size=SIZE) as store:
        store.put_messages(
            Message(("orders", "bills")[n % 2], b"%06d" % n * 50, f"UNIQ_KEY\x01u{n}", n // 2 % 2)
            for n in range(count)
        )
    return root


def old_file(root: Path, start: int = 0) -> Path:
    return root / "commitlog" / f"{start:020d}"


def snapshot(root: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and time of every file."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files
    }


def test_the_golden_old_log_is_closed_where_the_real_broker_closed_it(tmp_path: Path) -> None:
    real = golden("old_commitlog.bin")
    (tmp_path / "commitlog").mkdir()
    path = old_file(tmp_path)
    path.write_bytes(real[:1206].ljust(SIZE, b"\0"))
    found = examine(tmp_path)
    assert (found.end, found.divided_offset, found.has_blank) == (1206, 65_536, False)
    assert found.messages == 6
    assert snapshot(tmp_path)["commitlog/" + "0" * 20][0] == real[:1206].ljust(SIZE, b"\0")
    close_last_file(found)
    assert path.read_bytes() == real
    again = examine(tmp_path)
    assert (again.end, again.divided_offset, again.has_blank) == (1206, 65_536, True)
    assert (again.fingerprint, again.queues) == (found.fingerprint, found.queues)
    close_last_file(again)
    assert path.read_bytes() == real


def test_queues_continue_after_their_last_message_or_last_unit(tmp_path: Path) -> None:
    """The last unit counts where the log has no message of the queue any more."""
    root = make_store(tmp_path)
    with MessageStore(root, file_size=SIZE) as store:
        store.put_messages([Message("gone", b"x")] * 3)
        store.put_messages(Message("orders", b"%06d" % n * 50) for n in range(300))
        store.put_message(Message("half", b"x", sys_flag=int(TransactionType.PREPARED)))
        # before queues follow: "gone" is in its queue only
        store.log.files.delete_before(store.log.files.starts[-2])
        expected = {key: end for key, end in store.queues.next_offsets().items() if end}
    found = examine(root)
    assert {(t, q): end for t, ends in found.queues.items() for q, end in ends.items()} == expected
    assert found.queues["gone"] == {0: 3}
    (root / "consumequeue" / "orders" / "0").rename(root / "kept")
    assert examine(root).queues["orders"][0] == expected["orders", 0]


def test_queues_of_topics_that_were_deleted_are_told(tmp_path: Path) -> None:
    root = make_store(tmp_path, 40)
    assert examine(root).reborn == []
    shutil.rmtree(root / "consumequeue" / "orders" / "1")
    shutil.rmtree(root / "consumequeue" / "bills")
    # of the topic that was made again: its first message has offset 0
    queues = ConsumeQueues(root / "consumequeue")
    assert queues.put("bills", 0, 0, 15_000, 100, 0)
    queues.flush()
    found = examine(root)
    assert found.reborn == ["bills/0", "bills/1", "orders/1"]
    assert found.queues == {"bills": {0: 10, 1: 10}, "orders": {0: 10, 1: 10}}
    shutil.rmtree(root / "consumequeue")
    assert examine(root).reborn == []


def test_queues_that_reach_beyond_the_log_report_that_its_end_is_lost(tmp_path: Path) -> None:
    root = make_store(tmp_path, 8)
    queue = root / "consumequeue" / "orders" / "0" / ("0" * 20)
    overwrite(queue, 40, encode_units([ConsumeQueueUnit(1 << 40, 100, 0)]))
    with pytest.raises(CorruptStore, match="put back the files that are missing at its end"):
        examine(root)


def test_a_file_that_was_made_ahead_is_the_last_one_as_for_the_original(tmp_path: Path) -> None:
    root = make_store(tmp_path)
    last = sorted((root / "commitlog").iterdir())[-1]
    found = examine(root)
    last.with_name(f"{found.divided_offset:020d}").write_bytes(bytes(SIZE))
    with pytest.raises(
        CorruptStore, match="before its file does, and there is another file behind it"
    ):
        examine(root)
    close_last_file(found)
    ahead = examine(root)
    assert (ahead.end, ahead.divided_offset) == (found.divided_offset, found.divided_offset + SIZE)
    close_last_file(ahead)
    assert ahead.last_file.read_bytes()[:8] == encode_blank(SIZE)


def test_what_a_crash_left_behind_the_last_message_is_covered_by_the_blank(tmp_path: Path) -> None:
    root = make_store(tmp_path)
    clean = examine(root)
    half = b"\0\0\1\0\xda\xa3\x20\xa7" + b"half" * 40
    overwrite(clean.last_file, clean.end - clean.starts[-1], half)
    found = examine(root)
    assert f"bytes {clean.end:,} to" in found.tail
    assert replace(found, tail="") == clean
    close_last_file(found)
    closed = examine(root)
    assert (closed.end, closed.has_blank, closed.tail) == (clean.end, True, "")


@pytest.mark.parametrize("number", [0, 1, -1])
def test_damage_that_has_messages_behind_it_is_refused(tmp_path: Path, number: int) -> None:
    root = make_store(tmp_path)
    flip(sorted((root / "commitlog").iterdir())[number], 150)
    with pytest.raises(CorruptStore, match=r"the body's CRC is .* put a sound copy"):
        examine(root)


def test_stores_that_cannot_be_adopted_say_why(tmp_path: Path) -> None:
    with pytest.raises(PathError, match="no files of a commit log"):
        examine(tmp_path / "nowhere")
    root = make_store(tmp_path / "store", 600)
    (root / "abort").touch()
    with pytest.raises(PathError, match="its broker runs, or was not stopped well"):
        examine(root)
    (root / "abort").unlink()
    files = sorted((root / "commitlog").iterdir())
    files[1].rename(tmp_path / "kept")
    with pytest.raises(CorruptStore, match="put the missing files back"):
        examine(root)
    (tmp_path / "kept").rename(files[1])
    os.truncate(files[0], SIZE - 1)
    with pytest.raises(CorruptStore, match="put the whole file back"):
        examine(root)


def test_a_log_of_ledger_mode_is_not_adopted(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    old_file(tmp_path).write_bytes(golden("dledger_data.bin"))
    with pytest.raises(PathError, match="entries of DLedger mode"):
        examine(tmp_path)


def test_two_logs_have_one_fingerprint_only_when_they_end_alike(tmp_path: Path) -> None:
    prints = [examine(make_store(tmp_path / f"{n}", n)).fingerprint for n in (50, 51)]
    assert prints[0] != prints[1]
    copy_store(tmp_path / "50", tmp_path / "copy")
    assert examine(tmp_path / "copy").fingerprint == prints[0]


def test_copy_has_the_same_files_times_and_holes_but_no_marks_of_use(tmp_path: Path) -> None:
    """The lock file and directories of unfinished adoptions are left out."""
    root = make_store(tmp_path / "store")
    (root / "adopting-n0").mkdir()
    (root / "adopting-n0" / "half").touch()
    (root / "sparse").touch()
    os.truncate(root / "sparse", 64 << 20)
    before = snapshot(root)
    copy_store(root, tmp_path / "copy")
    assert snapshot(root) == before
    for name in ("lock", "adopting-n0/half"):
        del before[name]
    assert snapshot(tmp_path / "copy") == before
    assert (tmp_path / "copy" / "sparse").stat().st_blocks < 100


def test_an_old_log_gives_its_messages_and_loses_its_oldest_files_first(tmp_path: Path) -> None:
    root = make_store(tmp_path)
    found = examine(root)
    close_last_file(found)
    pieces = [p for f in found.starts for p in scan(old_file(root, f).read_bytes(), f)]
    places = [p.start for p in pieces if p.kind is PieceKind.MESSAGE]
    assert len(places) == 300
    with contextlib.closing(adopted(root, found)) as old:
        with pytest.raises(PathError, match="is in use"):
            OldCommitLog.find(root / "dledger-n0")
        assert all(old.message(place) is not None for place in places)
        for place in (places[3] + 1, -1, found.end, found.divided_offset, 1 << 40):
            assert old.message(place) is None
        old.delete_before(found.starts[1])
        assert (old.min_offset, old.is_gone) == (found.starts[1], False)
        assert old.message(places[0]) is None
        old.delete_before(found.divided_offset)
        assert (old.min_offset, old.is_gone) == (found.divided_offset, True)
        assert old.message(places[-1]) is None
    assert not any((root / "commitlog").iterdir())
    with contextlib.closing(OldCommitLog.find(root / "dledger-n0")) as again:
        assert again.is_gone


def test_interrupted_removal_of_the_last_old_file_ends_at_the_next_start(tmp_path: Path) -> None:
    root = make_store(tmp_path)
    with contextlib.closing(adopted(root, examine(root), gone=True)) as old:
        assert old.is_gone
        assert not any((root / "commitlog").iterdir())


def adopted(root: Path, found: Adoption, *, gone: bool = False) -> OldCommitLog:
    """The log in front of a node whose directory says so."""
    node = root / "dledger-n0"
    node.mkdir()
    Adopted(found.divided_offset, SIZE, found.fingerprint, gone).save(node)
    old = OldCommitLog.find(node)
    assert old is not None
    return old
