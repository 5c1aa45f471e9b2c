"""CRC-32 (the zlib polynomial), by the fastest implementation that is installed."""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:  # isal has no wheel for every platform; zlib gives the same number, slower
    from zlib import crc32

__all__ = ["crc32"]
