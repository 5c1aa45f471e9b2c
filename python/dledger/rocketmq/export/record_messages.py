"""A record of a topic as a RocketMQ message: partition becomes queue, key KEYS, headers properties,
value body."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dledger.errors import ConfigError, RecordTooLarge
from dledger.rocketmq.format.hosts import Host
from dledger.rocketmq.format.message import MAX_BODY, Message
from dledger.rocketmq.format.properties import KEYS, MAX_PROPERTIES, format_properties

BROKER: Final = Host.of("127.0.0.1", 10911)
NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
SYSTEM: Final = frozenset({
    "TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
})  # fmt: skip
SYSTEM_PREFIX: Final = "rmq_sys_"
SEPARATORS: Final = re.compile("[\x01\x02]")


def check_topic_name(name: str) -> str:
    """The same name, which RocketMQ's clients take for a topic's.

    Raises:
        ConfigError: they do not; the message says what they take.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"topic {name!r}: RocketMQ's topics have 1 to 127 of the characters a-z A-Z 0-9 _ - % "
            "|; name it otherwise there (--as)"
        )
    if name in SYSTEM or name.startswith(SYSTEM_PREFIX):
        raise ConfigError(
            f"topic {name!r} is one of RocketMQ's own; name it otherwise there (--as)"
        )
    return name


@dataclass(frozen=True, slots=True)
class RecordMessages:
    """Makes messages of the records of one topic.

    A null value becomes an empty body, and properties without a value are left out: RocketMQ has
    neither.
    """

    topic: str
    """In RocketMQ."""
    host: Host = BROKER
    """The broker that will serve the store: its address is in each message's id."""
    as_base64: bool = False
    """Keys and headers that are no text go as base64, headers under ``<name>_base64``; otherwise
    they are errors."""

    def message(
        self,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        store_timestamp_ms: int = 0,
    ) -> Message:
        """One record; its key stands in place of a header ``KEYS``, and of two headers with one
        name the later one.

        Raises:
            ConfigError: key or a header is no text, or has the characters 1 or 2 in it.
            RecordTooLarge: value or properties are longer than a message's can be.
        """
        where = f"{self.topic}-{partition}, offset {offset}"
        body = value or b""
        if len(body) > MAX_BODY:
            raise RecordTooLarge(
                f"{where}: a value of {len(body):,} bytes; a message has up to {MAX_BODY:,}"
            )
        properties: dict[str, str] = {}
        for name, content in headers:
            if content:
                found, text = self._text(where, name, content)
                properties[found] = text
        if key:
            properties[KEYS] = self._text(where, "", key)[1]
        try:
            text = format_properties(properties)
        except ValueError as error:
            if sum(map(len, properties.values())) > MAX_PROPERTIES // 2:
                raise RecordTooLarge(f"{where}: {error}") from None
            raise ConfigError(f"{where}: {error}") from None
        return Message(
            self.topic,
            body,
            text,
            queue_id=partition,
            queue_offset=offset,
            born_timestamp=timestamp_ms,
            born_host=self.host,
            store_timestamp=store_timestamp_ms or timestamp_ms,
            store_host=self.host,
        )

    def _text(self, where: str, name: str, content: bytes) -> tuple[str, str]:
        """A property's name and value."""
        try:
            text = content.decode()
            if not SEPARATORS.search(text):
                return name, text
            problem = "has the character 1 or 2 in it"
        except UnicodeDecodeError:
            problem = "is not UTF-8"
        if not self.as_base64:
            what = f"header {name!r}" if name else "the key"
            raise ConfigError(
                f"{where}: {what} {problem}, so it can be no property; --base64 writes it so"
            )
        return name and f"{name}_base64", base64.b64encode(content).decode()
