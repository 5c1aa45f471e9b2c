"""Where a read starts and ends, as options say it."""

from __future__ import annotations

import pytest

from dledger.datasource.options.bounds import Bound, BoundKind, parse_bound, parse_offsets, time_us
from dledger.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("earliest", Bound(BoundKind.EARLIEST, "o")),
        (" Latest ", Bound(BoundKind.LATEST, "o")),
        ("committed", Bound(BoundKind.COMMITTED, "o")),
        ("-100", Bound(BoundKind.BACK, "o", number=100)),
        ("-10m", Bound(BoundKind.AGO, "o", number=600_000_000)),
        ("-500 ms", Bound(BoundKind.AGO, "o", number=500_000)),
        (
            '{"t": {"0": 23, "1": -2}}',
            Bound(BoundKind.OFFSETS, "o", positions={"t": {0: 23, 1: -2}}),
        ),
    ],
)
def test_a_bound_is_a_word_a_way_back_or_offsets(text: str, bound: Bound) -> None:
    assert parse_offsets("o", text) == bound


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "earliest, latest, committed, -100"),
        ("[1]", "earliest, latest, committed, -100"),
        ("100", "earliest, latest, committed, -100"),
        ("-10 parsecs", "-10m"),
        ('{"a": {"0": -3}}', "offset -3"),
        ('{"a": {"0": "x"}}', "earliest, latest"),
        ('{"a": {"0": 1.5}}', "earliest, latest"),
        ('{"a": {}}', "no partition"),
        ('{"a": {"-1": 0}}', "no partition or a negative one"),
        ("-1", "could mean latest or the last 1 records"),
        ("-2", "could mean earliest or the last 2 records"),
    ],
)
def test_a_bound_that_could_mean_nothing_or_two_things_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_offsets("o", text)


@pytest.mark.parametrize(
    ("value", "micros"),
    [
        ("1700000000123", 1_700_000_000_123_000),
        (1_700_000_000_123, 1_700_000_000_123_000),
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("2024-03-10T02:30:00.000001-05:00", 1_710_055_800_000_001),
    ],
)
def test_a_time_is_in_milliseconds_or_has_its_zone(value: object, micros: int) -> None:
    assert time_us("o", value) == micros


@pytest.mark.parametrize("value", ["2024-03-10T07:30:00", "yesterday", "-5", True, None, ""])
def test_a_time_that_could_be_any_or_none_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"milliseconds since 1970.*with its zone"):
        time_us("o", value)


def test_times_come_for_all_partitions_or_for_each() -> None:
    assert parse_bound({"startingTimestamp": "5"}, "starting") == Bound(
        BoundKind.TIME, "startingTimestamp", number=5000, latest_if_none=False
    )
    given = {
        "startingOffsetsByTimestamp": '{"t": {"0": 5, "1": "1970-01-01T00:00:01Z"}}',
        "startingOffsetsByTimestampStrategy": "LATEST",
    }
    assert parse_bound(given, "starting") == Bound(
        BoundKind.TIMES,
        "startingOffsetsByTimestamp",
        positions={"t": {0: 5000, 1: 1_000_000}},
        latest_if_none=True,
    )
    assert parse_bound({"endingTimestamp": "5"}, "ending") == Bound(
        BoundKind.TIME, "endingTimestamp", number=5000
    )
    assert parse_bound({}, "ending") is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"startingOffsets": "earliest", "startingTimestamp": "5"},
            "'startingOffsets' and 'startingTimestamp' both",
        ),
        ({"startingTimestamp": "5", "startingOffsetsByTimestamp": "{}"}, "give one of them"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "or leave it away"),
        (
            {"startingOffsets": "earliest", "startingOffsetsByTimestampStrategy": "latest"},
            "or leave it away",
        ),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "first"},
            "error or latest",
        ),
        ({"startingOffsetsByTimestamp": "7"}, r"milliseconds since 1970, or times.*\{"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": "soon"}}'}, "'soon'"),
        ({"startingOffsetsByTimestamp": '{"t": {}}'}, "no partition"),
    ],
)
def test_options_that_contradict_one_another_are_refused(
    given: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_bound(given, "starting")
