"""A slave whose master sends damaged messages: none is stored or acknowledged, and the slave starts
again."""

from __future__ import annotations

import asyncio
import struct

import pytest

from dledger.errors import FormatError
from dledger.rocketmq.format.message import Message
from dledger.rocketmq.ha.checked_log import CheckedLog
from dledger.rocketmq.ha.slave import follow_master
from dledger.rocketmq.ha_protocol.messages import HASettings
from dledger.rocketmq.store.message_store import MessageStore
from tests.rocketmq.made_logs import overwrite
from tests.rocketmq.store.links import address, beside, serving, until
from tests.rocketmq.store.small_stores import SmallStores

FILE = 4096
COUNT = 60


def messages() -> list[Message]:
    return [
        Message("orders", b"%06d" % n + b"." * 94, f"UNIQ_KEY\x01U{n:08d}", queue_id=n % 3)
        for n in range(COUNT)
    ]


DAMAGE: dict[str, tuple[int, bytes]] = {
    "body": (120, b""),
    "crc": (9, b""),
    "size": (3, b""),
    "huge size": (0, b"\x7f\xff\xff\xff"),
    "size up to the next message": (3, b"\xff"),
    "magic": (6, b""),
    "place": (34, b""),
    "negative queue": (12, b"\xff\xff\xff\xff"),
    "queue offset of a queue that is not so long": (20, struct.pack(">q", 900)),
    "body length": (87, b""),
    "topic leads elsewhere": (189, b"../ab."),
    "topic is no text": (189, b"\xff"),
    "zeros": (0, bytes(200)),
}
"""Where in a message, and the bytes that are there then; without any, one bit of a byte is
turned."""


async def follow(
    slave: MessageStore, master: MessageStore, piece: int, told: list[int], end: int | None = None
) -> None:
    """Follow until the slave has ``end``, or for good.

    Args:
        told: gets what the master was told in the end.
    """
    settings = HASettings(mapped_file_size_commit_log=FILE, ha_transfer_batch_size=piece)
    async with asyncio.timeout(60), serving(master, settings) as service:
        try:
            async with beside(follow_master(slave, address(service), settings)) as task:
                await until(lambda: task.done() or slave.log.max_offset == end)
        finally:
            told.append(service.group_transfer_service.push2_slave_max_offset)


@pytest.mark.parametrize("piece", [7, 100, 32_768])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_message_is_not_stored_or_acknowledged_by_the_slave(
    small: SmallStores, damage: tuple[int, bytes], piece: int
) -> None:
    """The slave ends before it, and does so again after a restart."""
    master, slave = small.open("master"), small.open("slave")
    begin = master.put_messages(messages())[17].physical_offset  # in the first file
    path = small.root / "master" / "commitlog" / ("0" * 20)
    whole = path.read_bytes()
    # so that it begins at 0
    slave.append_raw(0, whole[: master.messages("orders", 1, 0, 1)[0].physical_offset])
    at, value = begin + damage[0], damage[1]
    overwrite(path, at, value or bytes([whole[at] ^ 1]))
    told: list[int] = []

    async def damaged() -> None:
        with pytest.raises(FormatError, match=rf"commit log, byte {begin:,}.*goes on at {begin:,}"):
            await follow(slave, master, piece, told)

    asyncio.run(damaged())
    assert slave.log.max_offset == begin
    slave.close()
    slave = small.open("slave")
    assert (slave.log.max_offset, slave.recovered.reason) == (begin, "")
    asyncio.run(damaged())
    assert len(told) == 2
    assert all(offset <= begin for offset in told)
    path.write_bytes(whole)
    asyncio.run(follow(slave, master, piece, told, master.log.max_offset))
    assert slave.log.read(0, slave.log.max_offset) == master.log.read(0, master.log.max_offset)


@pytest.mark.parametrize("piece", [1, 7, 50, 333, 4096])
def test_reported_offset_is_the_end_of_a_whole_message(small: SmallStores, piece: int) -> None:
    """The bytes of the master may come in pieces of any size."""
    master, slave = small.open("master"), small.open("slave")
    borders = {0}
    for placed in master.put_messages(messages()):
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
    assert small.open("slave").log.max_offset == end
