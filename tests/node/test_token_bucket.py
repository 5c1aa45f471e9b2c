"""Rates over any window, by virtual time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.token_bucket import TokenBucket

RATE = 1000
Steps = list[tuple[float, int]]
STEPS = st.lists(st.tuples(st.floats(0, 2), st.integers(1, 3 * RATE)), min_size=1, max_size=60)


def taken(steps: Steps) -> list[tuple[float, int]]:
    """(time, amount) of each take of one that asks, waits as long as it must, and rests."""
    now, bucket = 0.0, TokenBucket(RATE, 0.0)
    found = []
    for rest_s, amount in steps:
        now += rest_s
        now += bucket.wait_s(now)
        bucket.take(amount, now)
        found.append((now, amount))
    return found


@given(STEPS)
def test_over_any_window_no_more_than_rate_and_burst_goes_through(steps: Steps) -> None:
    """What was taken last may be a debt, which the next window pays."""
    found = taken(steps)
    for first in range(len(found)):
        total = 0
        for at, amount in found[first:]:
            window = at - found[first][0]
            assert total <= RATE * window + RATE + 1e-3, "before the last one"
            total += amount


@given(st.lists(st.integers(1, RATE), min_size=2, max_size=60))
def test_with_demand_no_less_than_the_rate_goes_through(amounts: list[int]) -> None:
    found = taken([(0.0, amount) for amount in amounts])
    for (before, amount), (after, _) in pairwise(found):
        assert after - before <= amount / RATE + 1e-9, "no longer than it takes to pay for it"
    assert sum(amounts) >= RATE * found[-1][0]


def test_a_rest_saves_no_more_than_a_second() -> None:
    bucket = TokenBucket(RATE, 0.0)
    bucket.take(RATE, 100.0)
    assert bucket.wait_s(100.0) == 0
    bucket.take(RATE, 100.0)
    assert bucket.wait_s(100.0) == pytest.approx(1.0)
    assert not bucket.is_full(101.5)
    assert bucket.is_full(102.0)


def test_another_rate_forgives_no_debt_and_gives_no_burst() -> None:
    bucket = TokenBucket(RATE, 0.0)
    bucket.take(3 * RATE, 0.0)
    bucket.change(2 * RATE, 0.0)
    assert bucket.wait_s(0.0) == pytest.approx(1.0)
    bucket.change(1, 10.0)
    bucket.take(1, 10.0)
    assert bucket.wait_s(10.0) == 0
    bucket.take(1, 10.0)
    assert bucket.wait_s(10.0) == pytest.approx(1.0)


@pytest.mark.parametrize("rate", [1, (1 << 62) - 1])
def test_the_least_and_the_largest_rate(rate: int) -> None:
    bucket = TokenBucket(rate, 0.0)
    bucket.take(rate, 0.0)
    bucket.take(8 << 20, 0.0)
    assert bucket.wait_s(0.0) == pytest.approx((8 << 20) / rate, abs=1e-6)
