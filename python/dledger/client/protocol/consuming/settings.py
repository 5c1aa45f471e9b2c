"""How a consumer reads: the arguments of `Client.consumer`, checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dledger.client.protocol.reading.damage import FAIL, check_on_damage
from dledger.config import AUDIT_TOPIC, check_name
from dledger.errors import ConfigError


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


RESETS: Final = ("earliest", "latest", "error")
MANUAL: Final = "manual"
MIB: Final = 1 << 20
CHUNK: Final = 500
"""Records that are made at a time of a batch, unless the program wants another number."""
ALL: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """See `Client.consumer`."""

    group: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    instance_id: str = ""
    session_timeout_ms: int = 10_000
    max_poll_interval_ms: int = 300_000
    auto_offset_reset: str = "earliest"
    commit_s: float | None = None
    """Seconds between two commits; None: the program commits."""
    max_bytes: int = 32 * MIB
    on_damage: str = FAIL

    def __post_init__(self) -> None:
        check_name("consumer group", self.group)
        if self.auto_offset_reset not in RESETS:
            raise ConfigError(
                f"auto_offset_reset is {' or '.join(map(repr, RESETS))}, not "
                f"{self.auto_offset_reset!r}"
            )
        if bool(self.topics) == bool(self.pattern):
            raise ConfigError("a consumer reads topics or those of a pattern: give one of the two")
        for name in self.topics:
            check_name("topic", name)
        check_on_damage(self.on_damage)
        for name in ("max_poll_interval_ms", "max_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is 1 or more, not {getattr(self, name)}")
        self.matching([])

    def matching(self, names: Sequence[str]) -> tuple[str, ...]:
        """The topics to be read, of all that there are. That of the audit log fits no pattern.

        Raises:
            ConfigError: the pattern is no regular expression.
        """
        if not self.pattern:
            return self.topics
        try:
            whole = re.compile(self.pattern).fullmatch
        except re.error as error:
            raise ConfigError(f"pattern {self.pattern!r}: {error}") from None
        return tuple(name for name in names if whole(name) and name != AUDIT_TOPIC)


def commit_seconds(commit: str | float) -> float | None:
    """The argument ``commit``: seconds, or None for "manual".

    Raises:
        ConfigError: it is neither.
    """
    if commit == MANUAL:
        return None
    if isinstance(commit, (int, float)) and not isinstance(commit, bool) and commit > 0:
        return float(commit)
    raise ConfigError(f"commit is 'manual' or a number of seconds over 0, not {commit!r}")
