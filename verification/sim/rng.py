"""The dice of a simulation: the same on every machine, and one stream for each of its parts.

SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): 64 bits of
state, each output a mix of the next multiple of an odd constant. Python's own `random` is not used:
its methods differ between versions.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
MASK: Final = (1 << 64) - 1
GAMMA: Final = 0x9E3779B97F4A7C15
MILLION: Final = 1_000_000


def mix(z: int) -> int:
    """A number whose bits all depend on all bits of ``z``; 64 bits each."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


class Rng:
    """One stream."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = mix(seed & MASK)

    def fork(self, name: str) -> Rng:
        """Another stream, which depends on this one's seed and on ``name`` alone when called before
        any draw."""
        state = self._state
        for byte in name.encode():
            state = mix(state ^ byte) + GAMMA & MASK
        return Rng(state)

    def bits(self) -> int:
        """64 fair bits."""
        self._state = state = self._state + GAMMA & MASK
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & MASK
        return state ^ (state >> 31)

    # The draws below are asked for very often: each has the lines of `bits` for its own.

    def below(self, n: int) -> int:
        """A fair integer in [0, ``n``)."""
        self._state = value = self._state + GAMMA & MASK
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
        value ^= value >> 31
        if n <= 1 << 64:
            return value * n >> 64
        limit = 1 << 64
        while limit < n:
            value = value << 64 | self.bits()
            limit <<= 64
        return value * n // limit

    def between(self, low: int, high: int) -> int:
        """A fair integer in [``low``, ``high``]."""
        return low + self.below(high - low + 1)

    def chance(self, millionths: int) -> bool:
        """True so many times in a million."""
        if millionths <= 0:
            return False
        self._state = value = self._state + GAMMA & MASK
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
        return (value ^ (value >> 31)) % MILLION < millionths

    def pick(self, choices: Sequence[T]) -> T:
        """One of them."""
        return choices[self.below(len(choices))]

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Any order (Fisher and Yates)."""
        for at in range(len(items) - 1, 0, -1):
            other = self.below(at + 1)
            items[at], items[other] = items[other], items[at]

    def spread(self, low: int, high: int) -> int:
        """An integer in [``low``, ``high``] whose magnitude is fair: as often from 1 to 2 as from
        1000 to 2000."""
        low = max(low, 1)
        doublings = max(0, (high // low).bit_length() - 1)
        base = low << self.below(doublings + 1)
        return min(high, base + self.below(base))
