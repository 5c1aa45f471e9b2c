"""A book of the calls of a client and of its answers, which is compared with the stored records."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dledger.errors import DLedgerError

TAKEN: Final = "taken"
"""The call returned: its records must be stored, once, or its future must have failed."""
OPEN: Final = "open"
"""The call was interrupted: its records may be stored, once."""


@dataclass(eq=False, slots=True)
class Attempt:
    """One append.

    Attributes:
        who: the producer or thread whose appends keep their order; empty: none.
        answer: the place that was told, the error, or None where there was no answer.
    """

    values: list[bytes]
    state: str = OPEN
    who: str = ""
    future: Any = None
    answer: Any = None

    def __str__(self) -> str:
        return repr(self.values[0])


@dataclass(eq=False, slots=True)
class Unit:
    """A transaction.

    Attributes:
        ended: "committed", "aborted", or "open" where an interrupt came into its end.
    """

    writer_id: str
    sequence: int
    attempts: list[Attempt] = field(default_factory=list)
    ended: str = OPEN


class Book:
    """One round's attempts.

    Attributes:
        problems: contradictions between the calls, the answers and the stored records.
    """

    def __init__(self, topic: str) -> None:
        self.attempts: list[Attempt] = []
        self.units: list[Unit] = []
        self.problems: list[str] = []
        self._reads: list[tuple[int, list[bytes], bool]] = []
        self._topic = topic
        self._numbers = itertools.count()

    def values(self, count: int) -> list[bytes]:
        """Values that no other record has; several threads may ask for some."""
        return [f"{self._topic} {next(self._numbers)}".encode() for _ in range(count)]

    def attempt(self, values: list[bytes], who: str = "") -> Attempt:
        """An append outside of transactions that begins now."""
        made = Attempt(values, who=who)
        self.attempts.append(made)
        return made

    def read(self, partition: int, values: list[bytes], whole: bool) -> None:
        """Note the records that a reader of a partition from its first offset on gave until it
        ended; not ``whole``: some may be missing."""
        self._reads.append((partition, values, whole))

    def settle(self) -> None:
        """Take the answers out of the futures. All must be there: everything was closed."""
        for one in self.attempts:
            if one.future is not None:
                if not one.future.done():
                    self.problems.append(f"{one} has no answer though its producer is closed")
                elif (error := one.future.exception()) is not None:
                    one.answer = error
                else:
                    one.answer = one.future.result()

    def check(self, stored: Mapping[int, Sequence[bytes]]) -> None:
        """Compare with a topic's partitions, read from their first offset on."""
        counts = Counter(value for values in stored.values() for value in values)
        ours = {value for one in self._all() for value in one.values}
        self.problems += [f"{value!r} is stored {n} times" for value, n in counts.items() if n > 1]
        self.problems += [
            f"{value!r} is stored, and nobody appended it" for value in counts.keys() - ours
        ]
        for one in self.attempts:
            self._check_attempt(one, stored, counts)
        for unit in self.units:
            self._check_unit(unit, counts)
        self._check_order()
        for partition, given, whole in self._reads:
            values = iter(stored.get(partition, ()))
            if not all(one == next(values, None) if whole else one in values for one in given):
                self.problems.append(
                    f"a reader of partition {partition} gave other records than are stored: {given}"
                )

    def _all(self) -> list[Attempt]:
        return [*self.attempts, *(one for unit in self.units for one in unit.attempts)]

    def _check_attempt(
        self, one: Attempt, stored: Mapping[int, Sequence[bytes]], counts: Counter[bytes]
    ) -> None:
        there = sum(counts[value] for value in one.values)
        if isinstance(one.answer, DLedgerError):
            if one.answer.definite and there:
                self.problems.append(f"{one} is stored though its append failed: {one.answer}")
        elif one.answer is not None:
            values = stored.get(one.answer.partition, ())
            if there != len(one.values):
                self.problems.append(
                    f"{there} of {len(one.values)} records from {one} on are stored"
                )
            elif (values[one.answer.start], values[one.answer.end - 1]) != (
                one.values[0],
                one.values[-1],
            ):
                self.problems.append(f"{one} is not where its answer says: {one.answer}")
        elif one.state == TAKEN:
            self.problems.append(f"{one} was taken, and nobody was told what became of it")

    def _check_unit(self, unit: Unit, counts: Counter[bytes]) -> None:
        shares = [(one, sum(counts[value] for value in one.values)) for one in unit.attempts]
        there = any(share for _, share in shares)
        if unit.ended == "aborted" and there:
            self.problems.append(
                f"records of the aborted transaction of {unit.attempts[0]} are stored"
            )
        for one, share in shares:
            whole = share == len(one.values)
            if share and not whole:
                self.problems.append(
                    f"{share} of {len(one.values)} records from {one} on were committed"
                )
            if one.state == TAKEN and not whole and (unit.ended == "committed" or there):
                self.problems.append(f"{one} is missing in its transaction, which is committed")

    def _check_order(self) -> None:
        last: dict[tuple[str, int], int] = {}
        for one in self.attempts:
            if one.who and one.answer is not None and not isinstance(one.answer, DLedgerError):
                at = one.who, one.answer.partition
                if one.answer.start < last.get(at, 0):
                    self.problems.append(
                        f"{one} is stored in front of an earlier record of {one.who}"
                    )
                last[at] = one.answer.end
