"""Buffers on their way out: neighbours that are small are joined, large ones are not copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dledger.types import Buffer

JOIN_BYTES: Final = 16 << 10
"""Buffers below this are joined before they are written: a copy is cheaper than a piece of a
scattered write."""


def joined(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes in fewer buffers: neighbours below JOIN_BYTES become one."""
    pieces: list[Buffer] = []
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < JOIN_BYTES:
            small.append(buffer)
            continue
        if small:
            pieces.append(b"".join(small))
            small = []
        pieces.append(buffer)
    if small:
        pieces.append(b"".join(small))
    return pieces
