"""Stores made here have the bytes that a real broker's store has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dledger.rocketmq.dispatch.build_consume_queue import Reput
from dledger.rocketmq.format.message import Message, decode_message, encode_blank
from dledger.rocketmq.format.scan import scan
from dledger.rocketmq.format.scanned_piece import PieceKind
from dledger.rocketmq.store.commit_log import CommitLog
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.index_service import IndexService
from dledger.rocketmq.store.message_store import MessageStore

Golden = Callable[[str], bytes]


def messages(data: bytes, start: int = 0) -> list[Message]:
    return [
        decode_message(data, p.message_offset - start)
        for p in scan(data, start)
        if p.kind in (PieceKind.MESSAGE, PieceKind.ENTRY)
    ]


def test_dispatch_of_a_broker_s_log_makes_the_broker_s_queues_and_index(
    golden: Golden, tmp_path: Path
) -> None:
    queues, index = (
        ConsumeQueues(tmp_path / "consumequeue", 1000),
        IndexService(tmp_path / "index", 100, units=400),
    )
    data = golden("dledger_data.bin")
    reput = Reput(queues, index, offset=0)
    assert reput.dispatch(data, 0, len(data)) == 1333
    queues.flush()
    index.flush()
    made = {
        path.relative_to(tmp_path / "consumequeue").as_posix(): path
        for path in tmp_path.rglob("0" * 20)
    }
    assert sorted(made) == [
        f"{queue}/{0:020d}" for queue in ("SCHEDULE_TOPIC_XXXX/2", "TopicA/0", "TopicA/1")
    ]
    assert made[f"SCHEDULE_TOPIC_XXXX/2/{0:020d}"].read_bytes() == golden("cq_SCHEDULE_2.bin")
    assert made[f"TopicA/0/{0:020d}"].read_bytes() == golden("cq_TopicA_0.bin")
    (file,) = index.files
    assert file.read_bytes() == golden("indexfile.bin")


def test_dispatch_in_pieces_cut_anywhere_makes_the_same_files(
    golden: Golden, tmp_path: Path
) -> None:
    queues, index = (
        ConsumeQueues(tmp_path / "consumequeue", 1000),
        IndexService(tmp_path / "index", 100, units=400),
    )
    data, reput = golden("dledger_data.bin"), Reput(queues, index, offset=0)
    for end in range(0, 1400, 7):
        reput.dispatch(data[:end], 0, len(data))
    assert reput.offset == 1333
    assert (tmp_path / "consumequeue/TopicA/0" / ("0" * 20)).read_bytes() == golden(
        "cq_TopicA_0.bin"
    )
    assert index.files[0].read_bytes() == golden("indexfile.bin")


def test_messages_of_a_broker_log_keep_their_bytes_when_put_again(
    golden: Golden, tmp_path: Path
) -> None:
    data = golden("old_commitlog.bin")
    log = CommitLog(tmp_path, len(data))
    placed = log.put_messages(messages(data), stamped=True)
    assert [one.queue_offset for one in placed] == list(range(6))
    log.files.close_file(encode_blank(log.files.room))
    assert (tmp_path / "commitlog" / ("0" * 20)).read_bytes() == data


def test_a_broker_s_store_opens_with_what_is_in_it_and_goes_on(
    golden: Golden, tmp_path: Path
) -> None:
    data = golden("old_commitlog.bin")
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(data[:1206].ljust(len(data), b"\0"))
    (tmp_path / "abort").touch()
    with MessageStore(tmp_path, file_size=len(data), index_slots=100, index_units=400) as store:
        assert (store.recovered.end, store.recovered.reason) == (1206, "")
        assert store.messages("T", 0, 0) == messages(data)
        placed = store.put_message(messages(data)[0])
        assert (placed.physical_offset, placed.queue_offset) == (1206, 6)
    assert (tmp_path / "commitlog" / ("0" * 20)).read_bytes()[:1206] == data[:1206]
    assert not (tmp_path / "abort").exists()
