"""How much a micro-batch takes, and how often one is begun."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dledger.config import MIB
from dledger.datasource.options.option_values import size_or_number
from dledger.datasource.options.settings import duration_ms
from dledger.errors import ConfigError

DEFAULT_BYTES: Final = MIB << 10
"""Of a micro-batch that nothing else limits: a query that starts far behind must not read all of it
at once."""


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Of one micro-batch."""

    rows: int | None = None
    bytes: int | None = DEFAULT_BYTES
    least_rows: int = 0
    delay_ms: int = 900_000
    """How long ``least_rows`` are waited for."""


def rate_limits(values: Mapping[str, str]) -> RateLimits:
    rows = size_or_number(values, "maxOffsetsPerTrigger")
    least = size_or_number(values, "minOffsetsPerTrigger")
    if rows is not None and least is not None and least > rows:
        raise ConfigError(
            f"'minOffsetsPerTrigger' is {least}, above 'maxOffsetsPerTrigger', {rows}: no batch "
            f"could be both"
        )
    if "maxTriggerDelay" in values and least is None:
        raise ConfigError(
            "'maxTriggerDelay' bounds the wait for 'minOffsetsPerTrigger': give that too"
        )
    return RateLimits(
        rows,
        most_bytes(values, DEFAULT_BYTES if rows is None else None),
        least or 0,
        duration_ms("maxTriggerDelay", values.get("maxTriggerDelay", "15m")),
    )


def most_bytes(values: Mapping[str, str], default: int | None) -> int | None:
    """Stored bytes of one micro-batch; None: no limit."""
    if values.get("maxBytesPerTrigger", "").strip().lower() == "none":
        return None
    return size_or_number(values, "maxBytesPerTrigger") or default
