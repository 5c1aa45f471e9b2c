"""Limits of a micro-batch: rows and bytes together, exactly, and never a standstill."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dledger.streaming.admission import admit, shares
from tests.datasource.stored_layout import Layout

layouts = st.lists(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 1000)), max_size=12),
    min_size=1,
    max_size=4,
).map(lambda batches: layout_of(*batches))


def layout_of(*batches: list[tuple[int, int]]) -> Layout:
    """For each partition of topic t its stored batches: (records, bytes)."""
    return Layout({("t", partition): stored for partition, stored in enumerate(batches)})


@given(
    layouts, st.one_of(st.none(), st.integers(1, 60)), st.one_of(st.none(), st.integers(1, 4000))
)
def test_both_limits_hold_in_every_batch_until_the_backlog_is_read(
    log: Layout, max_rows: int | None, max_bytes: int | None
) -> None:
    at = {"t": dict.fromkeys(log.ends["t"], 0)}
    for _ in range(2000):
        if at == log.ends:
            break
        left = sum(log.ends["t"].values()) - sum(at["t"].values())
        after = admit(at, log.ends, log, max_rows, max_bytes)
        rows = sum(after["t"].values()) - sum(at["t"].values())
        assert rows > 0
        assert all(at["t"][p] <= after["t"][p] <= log.ends["t"][p] for p in at["t"])
        if max_rows is not None:
            assert rows <= max_rows
            if max_bytes is None:
                assert rows == min(max_rows, left)
        if max_bytes is not None:
            stored = [b for p in at["t"] for b in log.stored("t", p, at["t"][p], after["t"][p])]
            assert sum(stored) <= max_bytes or len(stored) == 1
        at = after
    assert at == log.ends


def test_rows_are_shared_out_by_backlog() -> None:
    log = layout_of([(100, 10)], [(300, 10)])
    assert admit({"t": {0: 0, 1: 0}}, log.ends, log, max_rows=40) == {"t": {0: 10, 1: 30}}


def test_bytes_are_counted_in_whole_stored_batches() -> None:
    log = layout_of([(10, 100)] * 10)
    assert admit({"t": {0: 0}}, log.ends, log, max_bytes=350) == {"t": {0: 30}}


def test_a_batch_above_the_byte_limit_is_admitted_alone() -> None:
    log = layout_of([(10, 100)], [(10, 500)])
    assert admit({"t": {0: 0, 1: 0}}, log.ends, log, max_bytes=50) == {"t": {0: 0, 1: 10}}


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=9), st.integers(0, 3000))
def test_shares_are_exact_and_never_above_the_amount(amounts: list[int], limit: int) -> None:
    result = shares(amounts, limit)
    assert sum(result) == min(limit, sum(amounts))
    assert all(0 <= got <= amount for got, amount in zip(result, amounts, strict=True))
