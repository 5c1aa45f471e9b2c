"""A whole store: who may open it, and what it has after a stop, a kill, and a power failure at any
point."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dledger.errors import CorruptStore, DLedgerError, FormatError, PathError
from dledger.rocketmq.format.checkpoint import StoreCheckpoint
from dledger.rocketmq.format.config_json import decode_config
from dledger.rocketmq.format.message import Message
from dledger.rocketmq.store.message_store import MessageStore
from dledger.rocketmq.store.store_lock import CheckpointFile
from dledger.rocketmq.store.topic_configs import TopicConfig, TopicConfigs
from tests.rocketmq.made_logs import files, golden, index_units, overwrite, some, vouch_for_all
from tests.rocketmq.store.small_stores import SmallStores
from verification.sim.rng import Rng

SLOTS = 16
"""Of an index file of the stores here."""


def check(store: MessageStore, least: int) -> int:
    """Whether log, queues and index say the same; how many messages there are, which must be
    ``least``."""
    bodies: dict[tuple[str, int, int], bytes] = {}
    count = 0
    for (topic, queue_id), queue in store.queues.items():
        for n, message in enumerate(
            store.messages(topic, queue_id, queue.min_offset, 1 << 20), queue.min_offset
        ):
            assert (message.topic, message.queue_id, message.queue_offset) == (topic, queue_id, n)
            assert store.message_at(message.physical_offset) == message
            assert message in store.messages_with_key(topic, message.property_map()["UNIQ_KEY"])
            bodies[topic, queue_id, n] = message.body
            count += 1
    numbers = sorted(int(body[:6]) for body in bodies.values())
    assert numbers == list(range(len(numbers)))
    assert count >= least
    assert store.reput.offset == store.log.max_offset
    assert store.queues.max_physical <= store.log.max_offset
    if store.index is not None:
        assert store.index.end_offset < store.log.max_offset
        units = [unit for path in store.index.files for unit in index_units(path, SLOTS)]
        assert len(units) == 3 * count
    return count


def test_a_stopped_store_has_everything_and_goes_on(small: SmallStores) -> None:
    with small.open() as store:
        store.put_messages(some(50))
        assert check(store, 50) == 50
        assert (small.root / "abort").exists()
    assert not (small.root / "abort").exists()
    with small.open() as store:
        assert check(store, 50) == 50
        store.put_messages(some(30, first=50))
        assert check(store, 80) == 80
    checkpoint = CheckpointFile(small.root).read()
    last = store.log.store_timestamp
    assert (checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp) == (last, last)
    assert (small.root / "checkpoint").stat().st_size == 4096


def test_a_store_of_a_killed_process_has_everything_that_was_put(small: SmallStores) -> None:
    store = small.open("live")
    for n in range(12):
        store.put_messages(some(7, first=7 * n))
        if n == 5:
            store.flush()
        copy = small.root / f"copy{n}"
        shutil.copytree(small.root / "live", copy)
        found = small.open(copy.name)
        assert check(found, 7 * n + 7) == 7 * n + 7
        found.put_messages(some(5, first=7 * n + 7))
        assert check(found, 7 * n + 12) == 7 * n + 12
        found.close()
        shutil.rmtree(copy)


def after_power_failure(
    flushed: dict[str, bytes], written: dict[str, bytes], dice: Rng, root: Path
) -> None:
    """What may be on the disk: what was flushed, and of what was written since any sectors; of each
    folder's new files the last one or not."""
    sector = 64
    for name, data in written.items():
        old, folder = flushed.get(name, b""), name.rpartition("/")[0]
        is_last = name == max(one for one in written if one.rpartition("/")[0] == folder)
        may_go = is_last and name.partition("/")[0] in ("commitlog", "consumequeue")
        if name not in flushed and may_go and dice.below(2):
            continue
        made = bytearray(old.ljust(len(data), b"\0"))
        for at in range(0, len(data), sector):
            if dice.below(2):
                made[at : at + sector] = data[at : at + sector]
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(made)


@pytest.mark.parametrize("seed", range(60))
def test_store_after_a_power_failure_is_consistent_and_has_flushed_data(
    small: SmallStores, clock: Any, seed: int
) -> None:
    dice = Rng(seed)
    clock.step = (1, 5000)[seed % 2]  # the recovery begins with the first file, or with a later one
    store, count = small.open("live"), 0

    def put_some(most: int) -> None:
        nonlocal count
        for _ in range(1 + dice.below(most)):
            many = dice.below(40)
            store.put_messages(some(many, first=count))
            count += many

    put_some(6)
    store.flush()
    flushed, durable = files(small.root / "live"), count
    put_some(3)
    after_power_failure(flushed, files(small.root / "live"), dice, small.root / "crashed")
    found = small.open("crashed")
    kept = check(found, durable)
    found.put_messages(some(10, first=kept))
    assert check(found, kept + 10) == kept + 10
    found.close()
    with small.open("crashed") as found:
        assert check(found, kept + 10) == kept + 10


