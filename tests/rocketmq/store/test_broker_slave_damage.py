"""A slave whose master sends damaged messages: none is stored or acknowledged, and the slave starts
again."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger.errors import FormatError
from dledger.rocketmq.format.message import Message
from dledger.rocketmq.ha.checked_log import CheckedLog
from dledger.rocketmq.ha.ha_service import HAService
from dledger.rocketmq.ha.serve import serve_store
from dledger.rocketmq.ha.slave import follow_master
from dledger.rocketmq.ha_protocol.messages import HASettings
from dledger.rocketmq.store.message_store import MessageStore

FILE = 4096
COUNT = 60
Opened = Callable[..., MessageStore]
SMALL = {"file_size": FILE, "units_in_file": 10, "index_slots": 16, "index_units": 50}


@pytest.fixture
def opened() -> Opened:
    return lambda root: MessageStore(root, **SMALL)  # type: ignore[arg-type]


def messages(count: int) -> list[Message]:
    return [
        Message(
            "orders", f"{n:06d}".encode().ljust(100, b"."), f"UNIQ_KEY\x01U{n:08d}", queue_id=n % 3
        )
        for n in range(count)
    ]


def put(at: int, value: bytes) -> Callable[[bytearray, int], None]:
    def change(data: bytearray, begin: int) -> None:
        data[begin + at : begin + at + len(value)] = value

    return change


def flip(at: int) -> Callable[[bytearray, int], None]:
    def change(data: bytearray, begin: int) -> None:
        data[begin + at] ^= 1

    return change


DAMAGE = {
    "body": flip(120),
    "crc": flip(9),
    "size": flip(3),
    "huge size": put(0, b"\x7f\xff\xff\xff"),
    "size up to the next message": put(3, b"\xff"),
    "magic": flip(6),
    "place": flip(34),
    "negative queue": put(12, b"\xff\xff\xff\xff"),
    "queue offset of a queue that is not so long": put(20, struct.pack(">q", 900)),
    "body length": flip(87),
    "topic leads elsewhere": put(189, b"../ab."),
    "topic is no text": put(189, b"\xff"),
    "zeros": put(0, bytes(200)),
}


async def follow(
    slave: MessageStore, master: MessageStore, piece: int, told: list[int], end: int | None = None
) -> None:
    """Follow until the slave has ``end``, or for good.

    Args:
        told: gets what the master was told in the end.
    """
    settings = HASettings(mapped_file_size_commit_log=FILE, ha_transfer_batch_size=piece)
    ready: list[HAService] = []
    serving = asyncio.create_task(serve_store(master, "127.0.0.1", 0, settings, ready.append))
    async with asyncio.timeout(60):
        for _ in iter(lambda: bool(ready), True):
            await asyncio.sleep(0)
        address = f"127.0.0.1:{ready[0].accept_socket_service.port}"
        following = asyncio.create_task(follow_master(slave, address, settings))
        for _ in iter(lambda: following.done() or slave.log.max_offset == end, True):
            await asyncio.sleep(0)
    following.cancel()
    await asyncio.wait([following])
    told.append(ready[0].group_transfer_service.push2_slave_max_offset)
    serving.cancel()
    await asyncio.wait([serving])
    if end is None:
        following.result()


@pytest.mark.parametrize("piece", [7, 100, 32_768])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_message_is_not_stored_or_acknowledged_by_the_slave(
    tmp_path: Path, opened: Opened, damage: str, piece: int
) -> None:
    """The slave ends before it, and does so again after a restart."""
    master, slave = opened(tmp_path / "master"), opened(tmp_path / "slave")
    begin = master.put_messages(messages(COUNT))[17].physical_offset  # in the first file
    path = tmp_path / "master" / "commitlog" / ("0" * 20)
    whole = path.read_bytes()
    data = bytearray(whole)
    DAMAGE[damage](data, begin)
    # so that it begins at 0
    slave.append_raw(0, whole[: master.messages("orders", 1, 0, 1)[0].physical_offset])
    path.write_bytes(data)
    told: list[int] = []

    async def damaged() -> None:
        with pytest.raises(FormatError, match=rf"commit log, byte {begin:,}.*goes on at {begin:,}"):
            await follow(slave, master, piece, told)

    asyncio.run(damaged())
    assert slave.log.max_offset == begin
    slave.close()
    slave = opened(tmp_path / "slave")
    assert (slave.log.max_offset, slave.recovered.reason) == (begin, "")
    asyncio.run(damaged())
    assert len(told) == 2
    assert all(offset <= begin for offset in told)
    path.write_bytes(whole)
    asyncio.run(follow(slave, master, piece, told, master.log.max_offset))
    assert slave.log.read(0, slave.log.max_offset) == master.log.read(0, master.log.max_offset)
    slave.close()
    master.abandon()


@pytest.mark.parametrize("piece", [1, 7, 50, 333, 4096])
def test_reported_offset_is_the_end_of_a_whole_message(
    tmp_path: Path, opened: Opened, piece: int
) -> None:
    """The bytes of the master may come in pieces of any size."""
    master, slave = opened(tmp_path / "master"), opened(tmp_path / "slave")
    borders = {0}
    for placed in master.put_messages(messages(COUNT)):
        borders |= {placed.physical_offset, placed.physical_offset + placed.size}
    log = CheckedLog(slave.log, {}, units_in_file=10)
    at, end = 0, master.log.max_offset
    last = 0
    while at < end:
        length = min(piece, end - at, FILE - at % FILE)
        at = log.append_raw(at, master.log.read(at, length))
        sound = log.sound_offset
        assert last <= sound <= at == log.max_offset
        last_of_file = max(border for border in borders if border < at - at % FILE + FILE)
        assert sound in borders or sound > last_of_file  # in the blank
        last = sound
    assert log.sound_offset == end
    slave.close()
    master.abandon()
    assert opened(tmp_path / "slave").log.max_offset == end
