"""A wrong argument is the caller's mistake: it is told by its name before anything is sent."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from dledger.client import AsyncClient, AsyncStage, AsyncTransaction, Client, Stage, Transaction
from dledger.client.protocol.arguments import ELSEWHERE, TAKEN, checked, microseconds
from dledger.errors import ConfigError
from dledger.net import run

CLASSES = (Client, AsyncClient, Stage, AsyncStage, Transaction, AsyncTransaction)
CALLS = [
    (cls, name, parameter.name, parameter.annotation)
    for cls in CLASSES
    for name, function in inspect.getmembers(cls, inspect.isfunction)
    if not name.startswith("_")
    for parameter in inspect.signature(function).parameters.values()
    if str(parameter.annotation).removesuffix(" | None") in TAKEN
]
WRONG: dict[str, list[Any]] = {
    "str": [1, b"t", None, "\ud800"],
    "str | None": [1, b"t"],
    "int": ["1", 1.0, None, True, 1 << 63, datetime(2026, 1, 1, tzinfo=UTC)],
    "int | None": ["1", 1.0, False],
    "bool": ["no", 2, None, 1.0],
    "Time": ["2026-01-01", 1.5, None],
    "Sequence[str]": ["orders", [1], 7],
    "Sequence[int]": ["12", [b"1"], 3],
    "Mapping[str, Mapping[int, int]]": [
        {"t": 3},
        [("t", {0: 3})],
        {"t": {"0": 3}},
        {1: {0: 3}},
        {"t": {0: 3.5}},
    ],
    "Mapping[str, Mapping[int, Time]]": [{"t": 3}, {"t": {0: "now"}}],
    "Mapping[str, int]": [{"requests": "many"}, "requests"],
    "Mapping[str, str] | None": [{"t": 1}, "t"],
    "OnDelivery | None": ["print", 1],
}


async def awaited(outcome: Any) -> None:
    if inspect.isawaitable(outcome):
        await outcome


@pytest.mark.parametrize(("cls", "name", "parameter", "annotation"), CALLS)
def test_wrong_argument_of_any_call_is_told_by_its_name(cls, name, parameter, annotation):
    for value in (object(), *WRONG.get(annotation, [])):
        with pytest.raises(ConfigError, match=rf"{name}\(\): {parameter} is .*belongs there"):
            run(awaited(getattr(cls, name)(None, **{parameter: value})))


def test_every_public_call_of_every_class_is_in_the_list():
    assert len({(cls, name) for cls, name, _, _ in CALLS}) > 70
    assert {annotation.removesuffix(" | None") for *_, annotation in CALLS} == set(TAKEN), (
        "an annotation that nothing has any more"
    )
    assert not ELSEWHERE & set(TAKEN)


def test_class_with_an_annotation_that_nobody_checks_is_no_class():
    class New:
        def call(self, colour: complex) -> None:
            """Nothing."""

    with pytest.raises(TypeError, match="colour: 'complex' is not checked"):
        checked(New)


def test_arguments_by_place_are_told_by_name_too():
    with pytest.raises(
        ConfigError, match=r"read\(\): partition is '0', of type str: a whole number"
    ):
        Client.read(None, "t", "0", 5)  # type: ignore[arg-type]


@pytest.fixture
def client(connect: Any) -> Any:
    return connect(2)


def test_what_is_as_good_as_the_type_is_taken(client: Client) -> None:
    assert client.append("t", b"x", partition=np.int64(1)).partition == 1  # type: ignore[arg-type]
    assert client.end_offsets("t", stale=np.False_) == {0: 0, 1: 1}  # type: ignore[arg-type]
    assert set(client.described({"t"})) == {"t"}  # type: ignore[arg-type]
    client.commit_offsets("g", {"t": {np.int64(1): np.int64(1)}})  # type: ignore[dict-item]
    assert client.group("g").offsets == {"t": {1: 1}}
    with client.producer("t") as producer:
        with pytest.raises(ConfigError, match="partition is '1'"):
            producer.append(b"x", partition="1")  # type: ignore[call-overload]
        with pytest.raises(ConfigError, match=r"partition is 0\.0"):
            producer.append(b"x", partition=0.0)  # type: ignore[call-overload]
        assert producer.append(b"y", partition=np.int64(1)).result(10).start == 1  # type: ignore[call-overload]


AT = datetime(2026, 11, 25, 12, 0, 0, 5, tzinfo=UTC)
US = (AT - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
SAME = [AT, AT.replace(tzinfo=None), AT.astimezone(timezone(timedelta(hours=-7))), US, np.int64(US)]


@pytest.mark.parametrize("time", SAME)
async def test_time_is_microseconds_or_a_datetime_and_a_naive_one_is_utc(
    client: Client, time: Any
) -> None:
    client.append("t", [b"a", b"b", b"c"], partition=0, timestamps=[US - 1, AT, US + 1])
    assert client.offsets_for_times("t", time) == {0: 1, 1: -1}
    assert client.offsets_at({"t": {0: time}}).offsets == {"t": {0: 1}}
    async with AsyncClient(client.bootstrap_servers) as other:
        assert await other.offsets_for_times("t", time) == {0: 1, 1: -1}
        assert (await other.offsets_at({"t": {0: time}})).offsets == {"t": {0: 1}}


def test_time_before_1970_and_the_least_fraction_keep_their_value():
    assert microseconds("t", datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1
    assert (
        microseconds("t", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
        == 253_402_300_799_999_999
    )
    with pytest.raises(ConfigError, match="t is '2026', of type str: microseconds since 1970 UTC"):
        microseconds("t", "2026")  # type: ignore[arg-type]
