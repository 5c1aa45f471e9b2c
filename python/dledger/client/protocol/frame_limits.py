"""The largest frames that a client takes."""

from __future__ import annotations

from dledger.protocol.wire import FrameLimits

LIMITS = FrameLimits(payload_bytes=1 << 30)
"""An answer is as large as the largest stored body, with any limit of the group when it was
written."""
