"""What is made of many messages at once has the same bytes as what is made of them one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.errors import FormatError
from dledger.rocketmq.dispatch.build_consume_queue import Reput
from dledger.rocketmq.dispatch.reput_columns import ColumnReput, DispatchChunk
from dledger.rocketmq.format.message import Message, message_size
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.index_service import IndexService
from tests.rocketmq.made_logs import FILE, files, log_of, make_log, some_messages
from verification.sim.rng import Rng


def dispatch_all(reput: Reput, log: bytes) -> None:
    while reput.dispatch(log, 0, FILE) < FILE:
        continue


def made(root: Path, kind: type[Reput], log: bytes, cuts: list[int]) -> dict[str, bytes]:
    """The files of queues and index, when the log comes up to each of the cuts in turn."""
    queues = ConsumeQueues(root / "consumequeue", 50)
    index = IndexService(root / "index", 64, units=300, clock=lambda: 1000)
    reput = kind(queues, index, offset=0)
    for end in [*cuts, len(log)]:
        while True:
            before = reput.offset
            if before >= end or reput.dispatch(log[before:end], before, FILE) == before:
                break
    assert reput.offset == FILE
    queues.flush()
    index.flush()
    index.close()
    return files(root)


@pytest.mark.parametrize("seed", range(24))
def test_queues_and_index_of_many_messages_at_once_are_those_of_one_by_one(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger.rocketmq.dispatch.chunk.FEW", 1 + seed % 4)
    dice = Rng(seed)
    log = log_of(some_messages(dice, 400, odd=seed % 2 == 1))
    cuts = sorted(dice.below(120_000) for _ in range(dice.below(6)))
    one_by_one = made(tmp_path / "a", Reput, log, cuts)
    at_once = made(tmp_path / "b", ColumnReput, log, cuts)
    assert at_once.keys() == one_by_one.keys()
    assert [name for name in one_by_one if at_once[name] != one_by_one[name]] == []
    assert len(one_by_one) > 9


def test_what_is_there_already_is_not_put_twice(tmp_path: Path) -> None:
    messages = some_messages(Rng(1), 300, odd=False)
    log = log_of(messages)
    whole = made(tmp_path / "a", Reput, log, [])
    queues = ConsumeQueues(tmp_path / "b" / "consumequeue", 50)
    index = IndexService(tmp_path / "b" / "index", 64, units=300, clock=lambda: 1000)
    ColumnReput(queues, index, offset=0).dispatch(log, 0, FILE)
    places = [0]
    for message in messages:
        places.append(places[-1] + message_size(message))
    for place in places[:-1:37]:
        ColumnReput(queues, index, offset=place).dispatch(log[place:], place, FILE)
    assert {name: (tmp_path / "b" / name).read_bytes() for name in whole} == whole


def test_damage_and_a_bad_topic_are_told_as_one_by_one(tmp_path: Path) -> None:
    messages = some_messages(Rng(2), 100, odd=False)
    for wrong, says in ((Message("../x"), "name of a folder"), (Message("t", b"", "\x01"), "")):
        log = bytearray(log_of([*messages, wrong, *messages[:50]]))
        at = sum(map(message_size, messages))
        if not says:
            log[at + 28] ^= 1
            says = f"byte {at:,}"
        queues = ConsumeQueues(tmp_path / says[:4] / "consumequeue", 50)
        reput = ColumnReput(queues, None, offset=0)
        with pytest.raises(FormatError, match=says):
            dispatch_all(reput, bytes(log))
        assert not (tmp_path / "x").exists()


def test_entries_of_dledger_mode_go_one_by_one(tmp_path: Path) -> None:
    log = make_log((Message("t", b"x", queue_offset=n) for n in range(50)), entries=True)
    queues = ConsumeQueues(tmp_path, 50)
    assert DispatchChunk.of(memoryview(log), 0, True) is None
    assert ColumnReput(queues, None, offset=0).dispatch(log, 0, FILE) == len(log)
    queue = queues.get("t", 0)
    assert queue is not None
    assert queue.max_offset == 50
