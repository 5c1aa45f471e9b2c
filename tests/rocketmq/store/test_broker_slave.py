"""A slave's store: whole while it follows, and whole again after any end."""

from __future__ import annotations

import random
import threading
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from dledger.errors import FormatError, ProtocolError
from dledger.rocketmq.dispatch.reput_message_service import ReputMessageService
from dledger.rocketmq.files.layout import open_store
from dledger.rocketmq.files.storage import Storage
from dledger.rocketmq.files.tail import begins, ends
from dledger.rocketmq.ha.follower import BrokerFollower
from dledger.rocketmq.ha.ha_service import HAService
from dledger.rocketmq.ha.slave import follow_master
from dledger.rocketmq.ha_protocol.messages import HASettings
from dledger.rocketmq.store.files import NEW
from dledger.rocketmq.store.mapped_file_queue import MappedFileQueue
from dledger.rocketmq.store.message_store import MessageStore
from dledger.storage.disk.disk import RealFile
from tests.rocketmq.made_logs import SMALL, files, some
from tests.rocketmq.store.links import address, beside, serving, until
from tests.rocketmq.store.small_stores import SmallStores

pytestmark = pytest.mark.usefixtures("in_time")

FILE = SMALL["file_size"]
HA = HASettings(mapped_file_size_commit_log=FILE)
messages = partial(some, size=None, queues=3)


def following(store: MessageStore, master: HAService) -> AbstractAsyncContextManager[object]:
    return beside(follow_master(store, address(master), HA))


