"""The word of a node to a client whose principal is over a quota."""

from __future__ import annotations

from dledger.types import slots_dataclass


@slots_dataclass(kw_only=True)
class ThrottleNotice:
    """The node takes no more requests of this principal for ``throttle_ms``, and may delay its
    answers (Kafka's throttle_time_ms). It comes with request id 0, in front of an answer that the
    client waits for, on connections whose hello said ``takes_notices``."""

    throttle_ms: int
