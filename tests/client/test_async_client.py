"""The asyncio client has the same names as the blocking one, and the same manners."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import Any

import pytest

from dledger.client import Appended, AsyncClient, AsyncTransaction, Client, Committed
from dledger.errors import (
    OffsetOutOfRange,
    OutcomeUnknown,
    ProducerFenced,
    TopicNotFound,
    TransactionError,
)
from dledger.protocol.messages.catalog_commands import AbortTransaction
from dledger.protocol.messages.client import AppendRequest, ExecuteRequest, FetchRequest
from dledger.protocol.messages.codes import Code
from dledger.records.body.build import make_records


@pytest.fixture
def client(connect_async: Any) -> contextlib.AbstractAsyncContextManager[AsyncClient]:
    return connect_async()


def numbered(count: int) -> list[bytes]:
    return [str(n).encode() for n in range(count)]


def test_both_clients_have_the_same_names_and_parameters() -> None:
    names = {name for name in dir(Client) if not name.startswith("_")}
    assert {name for name in dir(AsyncClient) if not name.startswith("_")} == names
    for name in names:
        blocking, other = getattr(Client, name), getattr(AsyncClient, name)
        if callable(blocking):
            assert (
                inspect.signature(blocking).parameters.keys()
                == inspect.signature(other).parameters.keys()
            )


async def test_append_and_read_and_offsets(client: AsyncClient) -> None:
    assert await client.append("t", [b"a", b"b"]) == Appended("t", 0, 0, 2)
    assert await client.append_batch("t", 0, make_records(b"c")) == Appended("t", 0, 2, 3)
    found = [b async for b in client.read("t", 0, 1)]
    assert [v for b in found for v in b.column("value").to_pylist()] == [b"b", b"c"]
    assert await client.end_offsets("t") == {0: 3}
    assert await client.begin_offsets("t") == {0: 0}
    assert await client.offsets_for_times("t", 0) == {0: 0}
    assert (await client.offsets(["t"])).offsets == {"t": {0: 3}}
    assert (await client.split("t", 0, 0, 3, 1 << 20))[-1].end == 3
    assert [info.name for info in await client.topics()] == ["t"]
    await client.commit_offsets("g1", {"t": {0: 2}})
    assert (await client.group("g1")).offsets == {"t": {0: 2}}
    assert await client.groups() == ["g1"]
    assert set(await client.status()) == {"n0", "n1", "n2"}
    await client.transfer("n1")
    assert (await client.append("t", b"d")).start == 3
    with pytest.raises(OffsetOutOfRange):
        _ = [b async for b in client.read("t", 0, 9)]
    with pytest.raises(TopicNotFound):
        await client.append("missing", b"x")
    await client.delete_topic("t")


async def test_appends_at_the_same_time_are_each_stored_once(
    client: AsyncClient, group: Any
) -> None:
    group.fault(
        AppendRequest, None, "lose", None, "drop", Code.NOT_LEADER, ("done", Code.TERM_CHANGED)
    )
    await asyncio.gather(*[client.append("t", value) for value in numbered(40)])
    assert sorted(group.values("t")) == sorted(numbered(40))


async def test_append_never_answered_is_outcome_unknown(group: Any, connect_async: Any) -> None:
    async with connect_async(request_timeout_ms=200) as client:
        group.fault(AppendRequest, "lose", *["drop"] * 2000)
        with pytest.raises(OutcomeUnknown):
            await client.append("t", b"a")
        group.faults.clear()
        assert (await client.append("t", b"b")).start == 1


async def test_append_that_is_cancelled_does_not_spoil_the_next_one(
    client: AsyncClient, group: Any
) -> None:
    await client.append("t", b"a")
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()

    def silence() -> str:
        loop.call_soon_threadsafe(arrived.set)
        return "silence"

    group.fault(AppendRequest, silence)
    cut = asyncio.create_task(client.append("t", b"b"))
    await arrived.wait()
    cut.cancel()
    assert await client.append("t", b"c") == Appended("t", 0, 1, 2)


async def test_read_falls_over_to_another_replica(group: Any, client: AsyncClient) -> None:
    group.behind = {"n2"}
    for value in numbered(10):
        await client.append("t", value)
    group.fault(FetchRequest, "drop", Code.CORRUPT_ENTRY)
    found = client.fetch_bodies("t", 0, 0, 10, max_bytes=1, replica="n2")
    assert [b.base_offset async for b, _ in found] == list(range(10))


async def test_producer_over_faults_stores_each_batch_once_and_in_order(
    group: Any, connect_async: Any
) -> None:
    group.fault(
        AppendRequest, None, "lose", None, "drop", Code.NOT_LEADER, Code.LEADER_PENDING_FULL
    )

    async with (
        connect_async(max_in_flight=16) as client,
        await client.producer("t") as producer,
    ):
        futures = [await producer.append_batch(0, make_records(value)) for value in numbered(100)]
        futures += [await producer.append(value) for value in numbered(100)]
        await producer.flush()
        assert [future.result().start for future in futures] == list(range(200))
    assert group.values("t") == numbered(100) * 2


async def test_producer_with_a_name_fences_the_one_before(client: AsyncClient) -> None:
    old = await client.producer("t", name="mine")
    async with await client.producer("t", name="mine") as new:
        with pytest.raises(ProducerFenced):
            await (await old.append(b"zombie"))
        assert (await (await new.append(b"a"))).start == 0
    await old.close()


async def test_transaction_is_seen_after_its_commit_and_safe_to_repeat(
    client: AsyncClient, group: Any
) -> None:
    group.fault(ExecuteRequest, "lose")
    for repeated in (False, True):
        async with await client.transaction("w", 1) as transaction:
            await transaction.append("t", [b"a", b"b"])
            await transaction.append("t", b"c")
        assert await transaction.commit() == Committed(repeated, {"t": {0: (0, 3)}}, 3)
    with contextlib.suppress(KeyError):
        async with await client.transaction("w", 2) as transaction:
            await transaction.append("t", b"x")
            raise KeyError
    stage = await client.stage("w", 3)
    await client.abort_transaction("w", 3)
    await stage.append_batch("t", 0, make_records(b"x"))
    with pytest.raises(TransactionError):
        await stage.close()
    assert group.values("t") == [b"a", b"b", b"c"]


async def test_stage_that_is_closed_and_transaction_that_is_over_take_nothing(
    client: AsyncClient, group: Any
) -> None:
    stage = await client.stage("w", 1)
    await stage.append_batch("t", 0, make_records(b"a"))
    total = await stage.close()
    with pytest.raises(TransactionError, match="the stage is closed"):
        await stage.append_batch("t", 0, make_records(b"late"))
    assert await stage.close() == total
    await client.commit_transaction("w", 1, [total])
    for sequence, end in ((2, AsyncTransaction.commit), (3, AsyncTransaction.abort)):
        transaction = await client.transaction("w", sequence)
        await transaction.append("t", b"b")
        await end(transaction)
        with pytest.raises(TransactionError, match="is over"):
            await transaction.append("t", b"late")
    assert group.values("t") == [b"a", b"b"]


async def test_read_from_a_negative_offset_is_refused_though_it_follows(
    client: AsyncClient,
) -> None:
    await client.append("t", b"a")
    with pytest.raises(OffsetOutOfRange) as caught:
        await anext(client.read("t", 0, -1, follow=True))
    assert (caught.value.begin, caught.value.end) == (0, 1)


async def test_transaction_that_is_over_is_not_aborted_any_more(
    client: AsyncClient, group: Any
) -> None:
    for _ in range(2):  # the second one finds it committed when it opens its stage
        transaction = await client.transaction("w", 1)
        await transaction.append("t", b"a")
        if not group.commands(AbortTransaction) and not group.values("t"):
            await transaction.commit()
        await transaction.abort()
    assert not group.commands(AbortTransaction)
    dropped = await client.transaction("w", 2)
    await dropped.abort()
    await dropped.abort()
    assert len(group.commands(AbortTransaction)) == 1
    assert group.values("t") == [b"a"]


async def test_producer_goes_on_when_somebody_stops_waiting_for_an_answer(
    client: AsyncClient, group: Any
) -> None:
    async with await client.producer("t") as producer:
        first, second = await producer.append(b"a"), await producer.append(b"b")
        first.cancel()
        assert (await second).start == 1
    assert first.cancelled()
    assert group.values("t") == [b"a", b"b"]
