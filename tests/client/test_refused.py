"""Nobody takes the client any more while an attempt of a write is open: what was sent may have been
done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dledger.client import Appended
from dledger.errors import (
    AccessDenied,
    ConfigError,
    DLedgerError,
    OutcomeUnknown,
    TopicNotFound,
    WrongGroup,
)
from dledger.protocol.messages.client import AppendRequest, ExecuteRequest, MetadataRequest
from dledger.protocol.messages.codes import Code
from dledger.records.body.build import make_records

Turn = Callable[[Any], None]
OPEN = "append to 't': it may or may not have been done, and then"


def another_group(group: Any) -> None:
    group.is_now("B")


def without_the_secret(group: Any) -> None:
    group.refusal = Code.ACCESS_DENIED


def of_another_release(group: Any) -> None:
    group.refusal = Code.UNSUPPORTED


TURNS: list[tuple[Turn, type[DLedgerError]]] = [
    (another_group, WrongGroup),
    (without_the_secret, AccessDenied),
    (of_another_release, ConfigError),
]
turns = pytest.mark.parametrize(
    ("turn", "refusal"), TURNS, ids=[each.__name__ for each, _ in TURNS]
)


def lose_and(group: Any, turn: Turn, fate: str) -> Callable[[], str]:
    """As a fault: the request is done or not, all connections end, and every new one is refused."""

    def happens() -> str:
        turn(group)
        group.drop_connections()
        return fate

    return happens


def take_again(group: Any) -> None:
    group.ids, group.refusal = {}, None


@pytest.fixture
def client(either: Any) -> Any:
    either.append("t", b"a")
    return either


@turns
@pytest.mark.parametrize("fate", ["lose", "drop"])
def test_sent_append_stays_open_and_next_append_is_not_taken_for_it(
    group: Any, client: Any, turn: Turn, refusal: type[DLedgerError], fate: str
) -> None:
    """Were it called definite, its number would go to the next record, and a node that has it would
    answer that with the first one's place and not store it."""
    group.fault(AppendRequest, lose_and(group, turn, fate))
    with pytest.raises(OutcomeUnknown, match=OPEN) as caught:
        client.append("t", b"b")
    assert not caught.value.definite
    with pytest.raises(refusal) as refused:
        client.append("t", b"never sent")
    assert refused.value.definite
    take_again(group)
    stored = [b"a", b"b"] if fate == "lose" else [b"a"]
    assert client.append("t", b"c") == Appended("t", 0, len(stored), len(stored) + 1)
    assert group.values("t") == [*stored, b"c"]


@turns
def test_a_commit_stays_open(
    group: Any, client: Any, turn: Turn, refusal: type[DLedgerError]
) -> None:
    with client.transaction("w", 0) as transaction:
        transaction.append("t", b"b")
        group.fault(ExecuteRequest, lose_and(group, turn, "lose"))
        with pytest.raises(OutcomeUnknown):
            transaction.commit()
        take_again(group)
        assert transaction.commit().records == 1
    assert group.values("t") == [b"a", b"b"]


@turns
def test_what_a_producer_has_under_way_stays_open(
    group: Any, client: Any, turn: Turn, refusal: type[DLedgerError]
) -> None:
    with client.producer("t") as producer:
        group.fault(AppendRequest, lose_and(group, turn, "lose"))
        assert isinstance(producer.append_batch(0, make_records(b"b")).exception(), OutcomeUnknown)
    assert group.values("t") == [b"a", b"b"]


@pytest.mark.parametrize(
    "change", [lambda c: c.create_topic("u"), lambda c: c.add_partitions("t", 2)]
)
def test_topic_change_is_not_called_undone_when_description_fails(
    group: Any, client: Any, change: Callable[[Any], Any]
) -> None:
    """The topic was created or changed before its description failed."""
    group.fault(MetadataRequest, Code.MALFORMED)
    with pytest.raises(OutcomeUnknown, match="it was done, and then"):
        change(client)
    assert {info.name: info.partitions for info in client.topics()} in ({"t": 1, "u": 1}, {"t": 2})
    group.fault(ExecuteRequest, Code.UNKNOWN_TOPIC)
    with pytest.raises(TopicNotFound):
        change(client)
