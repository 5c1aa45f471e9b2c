"""What is in flight, step by step, without sockets."""

from __future__ import annotations

from typing import Any

from dledger.client.protocol.session import ProducerSession, stamp
from dledger.client.protocol.writing.in_flight_window import InFlightWindow, Item
from dledger.errors import DLedgerError, OutcomeUnknown, Unavailable
from dledger.protocol.messages.codes import Code
from dledger.records.body.header import BodyHeader, BodyKind, decode_header, encode_header

HEADER = encode_header(BodyHeader(BodyKind.DATA, topic_id=1, partition=0, count=1))


class Flight:
    """A window, and what became of its batches by name."""

    def __init__(self, stage: ProducerSession | None = None) -> None:
        self.window = InFlightWindow("append", stage)
        self.results: dict[str, int | DLedgerError] = {}
        self.items: dict[str, Item] = {}
        if stage is None:
            self.window.opened(ProducerSession(7, 0))

    def push(self, *names: str, deadline_ms: float = 100, partition: int = 0) -> None:
        for name in names:
            item = Item(1, partition, HEADER, b"", deadline_ms, self._done(name))
            self.items[name] = item
            self.window.push(item)

    def _done(self, name: str) -> Any:
        def done(result: int | DLedgerError) -> None:
            assert name not in self.results
            self.results[name] = result

        return done

    def send(self) -> list[str]:
        names = {id(item): name for name, item in self.items.items()}
        sent = []
        while (item := self.window.next()) is not None:
            sent.append(names[id(item)])
        return sent

    def answer(self, name: str, code: Code = Code.SUCCESS, offset: int = 0) -> None:
        self.window.answered(self.items[name].tag, code, "", offset)

    def place(self, name: str) -> tuple[int, int, int]:
        header = decode_header(self.items[name].header)
        return header.producer_id, header.producer_epoch, header.sequence


def under_way(*names: str, deadline_ms: float = 100) -> Flight:
    """Batches of one partition that were sent."""
    flight = Flight()
    flight.push(*names, deadline_ms=deadline_ms)
    flight.send()
    return flight


def check_next_session(flight: Flight, *names: str) -> None:
    """A new session is wanted, and these batches go out in it, numbered from 0 on."""
    assert flight.window.needs_session
    flight.window.opened(ProducerSession(7, 1))
    assert flight.send() == list(names)
    assert [flight.place(name) for name in names] == [(7, 1, n) for n in range(len(names))]


def test_stamp_changes_the_place_in_the_session_and_nothing_else() -> None:
    header = BodyHeader(BodyKind.DATA, 5, 6, 7, 8, 9, 1, 2, 3)
    stamped = decode_header(stamp(encode_header(header), 1 << 40, 70_000, 1 << 50))
    assert stamped == BodyHeader(BodyKind.DATA, 5, 6, 7, 8, 9, 1 << 40, 70_000, 1 << 50)


def test_numbers_run_by_partition_and_in_a_stage_through() -> None:
    flight, stage = Flight(), Flight(ProducerSession(9, 0))
    for one in (flight, stage):
        one.push("a")
        one.push("b", partition=1)
        one.push("c")
        assert one.send() == ["a", "b", "c"]
    assert [flight.place(n) for n in "abc"] == [(7, 0, 0), (7, 0, 0), (7, 0, 1)]
    assert [stage.place(n) for n in "abc"] == [(9, 0, 0), (9, 0, 1), (9, 0, 2)]


def test_nothing_new_goes_out_while_something_must_go_out_again() -> None:
    flight = under_way("a", "b", "c")
    flight.answer("a", Code.LEADER_PENDING_FULL)
    flight.push("d")
    assert flight.send() == []
    flight.answer("b", Code.OUT_OF_ORDER_SEQUENCE)
    flight.answer("c", Code.OUT_OF_ORDER_SEQUENCE)
    assert not flight.window.unanswered
    flight.window.resume()
    assert flight.send() == ["a", "b", "c", "d"]
    assert [flight.place(n)[2] for n in "abcd"] == [0, 1, 2, 3]
    assert not flight.results


