"""Stores made here have the bytes that a real broker's store has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dledger.rocketmq.dispatch.build_consume_queue import Reput
from dledger.rocketmq.format.message import Message, decode_message, encode_blank
from dledger.rocketmq.format.scan import scan
from dledger.rocketmq.store.commit_log import CommitLog
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.index_service import IndexService
from dledger.rocketmq.store.message_store import MessageStore
from tests.rocketmq.made_logs import golden, of_messages


def messages(data: bytes, start: int = 0) -> list[Message]:
    places = [piece.message_offset for piece in of_messages(scan(data, start))]
    return [decode_message(data, place - start) for place in places]


@pytest.mark.parametrize("ends", [[65_536], range(0, 1400, 7)], ids=["whole", "cut anywhere"])
def test_dispatch_of_a_broker_s_log_makes_the_broker_s_queues_and_index(
    tmp_path: Path, ends: Sequence[int]
) -> None:
    queues = ConsumeQueues(tmp_path / "consumequeue", 1000)
    index = IndexService(tmp_path / "index", 100, units=400)
    data, reput = golden("dledger_data.bin"), Reput(queues, index, offset=0)
    for end in ends:
        reput.dispatch(data[:end], 0, len(data))
    assert reput.offset == 1333
    queues.flush()
    index.flush()
    made = {
        path.parent.relative_to(queues.root).as_posix(): path.read_bytes()
        for path in queues.root.rglob("0" * 20)
    }
    assert sorted(made) == ["SCHEDULE_TOPIC_XXXX/2", "TopicA/0", "TopicA/1"]
    assert made["SCHEDULE_TOPIC_XXXX/2"] == golden("cq_SCHEDULE_2.bin")
    assert made["TopicA/0"] == golden("cq_TopicA_0.bin")
    (file,) = index.files
    assert file.read_bytes() == golden("indexfile.bin")


def test_messages_of_a_broker_log_keep_their_bytes_when_put_again(tmp_path: Path) -> None:
    data = golden("old_commitlog.bin")
    log = CommitLog(tmp_path, len(data))
    placed = log.put_messages(messages(data), stamped=True)
    assert [one.queue_offset for one in placed] == list(range(6))
    log.files.close_file(encode_blank(log.files.room))
    assert (tmp_path / "commitlog" / ("0" * 20)).read_bytes() == data


def test_a_broker_s_store_opens_with_what_is_in_it_and_goes_on(tmp_path: Path) -> None:
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