@pytest.mark.parametrize("keyless", [0, 40])
def test_torn_index_of_a_crashed_broker_is_rebuilt_from_the_tear(
    small: SmallStores, keyless: int
) -> None:
    """A broker puts its index on the disk when a file is full: what the checkpoint vouches for need
    not be in it."""
    with small.open(index_units=1000) as store:
        store.put_messages(some(100))
        store.put_messages([Message("no keys", bytes(500))] * keyless)
        assert store.index is not None
        (path,) = store.index.files
    assert vouch_for_all(store) > 4096
    overwrite(path, 40 + 4 * SLOTS + 20 * 30, bytes(20 * 30))
    (small.root / "abort").touch()
    with small.open(index_units=1000) as store:
        for n in range(100):
            (found,) = store.messages_with_key(("orders", "payments")[n % 2], f"k{n}")
            assert found.body[:6] == b"%06d" % n
        assert len(index_units(path, SLOTS)) == 300


@pytest.mark.parametrize("seed", range(60))
def test_a_store_with_any_bytes_changed_opens_or_says_what_is_wrong(
    small: SmallStores, seed: int
) -> None:
    dice = Rng(seed)
    with small.open() as store:
        store.topics.put(TopicConfig("orders"))
        store.put_messages(some(60))
    paths = sorted(path for path in small.root.rglob("*") if path.is_file())
    path = paths[dice.below(len(paths))]
    data = bytearray(path.read_bytes())
    kind = dice.below(4)
    begin = dice.below(len(data) + 1)
    if kind == 0:
        del data[begin:]
    elif kind == 1:
        data[begin : begin + dice.below(200)] = bytes(dice.below(200))
    else:
        for at in range(begin, min(len(data), begin + (1 if kind == 2 else 40))):
            data[at] = dice.below(256)
    path.write_bytes(data)
    if dice.below(2):
        (small.root / "abort").touch()
    try:
        store = small.open()
        store.put_messages(some(5, first=60))
        for (topic, queue_id), queue in store.queues.items():
            store.messages(topic, queue_id, queue.min_offset)
            store.messages_with_key(topic, "all")
        store.close()
    except DLedgerError as error:
        assert str(error)  # noqa: PT017
    small.open(f"../{small.root.name}-another").close()


def test_queues_and_index_of_messages_that_the_log_has_no_more_are_cut(small: SmallStores) -> None:
    with small.open() as store:
        placed = store.put_messages(some(50))
    last = placed[-1].physical_offset // 4096 * 4096
    (small.root / "commitlog" / f"{last:020d}").unlink()
    before = {path: path.read_bytes() for path in small.root.rglob("0*[0-9]")}
    for _ in range(2):
        with pytest.raises(CorruptStore, match="queues name 16 behind, the index names one at"):
            small.open()
    assert {path: path.read_bytes() for path in small.root.rglob("0*[0-9]")} == before
    with small.open(cut_damage=True) as store:
        kept = sum(one.physical_offset < last for one in placed)
        assert check(store, kept) == kept
        store.put_messages(some(3, first=kept))
        assert check(store, kept + 3) == kept + 3


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_that_lost_its_end_is_told_by_the_checkpoint_alone(
    small: SmallStores, is_clean: bool
) -> None:
    with small.open() as store:
        placed = [store.put_message(one) for one in some(50)]
    last = placed[-1].physical_offset // 4096 * 4096
    (small.root / "commitlog" / f"{last:020d}").unlink()
    for folder in ("consumequeue", "index"):
        shutil.rmtree(small.root / folder)
    (small.root / "dispatched").unlink()
    if not is_clean:
        (small.root / "abort").touch()
        CheckpointFile(small.root).write(StoreCheckpoint(*[placed[-1].store_timestamp + 3001] * 2))
    with pytest.raises(CorruptStore, match=r"the checkpoint knows of one stored at.*lost its end"):
        small.open()
    (small.root / "checkpoint").unlink()
    with small.open() as store:
        kept = sum(one.physical_offset < last for one in placed)
        assert check(store, kept) == kept