def test_lost_batches_go_out_again_in_order_with_their_numbers() -> None:
    flight = under_way("a", "b", "c")
    flight.answer("b", Code.NOT_LEADER)
    flight.window.lost()
    flight.window.resume()
    assert flight.send() == ["a", "b", "c"]
    assert [flight.place(n)[2] for n in "abc"] == [0, 1, 2]
    for offset, name in enumerate("abc"):
        flight.answer(name, offset=offset)
    assert flight.results == {"a": 0, "b": 1, "c": 2}
    assert flight.window.empty


def test_batches_behind_a_refused_one_are_renumbered_in_next_session() -> None:
    flight = under_way("a", "b", "c")
    flight.answer("a", Code.RECORD_TOO_LARGE)
    flight.answer("b", Code.OUT_OF_ORDER_SEQUENCE)
    flight.push("d")
    assert flight.send() == []
    assert not flight.window.needs_session
    flight.answer("c", Code.OUT_OF_ORDER_SEQUENCE)
    check_next_session(flight, "b", "c", "d")
    assert list(flight.results) == ["a"]


def test_numbered_batches_settle_in_old_session_before_new_one_begins() -> None:
    """The lost batch may be stored: under its old number that is recognised, under a new one it
    would be doubled."""
    flight = Flight()
    flight.push("a")
    flight.push("x", partition=1)
    flight.send()
    flight.answer("a", Code.CORRUPT_ENTRY)
    flight.window.lost()
    assert not flight.window.needs_session
    flight.window.resume()
    flight.push("b")
    assert flight.send() == ["x"]
    assert flight.place("x") == (7, 0, 0)
    flight.answer("x", offset=5)
    assert flight.window.needs_session
    assert flight.results["x"] == 5


def test_batch_with_an_open_outcome_is_never_numbered_anew() -> None:
    flight = under_way("a")
    flight.window.lost()
    flight.window.resume()
    flight.send()
    flight.answer("a", Code.UNKNOWN_PRODUCER)
    assert isinstance(flight.results["a"], OutcomeUnknown)
    assert flight.window.empty


def test_time_is_over_for_what_waits_and_not_for_what_is_under_way() -> None:
    flight = Flight()
    flight.push("a", "b", deadline_ms=10)
    flight.push("c", deadline_ms=50)
    flight.send()
    flight.window.expire(20)
    assert not flight.results
    flight.answer("a", Code.TERM_CHANGED)
    flight.answer("b", Code.NOT_LEADER)
    flight.answer("c", Code.OUT_OF_ORDER_SEQUENCE)
    flight.window.expire(20)
    assert isinstance(flight.results["a"], OutcomeUnknown)
    assert type(flight.results["b"]) is Unavailable
    flight.window.resume()
    assert flight.send() == ["c"]
    flight.answer("c", Code.OUT_OF_ORDER_SEQUENCE)
    check_next_session(flight, "c")


def test_fenced_window_takes_nothing_more() -> None:
    flight = under_way("a", "b")
    flight.answer("a", Code.PRODUCER_FENCED)
    flight.push("c")
    assert {
        name: type(result).__name__ for name, result in flight.results.items()
    } == dict.fromkeys("abc", "ProducerFenced")


def test_answer_nobody_waits_for_is_ignored() -> None:
    flight = under_way("a")
    flight.window.lost()
    flight.answer("a")
    assert not flight.results


def test_a_number_that_was_given_up_ends_its_session() -> None:
    """No node would take the next one: there would be a gap before it."""
    flight = under_way("a", deadline_ms=10)
    flight.answer("a", Code.NOT_LEADER)
    flight.window.expire(20)
    flight.push("b")
    check_next_session(flight, "b")
