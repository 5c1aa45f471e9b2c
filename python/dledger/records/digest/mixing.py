"""The arithmetic of digests, on words of 64 bits, modulo 2^64."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Final

import numpy as np
import numpy.typing as npt

native: ModuleType | None
try:
    import dledger.records.digest._native as native
except ImportError:  # no compiler was found when this was installed
    native = None

Hashes = npt.NDArray[np.uint64]

MASK: Final = (1 << 64) - 1
BASE: Final = np.uint64(0x9E3779B97F4A7C15)
NULL: Final = np.uint64(0x2545F4914F6CDD1D)
HALF: Final = np.uint64(32)


def carried(words: Hashes, into: Hashes | None = None) -> Hashes:
    """Each word with its upper half in its lower one as well: no bit of it is lost by a later
    multiplication."""
    found: Hashes = np.right_shift(words, HALF, out=into)
    found ^= words
    return found


def mix(hashes: Hashes) -> Hashes:
    """The finalizer of splitmix64 (Steele, Lea and Flood: Fast Splittable Pseudorandom Number
    Generators, 2014)."""
    mixed = hashes >> np.uint64(30)
    mixed ^= hashes
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def sum_mixed(hashes: Hashes) -> int:
    """The sum of these words, each mixed."""
    if native is not None:
        found: int = native.sum_mixed(hashes)
        return found
    return int(mix(hashes).sum(dtype=np.uint64))


@cache
def weights(count: int) -> Hashes:
    """Odd numbers, one for each place in a block or a list; more of them begin with the same."""
    return mix(np.arange(1, count + 1, dtype=np.uint64)) | np.uint64(1)
