"""What a reader does about a batch that nobody can open: its bytes are those that were appended,
and they are no records, or too many when they are decompressed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from dledger.errors import ConfigError, CorruptEntry, UnreadableBatch

logger = logging.getLogger(__name__)

FAIL: Final = "fail"
SKIP: Final = "skip"
READ_WAY: Final = 'pass on_damage="skip", or read from offset {end} on'
"""What a program can do about it; ``{end}`` is the offset behind the batch."""


@dataclass(slots=True)
class DamagePolicy:
    """Of one reader of a partition: an error that names the batch, or a warning, and the reader
    goes on behind it.

    Raises:
        ConfigError: ``on_damage`` is neither.
    """

    topic: str
    partition: int
    on_damage: str = FAIL
    way: str = READ_WAY
    option: str = "on_damage"
    batches: int = 0
    records: int = 0
    """That were left out."""
    behind: int = 0
    """The offset behind the last one: a reader that starts anew meets it again."""

    def __post_init__(self) -> None:
        check_on_damage(self.on_damage)

    def met(self, start: int, end: int, error: CorruptEntry) -> None:
        """The batch of offsets [start, end) cannot be opened.

        Raises:
            UnreadableBatch: unless it is to be left out.
        """
        span = f"topic {self.topic!r} partition {self.partition}: the records of offsets [{start}, "
        span += f"{end}) cannot be read: {error}"
        if self.on_damage != SKIP:
            way = self.way.format(end=end)
            raise UnreadableBatch(
                span, way, topic=self.topic, partition=self.partition, begin=start, end=end
            ) from error
        if end <= self.behind:
            return
        self.behind = end
        self.batches += 1
        self.records += end - start
        logger.warning(
            "%s. These %d are left out because %s is skip (%d records in %d batches so far)",
            span,
            end - start,
            self.option,
            self.records,
            self.batches,
        )


def check_on_damage(on_damage: str) -> str:
    """Raises ConfigError: it is neither ``fail`` nor ``skip``."""
    if on_damage not in {FAIL, SKIP}:
        raise ConfigError(f"on_damage is {FAIL!r} or {SKIP!r}, not {on_damage!r}")
    return on_damage