def check_equal(slave: MessageStore, master: MessageStore, count: int) -> None:
    """The slave's log is the master's, and everything in it is found; index files are named by
    when they were made."""
    for folder in ("commitlog", "consumequeue"):
        assert files(slave.root / folder) == files(master.root / folder)
    for n in range(0, count, 7):
        (found,) = slave.messages_with_key(("orders", "payments")[n % 2], f"U{n:08d}")
        assert (found.queue_id, found.body[:6]) == (n // 2 % 3, f"{n:06d}".encode())


async def test_slave_that_follows_from_the_start_becomes_the_same_store(small: SmallStores) -> None:
    master, slave = small.open("master"), small.open("slave")
    async with serving(master, HA) as service, following(slave, service):
        for n in range(10):
            master.put_messages(messages(20, first=n * 20))
            service.notify_appended()
            await until(lambda: slave.log.max_offset == master.log.max_offset)
    slave.close()
    master.flush()
    check_equal(slave, master, 200)
    assert not (slave.root / "abort").exists()


async def test_slave_that_begins_with_the_last_file_finds_what_it_has(small: SmallStores) -> None:
    master, slave = small.open("master"), small.open("slave")
    master.put_messages(messages(100))
    async with serving(master, HA) as service, following(slave, service):
        await until(lambda: slave.log.max_offset == master.log.max_offset)
    slave.close()
    assert slave.log.min_offset == master.log.max_offset // FILE * FILE
    (last,) = slave.messages("orders", 0, 16)
    assert last == master.messages("orders", 0, 16)[0]
    assert slave.queues.get("orders", 0).min_offset > 10  # type: ignore[union-attr]


async def test_store_that_follows_is_a_table_that_grows_message_by_message(
    small: SmallStores,
) -> None:
    """What ``readStream`` does, over the slave's files: each message once, in order, none before it
    is whole."""
    master, slave = small.open("master"), small.open("slave")
    placed = master.put_messages(messages(1))
    async with serving(master, HA) as service, following(slave, service):
        await until(lambda: slave.log.max_offset == placed[-1].physical_offset + placed[-1].size)
        table = Storage.of(str(slave.root), {})
        known = begins(open_store(table, "rocketmq"))
        for n in range(1, 40):
            border = placed[-1].physical_offset + placed[-1].size
            seen = ends(open_store(table, "rocketmq"), known)
            assert seen["commitlog"] == border
            known = seen
            placed = master.put_messages(messages(1, first=n))
            service.notify_appended()
            await until(lambda: slave.log.max_offset == master.log.max_offset)


@pytest.mark.parametrize("seed", range(4))
def test_slave_that_is_killed_at_any_byte_goes_on_and_loses_nothing(
    tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    with MessageStore(tmp_path / "master", **SMALL) as master:  # type: ignore[arg-type]
        master.put_messages(messages(120))
        end = master.log.max_offset
        written = 0
        while True:
            slave = MessageStore(tmp_path / "slave", **SMALL)  # type: ignore[arg-type]
            at = slave.log.max_offset
            assert at == 0 or any(at == place for place in borders(master))
            assert at >= max((place for place in borders(master) if place <= written), default=0)
            if at == end:
                break
            for _ in range(dice.randint(1, 4)):
                size = min(dice.randint(1, 2_000), end - at, FILE - at % FILE)
                at = slave.log.append_raw(at, master.log.read(at, size))
                if dice.random() < 0.3:
                    slave.dispatch()
                if dice.random() < 0.3:
                    slave.flush()
            written = at
            slave.abandon()
        slave.close()
        check_equal(slave, master, 120)


@pytest.mark.parametrize("missing", [1, 10, 30, 60])
def test_slave_that_stops_within_a_message_asks_for_all_of_it_again(
    small: SmallStores, missing: int
) -> None:
    """Without its last bytes, which are zeros in a new file, a message can look whole."""
    master, slave = small.open("master"), small.open("slave")
    placed = master.put_messages(messages(10))
    slave.log.append_raw(0, master.log.read(0, master.log.max_offset - missing))
    slave.close()
    assert small.open("slave").log.max_offset == placed[-1].physical_offset


def borders(store: MessageStore) -> set[int]:
    """Behind each message, and where files begin."""
    found = set(range(0, store.log.max_offset + FILE, FILE))
    for _, queue in store.queues.items():
        units = queue.units(0, queue.max_offset)
        found |= {unit.physical_offset + unit.size for unit in units}
    return found


async def test_master_whose_bytes_are_no_messages_ends_the_following(small: SmallStores) -> None:
    master, slave = small.open("master"), small.open("slave")
    master.put_messages(messages(3))
    master.log.append_raw(master.log.max_offset, b"\7" * 200)
    async with serving(master, HA) as service:
        with pytest.raises(FormatError, match="commit log, byte"):
            await follow_master(slave, address(service), HA)
    assert len(slave.messages("orders", 0, 0)) == 1


async def test_master_with_files_of_another_size_is_refused(small: SmallStores) -> None:
    master, slave = small.open("master"), small.open("slave", file_size=2 * FILE)
    while master.log.max_offset // FILE != 3:
        master.put_messages(messages(1))
    async with serving(master, HA) as service:
        other = HASettings(mapped_file_size_commit_log=2 * FILE)
        with pytest.raises(ProtocolError, match="where no commit log file of 8192 bytes begins"):
            await follow_master(slave, address(service), other)
    assert slave.log.max_offset == 0


def test_reput_dispatches_behind_the_log_and_writes_the_checkpoint(small: SmallStores) -> None:
    store = small.open("slave")
    rested = threading.Event()

    def busy() -> bool:
        rested.set()
        return False

    reput = ReputMessageService(store, busy=busy, checkpoint_s=0.0)
    reput.start()
    with MessageStore(small.root / "master", **SMALL) as master:  # type: ignore[arg-type]
        master.put_messages(some(50))
        for begin, data in master.log.files.parts(0, master.log.max_offset, 1_000):
            store.log.append_raw(begin, data)
            reput.notify_appended()
        last = master.checkpoint.physic_msg_timestamp or master.log.store_timestamp
    while store.checkpoint.logics_msg_timestamp < last:
        reput.notify_appended()
        assert rested.wait(30)
    reput.stop()
    assert store.checkpoint.physic_msg_timestamp == last
    assert len(store.messages_with_key("orders", "all", None, None)) == 25


def test_flush_counts_what_was_there_when_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MappedFileQueue(tmp_path / "log", 100)
    log.append(b"a" * 30)
    synced: list[str] = []

    def sync(file: RealFile) -> None:
        synced.append(file.path.name)
        if len(synced) == 1:
            log.append(b"b" * 90)
            assert synced.pop().endswith(NEW)

    monkeypatch.setattr(RealFile, "fdatasync", sync)
    log.flush()
    assert (log.flushed_offset, log.max_offset, len(synced)) == (30, 120, 1)
    log.flush()
    assert (log.flushed_offset, len(synced)) == (120, 3)
    log.close()


def test_what_a_killed_process_wrote_is_synced_before_it_counts(
    small: SmallStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be read, from memory; the slave reports it only when it is on the disk."""
    store = small.open("slave")
    store.put_messages(messages(30))
    store.abandon()
    again = small.open("slave")
    assert again.log.files.flushed_offset == 0
    synced: list[RealFile] = []
    monkeypatch.setattr(RealFile, "fdatasync", lambda file: synced.append(file))
    again.log.flush()
    assert len(synced) == len(again.log.files.starts)
    assert BrokerFollower(again.log, "127.0.0.1:1").in_bulk is False
