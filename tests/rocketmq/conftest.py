"""Files that RocketMQ and DLedger wrote, and small logs made here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger.rocketmq.format.hosts import Host
from dledger.rocketmq.format.message import Message

sys.path.insert(0, str(Path(__file__).parent))  # for `parsers`, `made_logs`: tests are no packages
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "rocketmq"
SIZES = {
    "checkpoint.bin": 4096,
    "cq_SCHEDULE_2.bin": 20_000,
    "cq_TopicA_0.bin": 20_000,
    "dledger_data.bin": 65_536,
    "dledger_data_after_migration.bin": 65_536,
    "dledger_index_after_migration.bin": 4096,
    "indexfile.bin": 8440,
    "old_commitlog.bin": 65_536,
}
"""Bytes of the files as they were written; the copies here do without most of the zeros at their
ends."""


@pytest.fixture(scope="session")
def golden() -> Callable[[str], bytes]:
    """A file's bytes by its name, with the zeros at its end."""
    return lambda name: (GOLDEN / name).read_bytes().ljust(SIZES.get(name, 0), b"\0")


@pytest.fixture(scope="session")
def some() -> list[Message]:
    """Five messages: both versions, IPv4 and IPv6, with and without a body, properties and a
    tag."""
    v4, v6 = Host.of("10.1.2.3", 10911), Host.of("fd00::7", 40001)
    return [
        Message(
            "TopicA",
            b"hello world",
            "KEYS\x01k1 k2\x02UNIQ_KEY\x01C0A8\x02TAGS\x01tagA",
            queue_id=3,
            queue_offset=7,
            born_timestamp=1_790_000_000_000,
            store_timestamp=1_790_000_000_001,
            store_host=v4,
        ),
        Message("TopicB", b"", "", born_host=v6, store_host=v4),
        Message(
            "t" * 300, b"x" * 200, "TAGS\x01b\x02", version=2, born_host=v6, store_host=v6, flag=-5
        ),
        Message("größe", bytes(range(256)), "a\x01ü", reconsume_times=2, sys_flag=4, store_host=v4),
        Message(
            "TopicA",
            b"\0" * 40,
            "TAGS\x01polygenelubricants",
            prepared_transaction_offset=99,
            store_host=v4,
        ),
    ]
