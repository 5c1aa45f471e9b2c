"""The patience of a listener with the other sides."""

from __future__ import annotations

from dataclasses import dataclass

from dledger.config import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How much a listener bears."""

    max_connections: int = 4096
    """Of clients."""
    max_per_address: int = 1024
    """Of clients at one address."""
    max_unknown: int = 512
    """That have not said hello."""
    idle_s: float = 0.0
    """After which a client is closed that asks nothing and waits for nothing; 0: never."""
    hello_s: float = 5.0
    """For the first frame."""
    stall_s: float = 30.0
    """In which a frame that has begun must come on, unless we ourselves do not read."""
    pressed_s: float = 2.0
    """The same while others wait for the room that it takes."""
    max_bytes: int = 64 * MIB
    """Of frames under way on all connections together, and of the bytes that `listen` is told of
    beside them; as many of answers that are read or unsent."""
    sweep_s: float = 1.0
    """Time between two checks of all connections."""
