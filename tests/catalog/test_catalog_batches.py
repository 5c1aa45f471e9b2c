"""Batches of one partition that are applied together come to the state that they come to one by
one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.errors import CorruptStore
from dledger.protocol.messages.catalog_commands import CreateTopic
from dledger.protocol.messages.entry import HEADER_SIZE, MAGIC_NORMAL, Entry, LogEnd
from dledger.protocol.messages.entry_runs import Entries, stamp_all
from dledger.records.body.header import (
    BODY_HEADER_SIZE,
    BodyHeader,
    BodyKind,
    Codec,
    Flag,
    decode_header,
    encode_header,
    plain_batches,
    plain_batches_of_run,
)
from dledger.types import Index, Position, Term

SEGMENT = 4096
FIRST = 3
"""The entry of the first batch."""


def catalog() -> Catalog:
    """Two topics, one of them typed; the log has entries in front of the batches."""
    made = Catalog(MemoryTables())
    made.apply_command(0, CreateTopic(name="raw", log_id="raw", partitions=2))
    settings = {"type": "typed"}
    made.apply_command(1, CreateTopic(name="typed", log_id="typed", settings=settings))
    return made


def entries_of(bodies: list[bytes]) -> Entries:
    end = LogEnd(Position(Term(1), Index(FIRST - 1)), 0, 7)
    return stamp_all(end, Term(1), MAGIC_NORMAL, bodies, SEGMENT)


def one_by_one(made: Catalog, entries: Iterable[Entry]) -> list[int]:
    offsets = []
    for one in entries:
        header = decode_header(one.body)
        size = len(one.body)
        offsets.append(made.apply_data(one.index, one.pos, size, header, one.body_crc).base_offset)
    return offsets


some_bodies = st.lists(
    st.builds(
        lambda partition, count, time, size: (
            encode_header(BodyHeader(BodyKind.DATA, 1, partition, count, 0, time)) + bytes(size)
        ),
        st.sampled_from([0, 0, 0, 1]),
        st.integers(1, 5),
        st.integers(-10, 10),
        st.integers(0, 900),
    ),
    min_size=1,
    max_size=40,
)


@given(bodies=some_bodies)
def test_batches_together_are_as_batches_one_by_one(bodies: list[bytes]) -> None:
    entries, together, apart = entries_of(bodies), catalog(), catalog()
    found: list[int] = []
    for whole in entries.runs:
        at, data = 0, [one.body for one in Entries((whole,))]
        while at < len(whole):
            batches = plain_batches_of_run(whole.pieces[0], whole.starts, at, HEADER_SIZE)
            assert batches == plain_batches(data, at)
            part = whole.cut(at, at + max(1, len(batches)))
            at += len(part)
            if batches:
                header = decode_header(part.body(0))
                offsets = together.apply_batches(part, header, batches)
                assert offsets is not None
                found += offsets
            else:
                found += one_by_one(together, [part.entry(0)])
    assert found == one_by_one(apart, entries)
    assert together.snapshot() == apart.snapshot()
    for number in range(2):
        ours, theirs = (made.partitions[1 << 32 | number] for made in (together, apart))
        assert ours.find(0, -1, 1 << 30) == theirs.find(0, -1, 1 << 30)
        assert ours.offset_for_time(5) == theirs.offset_for_time(5)


@given(bodies=some_bodies)
def test_a_run_ends_where_a_batch_is_another_one(bodies: list[bytes]) -> None:
    headers = [decode_header(body) for body in bodies]
    alike = [header.partition == headers[0].partition for header in headers]
    length = alike.index(False) if False in alike else len(bodies)
    expected = [(header.count, header.last_time_us) for header in headers[:length]]
    assert plain_batches(bodies, 0) == (expected if length > 1 else [])


PLAIN: dict[str, Any] = {"kind": BodyKind.DATA, "topic_id": 1, "partition": 0, "count": 1}


@pytest.mark.parametrize(
    "other",
    [
        {"kind": BodyKind.COMMAND},
        {"topic_id": 2},
        {"partition": 1},
        {"count": 0},
        {"codec": Codec.LZ4},
        {"flags": Flag.STAGED},
        {"producer_id": 4},
        {"schema_version": 1},
        None,
    ],
    ids=str,
)
def test_a_body_that_is_looked_at_by_itself_is_in_no_run(other: dict[str, Any] | None) -> None:
    plain = encode_header(BodyHeader(**PLAIN))
    body = (
        plain[: BODY_HEADER_SIZE - 1]
        if other is None
        else encode_header(BodyHeader(**{**PLAIN, **other}))
    )
    for bodies, begin, count in (
        ([plain, plain, body, plain], 0, 2),
        ([plain, body, plain, plain], 0, 0),
        ([plain, body, plain, plain], 2, 2),
    ):
        assert len(plain_batches(bodies, begin)) == count
        run = entries_of(bodies).runs[0]
        batches = plain_batches_of_run(run.pieces[0], run.starts, begin, HEADER_SIZE)
        assert len(batches) == count


@pytest.mark.parametrize(
    "other",
    [{"topic_id": 2}, {"topic_id": 9}, {"partition": 2}, {"flags": Flag.STAGED}],
    ids=str,
)
def test_a_run_that_needs_a_look_at_each_is_not_applied(other: dict[str, Any]) -> None:
    made = catalog()
    header = BodyHeader(**{**PLAIN, **other})
    bodies = [encode_header(header)] * 3
    before = made.snapshot()
    assert made.apply_batches(entries_of(bodies).runs[0], header, plain_batches(bodies, 0)) is None
    assert made.snapshot() == before


def test_batches_are_never_applied_twice() -> None:
    made, header = catalog(), BodyHeader(**PLAIN)
    bodies = [encode_header(header)] * 3
    run, batches = entries_of(bodies).runs[0], plain_batches(bodies, 0)
    assert made.apply_batches(run, header, batches) == [0, 1, 2]
    assert made.applied_index == FIRST + 2
    with pytest.raises(CorruptStore, match="out of order"):
        made.apply_batches(run.cut(2, 3), header, batches[2:])
