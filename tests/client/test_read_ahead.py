"""Reading ahead: order, room, errors, and the end."""

from __future__ import annotations

import os
from collections.abc import Generator
from threading import Event
from typing import Any

import pytest

from dledger.client.blocking.read_ahead import AHEAD, ReadAhead, read_ahead
from dledger.errors import ForkedClient, Unavailable


class Part:
    """Numbers that are given out one by one, and what became of them."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.count = count
        self.error = error
        self.given = 0
        self.full, self.ended = Event(), Event()

    def batches(self) -> Generator[Any, None, None]:
        try:
            for number in range(self.count):
                self.given = number + 1
                if self.given > AHEAD:
                    self.full.set()
                yield number
            if self.error is not None:
                raise self.error
        finally:
            self.ended.set()


def test_all_batches_come_in_order() -> None:
    assert list(read_ahead(Part(100).batches())) == list(range(100))
    assert list(read_ahead(Part(0).batches())) == []


def test_no_more_is_read_than_has_room_and_close_ends_it() -> None:
    part = Part(1000)
    found = read_ahead(part.batches())
    assert part.given == 0  # nothing before the first one is asked for
    assert next(found) == 0
    assert part.full.wait(30)
    assert part.given <= AHEAD + 2
    found.close()
    assert part.ended.wait(30)


def test_error_comes_behind_the_batches_before_it() -> None:
    found = ReadAhead(Part(2, Unavailable("gone")).batches())
    assert [next(found), next(found)] == [0, 1]
    for _ in range(2):
        with pytest.raises(Unavailable, match="gone"):
            next(found)


def test_forked_child_is_told_and_does_not_wait() -> None:
    found = ReadAhead(Part(1000).batches())
    assert next(found) == 0
    child = os.fork()
    if not child:
        try:
            next(found)
        except ForkedClient:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert next(found) == 1
    found.close()


def test_end_is_an_end_for_who_asks_again() -> None:
    found = ReadAhead(Part(1).batches())
    assert list(found) == [0]
    assert list(found) == []
    assert next(found, "end") == "end"
