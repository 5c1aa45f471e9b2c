"""Records that are appended one by one: columns on their way in, one answer for all of them on the
way out. A record costs a place in a list and a handle of two fields; all else is done once a batch.
Pure."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from dledger import forks
from dledger.client.protocol.results import Appended, Promise
from dledger.errors import DLedgerError

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
LOGGER: Final = logging.getLogger(__name__)


class ValueBatch:
    """Records appended one by one to a partition. They go out and are answered together.

    A record is taken by one step, the append to ``records``: a value, or a pair of value and key
    where the batch is ``keyed``. ``start`` is the first one's offset once all are known to be in
    one row, and else -1. No lock guards the answer: the loop's thread alone writes it, and what
    waits for it looks again behind its own registration.
    """

    __slots__ = (
        "_answers",
        "_born",
        "_callbacks",
        "_left",
        "keyed",
        "partition",
        "records",
        "start",
        "topic",
    )

    def __init__(self, topic: str, partition: int, *, keyed: bool) -> None:
        self.topic = topic
        self.partition = partition
        self.keyed = keyed
        self.records: list[Any] = []
        self.start = -1
        self._born = forks.generation
        self._left = -1
        self._answers: list[tuple[int, int, int | DLedgerError]] = []
        self._callbacks: deque[Callable[[], object]] = deque()

    def columns(self) -> pa.RecordBatch:
        """All records, for the way out; none is taken any more."""
        from dledger.records.body.build import make_records

        self._left = len(self.records)
        if not self.keyed:
            return make_records(self.records)
        values, keys = zip(*self.records, strict=True)
        return make_records(list(values), keys=list(keys))

    @property
    def is_done(self) -> bool:
        """Whether the outcome of every record is known."""
        return not self._left

    def answered(self, result: int | DLedgerError, first: int, count: int) -> None:
        """``count`` records from ``first`` on have the offsets from ``result`` on, or failed."""
        is_whole = not self._answers and count == self._left
        if is_whole and not isinstance(result, DLedgerError):
            self.start = result
        self._answers.append((first, count, result))
        self._left -= count
        if not self._left:
            self._call_back()

    def result_of(self, at: int) -> Appended:
        """The place of a record whose batch is done. Raises its error where it has none."""
        for first, count, result in self._answers:
            if first <= at < first + count:
                if isinstance(result, DLedgerError):
                    raise result
                offset = result + at - first
                return Appended(self.topic, self.partition, offset, offset + 1)
        raise AssertionError(f"record {at} of a batch that is done has no answer")

    def error_of(self, at: int) -> DLedgerError | None:
        """Why a record whose batch is done is not stored; None: it is."""
        for first, count, result in self._answers:
            if isinstance(result, DLedgerError) and first <= at < first + count:
                return result
        return None

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call back once all is known: now, or in the thread of the answer.

        Raises:
            ForkedClient: the answer will come to the process that this one was forked from.
        """
        if self._left:
            forks.check_born_here(self._born, "an append that is under way")
        self._callbacks.append(callback)
        if not self._left:
            self._call_back()

    def _call_back(self) -> None:
        """Each callback is taken once, by the thread of the answer or by its own."""
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:  # the other thread was faster
                return
            callback()


class RecordHandle:
    """One record of a batch. The shells add how its outcome is waited for."""

    __slots__ = ("_at", "_batch")

    def __init__(self, batch: ValueBatch, at: int) -> None:
        self._batch = batch
        self._at = at

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.is_done

    def cancel(self) -> bool:
        """A record that is on its way cannot be called back: False."""
        return False

    def cancelled(self) -> bool:
        """Never."""
        return False

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call ``callback`` with this once the outcome is known: now, or in the thread of the
        answer. Its exceptions are logged."""
        self._batch.when_done(partial(call_program, callback, self))

    def _known_exception(self) -> DLedgerError | None:
        """Why it is not stored, once the outcome is known; None: it is stored."""
        return self._batch.error_of(self._at)

    def _known_result(self) -> Appended:
        """Its place, once the outcome is known. Raises the error instead."""
        return self._batch.result_of(self._at)


def call_program(callback: Callable[[T], object], argument: T) -> None:
    """Call a function of the program; its exceptions are logged."""
    try:
        callback(argument)
    except Exception:
        LOGGER.exception("a callback of a producer failed")


def hand_on(future: Promise, record: RecordHandle) -> None:
    """Give a future the outcome of a record, which is known."""
    error = record._known_exception()
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(record._known_result())
