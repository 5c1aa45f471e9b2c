"""What a reader takes for the answer to its question, without sockets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dledger.checksum import crc32
from dledger.client.protocol.reading.fetched import LARGE_BYTES
from dledger.client.protocol.reading.fetching import Fetcher
from dledger.client.protocol.reading.reading import unanswered
from dledger.errors import CorruptEntry, FrameTooLarge, ProtocolError, Unavailable
from dledger.net.connections.blocking import Lost
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.entry import HEADER_SIZE
from dledger.protocol.messages.fetched import RUN_ROW, FetchedBatch, FetchedRun, FetchResponse


def take(position: int, *spans: tuple[int, int]) -> int:
    """Where a reader at ``position`` stands when it was given these offsets, [first, end) of each
    batch."""
    fetcher = Fetcher(1, 0, position, None, 1 << 20, "read 't'")
    batches = tuple(
        FetchedBatch(base_offset=first, count=end - first, size=1, crc=0) for first, end in spans
    )
    fetcher.take(FetchResponse(code=Code.SUCCESS, batches=batches), memoryview(bytes(len(spans))))
    return fetcher.position


def run_of(*spans: tuple[int, int], crc: int = crc32(b"x")) -> tuple[FetchResponse, memoryview]:
    """An answer with the entries of these offsets, [first, end), each with a body of one byte."""
    rows = b"".join(
        RUN_ROW.pack(first, 10 + at, 49 * at, 0, 0, at, 1, crc)
        for at, (first, _) in enumerate(spans)
    )
    run = FetchedRun(rows, end_offset=spans[-1][1], term=3)
    payload = b"".join(bytes(HEADER_SIZE) + b"x" for _ in spans)
    return FetchResponse(code=Code.SUCCESS, run=run), memoryview(payload)


@pytest.mark.parametrize("size", [1, LARGE_BYTES + 1])
def test_damaged_body_is_refused(size: int) -> None:
    batches = tuple(FetchedBatch(at, 1, size, crc32(bytes(size))) for at in range(2))
    answer, sound = FetchResponse(code=Code.SUCCESS, batches=batches), bytes(2 * size)
    assert len(Fetcher(1, 0, 0, None, 1, "").take(answer, memoryview(sound))) == 2
    with pytest.raises(CorruptEntry, match=r"\[1, 2\) does not match its CRC"):
        Fetcher(1, 0, 0, None, 1, "").take(answer, memoryview(sound[:-1] + b"x"))


def test_run_is_taken_as_its_bodies_and_their_places() -> None:
    fetcher = Fetcher(1, 0, 5, None, 1 << 20, "read 't'")
    found = fetcher.take(*run_of((4, 6), (6, 9)))
    assert [(batch, bytes(body)) for batch, body in found] == [
        (FetchedBatch(4, 2, 1, crc32(b"x"), 10, 3), b"x"),
        (FetchedBatch(6, 3, 1, crc32(b"x"), 11, 3), b"x"),
    ]
    assert (fetcher.position, found.end_offset) == (9, 9)


@pytest.mark.parametrize(
    ("end", "log_end", "behind"),
    [(None, 12, 9), (12, 12, 9), (9, 12, None), (8, 12, None), (None, 9, None)],
)
def test_next_question_is_asked_where_more_is_wanted_and_there(
    end: int | None, log_end: int, behind: int | None
) -> None:
    fetcher = Fetcher(1, 0, 5, end, 1 << 20, "read 't'")
    run = replace(run_of((4, 6), (6, 9))[0], end_offset=log_end)
    batches = (FetchedBatch(4, 2, 1, 0), FetchedBatch(6, 3, 1, 0))
    for answer in (run, replace(run, run=FetchedRun(), batches=batches)):
        request = fetcher.request_behind(answer)
        assert (request and request.start_offset) == behind
    assert fetcher.position == 5


def test_no_question_follows_an_answer_without_new_records() -> None:
    fetcher = Fetcher(1, 0, 5, None, 1 << 20, "read 't'")
    refused = FetchResponse(code=Code.BEHIND, end_offset=12)
    old = replace(refused, code=Code.SUCCESS, batches=(FetchedBatch(4, 1, 1, 0),))
    assert [fetcher.request_behind(answer) for answer in (refused, old)] == [None, None]


@pytest.mark.parametrize("crc", [0, 7], ids=["no CRC", "another CRC"])
def test_run_that_is_not_known_to_be_sound_is_asked_for_body_by_body(crc: int) -> None:
    """The node looks at each then, and repairs what is damaged."""
    fetcher = Fetcher(1, 0, 5, None, 1 << 20, "read 't'")
    assert fetcher.request().takes_run
    assert not fetcher.take(*run_of((5, 6), crc=crc))
    assert (fetcher.position, fetcher.request().takes_run) == (5, False)
    with pytest.raises(CorruptEntry):
        fetcher.take(*run_of((5, 6), crc=crc))


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (FrameTooLarge("a header"), 512),
        (Lost("a header", sent=True, error=FrameTooLarge("a header")), 512),
        (Lost("closed", sent=True), 1024),
    ],
)
def test_answer_too_large_to_be_read_is_asked_for_in_halves(
    error: Lost | ProtocolError, asked: int
) -> None:
    """Of a node from before an answer had a bound in batches."""
    fetcher = Fetcher(1, 0, 0, None, 1024, "read 't'")
    assert isinstance(unanswered(fetcher, "a:1", error), Unavailable)
    assert fetcher.request().max_bytes == asked


def test_run_whose_rows_are_not_those_of_its_entries_is_refused() -> None:
    answer, payload = run_of((5, 6), (6, 7))
    for wrong in (
        replace(answer.run, end_offset=6),
        replace(answer.run, rows=answer.run.rows[56:]),
    ):
        with pytest.raises(ProtocolError, match="a run of"):
            Fetcher(1, 0, 5, None, 1, "").take(replace(answer, run=wrong), payload)
    with pytest.raises(ProtocolError, match="where 4 comes next"):
        Fetcher(1, 0, 4, None, 1, "").take(answer, payload)


def test_batches_that_go_on_where_the_reader_stands_are_taken() -> None:
    assert take(5, (5, 7), (7, 8)) == 8
    assert take(5, (3, 6)) == 6
    assert take(5) == 5


@pytest.mark.parametrize(
    "spans",
    [((6, 8),), ((3, 5),), ((4, 5), (5, 6)), ((5, 7), (8, 9)), ((5, 7), (6, 8))],
    ids=["a gap of one", "nothing new", "nothing new at first", "a gap between", "some twice"],
)
def test_batches_that_leave_offsets_out_or_bring_nothing_new_are_refused(
    spans: tuple[tuple[int, int], ...],
) -> None:
    with pytest.raises(ProtocolError, match="where"):
        take(5, *spans)