def test_a_queue_of_which_all_was_deleted_has_no_messages_from_any_offset(
    small: SmallStores,
) -> None:
    with small.open() as store:
        store.put_message(Message("gone", b"first"))
        store.put_messages([Message("kept", bytes(1000)) for _ in range(8)])
        assert store.delete_before(4096) == 1
        queue = store.queues.get("gone", 0)
        assert queue is not None
        assert queue.min_offset == queue.max_offset == 1
        assert [store.messages("gone", 0, offset) for offset in (0, 1, 2)] == [[], [], []]


def test_old_files_go_with_what_queues_and_index_have_of_them(small: SmallStores) -> None:
    with small.open() as store:
        store.put_messages(some(200))
        assert store.delete_before(5 * 4096) == 5
        first = min(queue.min_offset for _, queue in store.queues.items())
        assert first > 0
        for (topic, queue_id), queue in store.queues.items():
            assert store.messages(topic, queue_id, 0, 1)[0].queue_offset == queue.min_offset
    with small.open() as store:
        assert min(queue.min_offset for _, queue in store.queues.items()) == first
        assert store.messages_with_key("orders", "U00000000") == []
        assert store.messages_with_key("payments", "U00000199")


def test_bytes_of_a_master_are_in_queues_and_index_as_they_come(small: SmallStores) -> None:
    with small.open("master") as master, small.open("slave") as slave:
        master.put_messages(some(100))
        data = master.log.read(0, master.log.max_offset)
        for begin in range(0, len(data), 333):
            slave.append_raw(begin, data[begin : begin + 333])
        assert check(slave, 100) == 100
        for folder in ("commitlog", "consumequeue"):
            assert files(slave.root / folder) == files(master.root / folder)


def test_a_store_that_is_open_is_not_opened_again_here(small: SmallStores) -> None:
    with small.open():
        for _ in range(2):
            with pytest.raises(PathError, match="is in use"):
                small.open()
    small.open().close()


HOLD = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_store_that_another_process_has_open_is_left_alone(small: SmallStores) -> None:
    with small.open() as store:
        store.put_messages(some(5))
    words = [sys.executable, "-c", HOLD, str(small.root / "lock")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        before = files(small.root)
        with pytest.raises(PathError, match="is in use"):
            small.open()
        assert files(small.root) == before
        other.communicate()
    small.open().close()


def test_a_store_of_dledger_mode_is_no_plain_one(small: SmallStores) -> None:
    (small.root / "dledger-n0" / "data").mkdir(parents=True)
    with pytest.raises(PathError, match="DLedger mode"):
        small.open()
    assert [path.name for path in small.root.iterdir()] == ["dledger-n0"]


def test_a_store_whose_files_have_other_sizes_says_so(small: SmallStores) -> None:
    with small.open() as store:
        store.put_messages(some(5))
    with pytest.raises(CorruptStore, match="4,096 bytes, and the files of this log 8,192"):
        small.open(file_size=8192)
    with pytest.raises(CorruptStore, match="the numbers that it was made with"):
        small.open(index_slots=17)


def test_topics_are_added_to_those_that_the_broker_has(tmp_path: Path) -> None:
    data = golden("topics.json")
    (tmp_path / "topics.json").write_bytes(data)
    topics = TopicConfigs(tmp_path, lambda: 5)
    assert topics.queues("SCHEDULE_TOPIC_XXXX") == 18
    topics.put(TopicConfig("orders", queues=7))
    assert (tmp_path / "topics.json.bak").read_bytes() == data
    found, before = decode_config((tmp_path / "topics.json").read_bytes()), decode_config(data)
    assert found["dataVersion"] == {"counter": before["dataVersion"]["counter"] + 1, "timestamp": 5}
    assert found["topicConfigTable"].pop("orders")["readQueueNums"] == 7
    assert found["topicConfigTable"] == before["topicConfigTable"]
    assert TopicConfigs(tmp_path).queues("orders") == 7


def test_topics_are_read_from_the_copy_when_the_file_is_damaged(tmp_path: Path) -> None:
    topics = TopicConfigs(tmp_path)
    topics.put(TopicConfig("a"))
    topics.put(TopicConfig("b"))
    (tmp_path / "topics.json").write_bytes(b"{half")
    assert list(TopicConfigs(tmp_path)) == ["a"]
    (tmp_path / "topics.json.bak").write_bytes(b"{")
    with pytest.raises(FormatError, match=r"topics\.json: configuration"):
        TopicConfigs(tmp_path)
    with pytest.raises(FormatError, match="name of a folder"):
        topics.put(TopicConfig("../x"))
