"""Commit logs of messages that seeds make, for tests that compare two ways of reading them."""

from __future__ import annotations

from dledger.rocketmq.format.hosts import Host
from dledger.rocketmq.format.message import Message, encode_blank, encode_message
from verification.sim.rng import Rng

FILE = 1 << 20
WORDS = ("k1", "k2", "größe", "日本", "x" * 300, "polygenelubricants", "", " ", "a  b ")
V4, V6 = Host.of("10.0.0.7", 40001), Host.of("fd00::7", 40001)


def some_messages(dice: Rng, count: int, *, odd: bool) -> list[Message]:
    """Messages of a few queues with all kinds of keys; with ``odd`` some that belong into no queue,
    or leave gaps."""
    nexts: dict[tuple[str, int], int] = {}
    found = []
    for n in range(count):
        topic, queue_id = ("orders", "payments", "größe")[dice.below(3)], dice.below(3)
        properties = []
        if dice.below(3):
            properties.append("KEYS\x01" + " ".join(dice.pick(WORDS) for _ in range(dice.below(4))))
        if dice.below(3):
            properties.append(f"UNIQ_KEY\x01U{dice.below(count)}")
        if dice.below(3):
            properties.append(f"TAGS\x01t{dice.below(4)}")
        flag = dice.pick((0, 0, 0, 4, 8, 12)) if odd else 0
        offset = nexts.get((topic, queue_id), 7 if odd else 0) + (odd and dice.below(20) == 0)
        if flag in (0, 8):
            nexts[topic, queue_id] = offset + 1
        if odd and dice.below(40) == 0:
            topic = "SCHEDULE_TOPIC_XXXX"
            properties.append("DELAY\x013")
        stored, host = (
            1_790_000_000_000 + 700 * n - dice.below(3000),
            V6 if dice.below(5) == 0 else V4,
        )
        found.append(
            Message(
                topic,
                b"b" * dice.below(50),
                "\x02".join(properties),
                queue_id=queue_id,
                queue_offset=offset,
                sys_flag=flag,
                store_timestamp=stored,
                born_host=host,
            )
        )
    return found


def log_of(messages: list[Message]) -> bytes:
    log = b""
    for message in messages:
        log += encode_message(message.moved(len(log)))
    return log + encode_blank(FILE - len(log)) + bytes(FILE - len(log) - 8)
