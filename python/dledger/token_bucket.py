"""A rate: how much may be taken in any second, and how long to wait for more."""

from __future__ import annotations

import math


class TokenBucket:
    """At most ``rate`` a second in the long run; up to ``burst_s`` seconds' worth at once after a
    rest.

    What is taken is not refused, because it is here already: it may leave a debt, and nothing more
    is to be taken before `wait_s` is 0 again. So over any t seconds no more than
    rate * (t + burst_s) + what was taken last goes through.
    """

    __slots__ = ("_at_s", "_burst_s", "_left", "rate")

    def __init__(self, rate: int, now_s: float, *, burst_s: float = 1.0) -> None:
        self.rate = rate
        self._burst_s = burst_s
        self._left = rate * burst_s
        self._at_s = now_s

    def change(self, rate: int, now_s: float) -> None:
        """The rate is this from now on; a debt stays one."""
        self._fill(now_s)
        self.rate, self._left = rate, min(self._left, rate * self._burst_s)

    def take(self, amount: int, now_s: float) -> None:
        """So much goes through."""
        self._fill(now_s)
        self._left -= amount

    def wait_s(self, now_s: float) -> float:
        """Seconds until the debt is paid; 0 without one."""
        self._fill(now_s)
        return max(0.0, -self._left / self.rate)

    def is_full(self, now_s: float) -> bool:
        """Whether a new one would be the same."""
        self._fill(now_s)
        return math.isclose(self._left, self.rate * self._burst_s)

    def _fill(self, now_s: float) -> None:
        most = self.rate * self._burst_s
        self._left = min(most, self._left + (now_s - self._at_s) * self.rate)
        self._at_s = now_s
