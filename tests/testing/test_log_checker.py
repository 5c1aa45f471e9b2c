"""The log checker refuses what is none of a log, by its name, and takes what is one."""

from __future__ import annotations

import pytest

from dledger.testing.checkers.anomaly import MAX_OF_A_KIND, Anomaly
from dledger.testing.checkers.log_checker import check_log
from dledger.testing.checkers.notation import parse
from tests.testing.histories_of import APPEND, END, READ, call, sections, with_titles

BAD = [(title.rsplit(": ", 1), text) for title, text in sections("log_bad.txt")]
GOOD = sections("log_good.txt")


def test_collections_hold_enough_histories_and_every_anomaly() -> None:
    assert len(BAD) >= 30
    assert len(GOOD) >= 30
    assert {anomaly for (_, anomaly), _ in BAD} == {a.value for a in Anomaly} - {
        Anomaly.NOT_LINEARIZABLE.value
    }


@pytest.mark.parametrize(
    ("anomaly", "text"), [pytest.param(a, text, id=title) for (title, a), text in BAD]
)
def test_history_that_is_none_of_a_log_is_refused_by_its_anomaly(anomaly: str, text: str) -> None:
    findings = check_log(parse(text))
    assert anomaly in {finding.anomaly.value for finding in findings}, "\n".join(map(str, findings))


@with_titles(GOOD)
def test_history_of_a_log_is_accepted(text: str) -> None:
    assert check_log(parse(text)) == []


def test_value_that_is_written_twice_is_an_error_of_the_writer() -> None:
    with pytest.raises(ValueError, match="written twice"):
        check_log(parse("w 0-1 append a -> 0\nw 2-3 append a -> 1"))


def test_anomalies_of_one_kind_are_told_a_few_times_only() -> None:
    lost = [call(APPEND, "w", 2 * at, 2 * at + 1, values=(at,), start=at) for at in range(50)]
    empty = [call(END, "r", 200 + at, 201 + at, start=0) for at in range(50)]
    findings = check_log(lost + empty)
    assert len(findings) <= 2 * MAX_OF_A_KIND
    assert "the log ends at 0" in str(findings[0])


def test_long_history_is_checked_in_the_time_of_a_sort() -> None:
    """200,000 values; a checker that looked at each pair of calls would not come back."""
    history = []
    for at in range(20_000):
        begin = 10 * at
        values = tuple(range(begin, begin + 10))
        wrote = {"values": values, "start": begin}
        asked = {"producer": f"p{at % 7}", "sequence": at}
        history.append(call(APPEND, f"w{at % 7}", begin, begin + 25, **wrote, **asked))
        history.append(call(READ, "r", begin + 26, begin + 30, **wrote))
    assert check_log(history) == []
