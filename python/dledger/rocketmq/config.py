"""Settings under the names that they have in a broker's configuration file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dledger.config import split_settings
from dledger.errors import ConfigError
from dledger.rocketmq.format.consume_queue_unit import UNIT_SIZE


def count(text: str) -> int:
    """A number above 0."""
    number = int(text.replace("_", ""))
    if number < 1:
        raise ValueError(text)
    return number


def units(text: str) -> int:
    """Bytes of a consume queue's file as its units."""
    if count(text) % UNIT_SIZE:
        raise ValueError(text)
    return count(text) // UNIT_SIZE


def truth(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


STORE: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "mappedFileSizeCommitLog": ("file_size", count),
    "mappedFileSizeConsumeQueue": ("units_in_file", units),
    "maxHashSlotNum": ("index_slots", count),
    "maxIndexNum": ("index_units", count),
    "messageIndexEnable": ("index", truth),
}
"""Of a store: the argument of `MessageStore` that it is."""
HA: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "haSendHeartbeatInterval": ("ha_send_heartbeat_interval", count),
    "haHousekeepingInterval": ("ha_housekeeping_interval", count),
    "haTransferBatchSize": ("ha_transfer_batch_size", count),
}
"""Of master and slave: the field of `HASettings` that it is."""


def parse_broker_settings(
    texts: Sequence[str], known: Mapping[str, tuple[str, Callable[[str], Any]]]
) -> dict[str, Any]:
    """``name=value`` texts as arguments.

    Raises:
        UnknownOption: no such name; the message has the nearest one.
        ConfigError: not of that form, or no such value.
    """
    found: dict[str, Any] = {}
    for name, value in split_settings(texts, known):
        argument, convert = known[name]
        try:
            found[argument] = convert(value)
        except (KeyError, ValueError):
            raise ConfigError(f"--set {name}={value}: that cannot be its value") from None
    return found
