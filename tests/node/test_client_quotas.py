"""Budgets of principals: over all their connections, by virtual time, and at nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from dledger import Client
from dledger.errors import ConfigError, Unavailable
from dledger.net.connections.connection import Connection
from dledger.node.access.client_quotas import LEAST_PAUSE_S, MOST_HELD_S, Budget
from dledger.node.access.traffic import MOST_NAMES
from dledger.protocol.messages.catalog_commands import WHOLE_GROUP, AlterQuotas
from dledger.protocol.messages.client import AppendRequest, StatusRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest
from dledger.protocol.messages.throttling import ThrottleNotice
from dledger.testing import InProcessGroup
from dledger.types import OWNER, Principal
from tests.net.net_fakes import FakeLoop
from tests.node.bodies import body
from tests.node.conftest import BareClient

RATE = 1000
ALICE, BOB = "alice", "bob"
ANYBODY = Principal("User:anybody")


@dataclass(eq=False)
class FakeConnection:
    """A connection as a budget sees it, and its session."""

    principal: Principal = ANYBODY
    takes_notices: bool = True
    budget: Budget | None = None
    most_frames: int | None = None
    is_asked: bool = True
    closing: bool = False
    is_read: bool = True
    holds_answers: bool = False
    notices: int = 0
    taken: list[tuple[float, int]] = field(default_factory=list)

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def hold_answers(self) -> None:
        self.holds_answers = True

    def release_answers(self) -> None:
        self.holds_answers = False

    def send_frame(self, frame: Any, count: int) -> None:
        assert count == 0, "it answers nothing"
        self.notices += 1


class Story:
    """A budget of `RATE`, with connections, in virtual time."""

    def __init__(self, connections: int = 1, **quotas: int) -> None:
        self.loop = FakeLoop()
        self.noted: list[tuple[int, float]] = []
        self.budget = Budget(
            quotas or {"bytes_in": RATE},
            resume=lambda connection: connection.resume_reading(),
            note=lambda requests, pause_s: self.noted.append((requests, pause_s)),
            clock=self.loop,  # type: ignore[arg-type]
        )
        self.connections = [FakeConnection() for _ in range(connections)]
        for one in self.connections:
            self.budget.add(one, one)  # type: ignore[arg-type]

    @property
    def read(self) -> list[bool]:
        return [one.is_read for one in self.connections]


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 2 * RATE)), min_size=1, max_size=40))
def test_many_connections_take_no_more_than_one_rate(steps: list[tuple[float, int]]) -> None:
    story, taken = Story(connections=50), []
    for pause_s, amount in steps:
        story.loop.pass_time(pause_s)
        for one in story.connections:
            if one.is_read:
                story.budget.charge(requests=1, bytes_in=amount)
                taken.append((story.loop.now_s, amount))
    for first in range(len(taken)):
        total = 0
        for at, amount in taken[first:]:
            assert total <= RATE * (at - taken[first][0]) + RATE + 1e-3
            total += amount


def test_with_demand_the_whole_rate_is_used() -> None:
    story, total = Story(), 0
    while story.loop.now_s < 100:
        assert story.read == [True]
        story.budget.charge(bytes_in=300)
        total += 300
        if not story.connections[0].is_read:
            story.loop.pass_time(LEAST_PAUSE_S)
            while not story.connections[0].is_read:
                story.loop.pass_time(LEAST_PAUSE_S)
    assert total >= 100 * RATE * 0.98


def test_a_debt_pauses_all_connections_and_holds_their_answers() -> None:
    story = Story(connections=3)
    story.connections[1].is_asked = False
    story.connections[2].takes_notices = False
    story.budget.charge(bytes_in=RATE)
    assert story.read == [True] * 3
    story.budget.charge(bytes_in=10 * RATE)
    assert story.read == [False] * 3
    assert [one.notices for one in story.connections] == [1, 0, 0]
    story.loop.pass_time(MOST_HELD_S - 0.1)
    assert all(one.holds_answers for one in story.connections)
    story.loop.pass_time(0.2)
    assert not any(one.holds_answers for one in story.connections)
    assert story.read == [False] * 3
    newcomer = FakeConnection()
    story.budget.add(newcomer, newcomer)  # type: ignore[arg-type]
    assert not newcomer.is_read, "opening another connection pays no debt"
    story.loop.pass_time(10)
    assert story.read == [True] * 3
    assert newcomer.is_read
    assert story.noted == [(1, pytest.approx(10.0))]


def test_fetches_wait_for_the_end_of_the_pause_and_each_other() -> None:
    story, done = Story(bytes_out=RATE), []
    connection, gone = story.connections[0], FakeConnection(closing=True)

    def fetch(name: str) -> None:
        if not story.budget.holds(connection, partial(fetch, name)):  # type: ignore[arg-type]
            story.budget.charge(bytes_out=2 * RATE)
            done.append((name, story.loop.now_s))

    fetch("a")
    assert not connection.holds_answers, "its answer is in no one's way"
    fetch("b")
    assert story.budget.holds(gone, lambda: done.append(("gone", 0.0)))  # type: ignore[arg-type]
    fetch("c")
    story.loop.pass_time(10)
    assert done == [("a", 0.0), ("b", pytest.approx(1.0)), ("c", pytest.approx(3.0))]
    assert story.read == [True]


def test_other_quotas_end_a_pause_that_they_do_not_want() -> None:
    story = Story()
    story.budget.charge(bytes_in=100 * RATE)
    story.budget.change({"bytes_in": 100 * RATE})
    assert story.read == [False], "a smaller pause"
    story.loop.pass_time(1)
    assert story.read == [True]
    story.budget.charge(bytes_in=1000 * RATE)
    story.budget.change({"requests": 5})
    assert story.read == [True]
    assert story.connections[0].most_frames == 1


def test_a_budget_that_ends_lets_everything_go() -> None:
    story, done = Story(bytes_out=RATE, bytes_in=RATE), []
    story.budget.charge(bytes_in=5 * RATE)
    connection = story.connections[0]
    assert story.budget.holds(connection, lambda: done.append(1))  # type: ignore[arg-type]
    story.budget.close()
    assert story.read == [True]
    assert not connection.holds_answers
    assert connection.budget is connection.most_frames is None
    assert done == [1]


# --- at nodes -------------------------------------------------------------------------------------


class User(BareClient):
    """A client that says in its hello who it is, see `users`; it counts notices."""

    def __init__(self) -> None:
        super().__init__()
        self.notices: list[int] = []

    def _on_frame(
        self, connection: Connection, request_id: int, message: Any, payload: memoryview
    ) -> None:
        if isinstance(message, ThrottleNotice):
            self.notices.append(message.throttle_ms)
        else:
            super()._on_frame(connection, request_id, message, payload)


async def log_in(node: Any, name: str, *, takes_notices: bool = True) -> tuple[User, Any]:
    """A connection, and the answer to its hello."""
    user = await User.dial(node.port)
    assert isinstance(user, User)
    return user, await user.ask(HelloRequest(release=name, takes_notices=takes_notices))


async def user_of(node: Any, name: str, **more: Any) -> User:
    user, hello = await log_in(node, name, **more)
    assert hello.code is Code.SUCCESS, hello
    return user


@pytest.fixture(autouse=True)
def users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Principals without certificates."""
    from dledger.node.peers.handshake import Gate

    known = Gate.principal

    def principal(gate: Gate, hello: HelloRequest, users: Any) -> Principal:
        if hello.release in {ALICE, BOB}:
            return Principal(f"User:{hello.release}")
        return OWNER if hello.release == "owner" else known(gate, hello, users)

    monkeypatch.setattr(Gate, "principal", principal)


async def alter(user: BareClient, entity: str, **quotas: int) -> None:
    answer = await user.execute(AlterQuotas(entity=entity, quotas=quotas))
    assert answer.code is Code.SUCCESS, answer


def ends_of(node: Any, topic_id: int) -> int:
    end: int = node.catalog.end_offset(topic_id, 0)
    return end


@pytest.mark.group(1)
async def test_what_is_over_the_quota_is_committed_and_its_answer_waits(group: Any) -> None:
    leader = await group.leader()
    alice, bob = await user_of(leader, ALICE), await user_of(leader, BOB)
    second = await user_of(leader, ALICE)
    topic = await bob.create("t")
    await alter(bob, "User:alice", bytes_in=1)
    appended = alice.start(AppendRequest(timeout_ms=10_000), body(topic))
    await group.until(lambda: ends_of(leader, topic) == 1)
    asked = second.start(StatusRequest())
    for connection in leader.parts.router.port_sessions.clients:
        leader.parts.router._resume(connection)  # another reason to wait is over
        assert connection.is_kept_waiting is (connection.context.principal == "User:alice")
    assert (await bob.append(body(topic))).code is Code.SUCCESS, "another principal's"
    assert ends_of(leader, topic) == 2
    assert not appended.done()
    assert not asked.done(), "another connection of the same principal"
    assert alice.notices
    assert not second.notices, "it did not wait for anything then"
    await alter(bob, "User:alice")
    assert (await appended)[0].code is Code.SUCCESS
    status = (await asked)[0].status
    assert status["throttled"]["User:alice"]["requests"] == 1
    assert status["throttled"]["User:alice"]["ms"] > 0


@pytest.mark.group(1)
async def test_a_program_of_another_release_hears_no_notice(group: Any) -> None:
    leader = await group.leader()
    alice, bob = await user_of(leader, ALICE, takes_notices=False), await user_of(leader, BOB)
    topic = await bob.create("t")
    await alter(bob, "User:alice", bytes_in=1)
    appended = alice.start(AppendRequest(timeout_ms=10_000), body(topic))
    await group.until(lambda: ends_of(leader, topic) == 1)
    await alter(bob, "User:alice")
    assert (await appended)[0].code is Code.SUCCESS
    assert alice.notices == []


@pytest.mark.group(1)
async def test_requests_that_come_at_once_are_taken_one_by_one(group: Any) -> None:
    """Else one read would have hundreds of them."""
    leader = await group.leader()
    alice, bob = await user_of(leader, ALICE), await user_of(leader, BOB)
    topic = await bob.create("t")
    await alter(bob, "User:alice", requests=3)
    for _ in range(500):
        alice.start(AppendRequest(timeout_ms=10_000), body(topic))
    await group.until(lambda: alice.notices)
    await bob.append(body(topic))
    assert ends_of(leader, topic) - 1 <= 3 + 1 + 3


async def test_a_follower_keeps_the_quota_of_fetches(group: Any) -> None:
    leader, follower = await group.leader(), await group.follower()
    bob = await user_of(leader, BOB)
    topic = await bob.create("t")
    await bob.write(topic, [b"x" * 5000] * 2)
    await alter(bob, "User:alice", bytes_out=1)
    await group.agree()
    alice, reader = await user_of(follower, ALICE), await user_of(follower, BOB)
    first, _ = await alice.fetch(topic, 0, max_bytes=1)
    assert len(first.batches) == 1
    second = asyncio.ensure_future(alice.fetch(topic, 1))
    other, _ = await reader.fetch(topic, 0)
    assert len(other.batches) == 2
    assert not second.done()
    await alter(bob, "User:alice")
    assert len((await second)[0].batches) == 1


@pytest.mark.group(1)
async def test_a_parked_fetch_that_is_due_in_a_pause_waits_for_its_end(group: Any) -> None:
    leader = await group.leader()
    alice, bob = await user_of(leader, ALICE), await user_of(leader, BOB)
    topic = await bob.create("t")
    await bob.write(topic, [b"x" * 5000])
    await alter(bob, "User:alice", bytes_out=1)
    parked = asyncio.ensure_future(alice.fetch(topic, 1, wait_ms=60_000))
    await group.until(lambda: len(leader.parts.router._parts.reads.polls))
    assert len((await alice.fetch(topic, 0))[0].batches) == 1
    await bob.write(topic)
    await bob.fetch(topic, 1)
    assert not parked.done()
    await alter(bob, "User:alice")
    assert len((await parked)[0].batches) == 1


@pytest.mark.group(1)
async def test_connections_over_the_number_are_refused_by_name(group: Any) -> None:
    leader = await group.leader()
    owner = await user_of(leader, "owner")
    await alter(owner, "User:*", connections=2)
    first = await user_of(leader, ALICE)
    await user_of(leader, ALICE)
    _, refused = await log_in(leader, ALICE)
    assert refused.code is Code.LEADER_PENDING_FULL
    assert refused.message.startswith("User:alice may have 2 connections to n0")
    await user_of(leader, BOB)
    first.close()
    await group.until(lambda: leader.parts.router.clients == 3)
    await user_of(leader, ALICE)
    for _ in range(3):
        await user_of(leader, "owner")


@pytest.mark.group(1)
async def test_quotas_and_debts_outlive_connections_and_restarts(group: Any) -> None:
    leader = await group.leader()
    alice, bob = await user_of(leader, ALICE), await user_of(leader, BOB)
    topic = await bob.create("t")
    await alter(bob, "User:alice", bytes_in=1)
    alice.start(AppendRequest(timeout_ms=10_000), body(topic))
    await group.until(lambda: ends_of(leader, topic) == 1)
    alice.close()
    again = await user_of(leader, ALICE)
    asked = again.start(StatusRequest())
    await bob.append(body(topic))
    assert not asked.done()
    with suppress(ConnectionError):
        await group.restart("n0")
    leader = await group.leader()
    assert leader.catalog.quotas.by_entity == {"User:alice": {"bytes_in": 1}}
    alice = await user_of(leader, ALICE)
    alice.start(AppendRequest(timeout_ms=10_000), body(topic))
    await group.until(lambda: alice.notices)


@pytest.mark.group(1)
async def test_limits_of_the_group_override_its_settings(group: Any) -> None:
    bob = await user_of(await group.leader(), BOB)
    await alter(bob, WHOLE_GROUP, topics=1, partitions=5)
    await bob.create("a")
    from dledger.protocol.messages.catalog_commands import AddPartitions, CreateTopic

    refused = await bob.execute(CreateTopic(name="b", log_id="b"))
    assert refused.code is Code.LIMIT_REACHED
    assert "may have 1 in all" in refused.message
    assert "--group-limit topics=" in refused.message
    refused = await bob.execute(AddPartitions(name="a", partitions=6))
    assert refused.code is Code.LIMIT_REACHED
    await alter(bob, WHOLE_GROUP)
    await bob.create("b")


@pytest.mark.group(1)
async def test_throttling_is_counted_for_so_many_names_and_the_rest(group: Any) -> None:
    leader = await group.leader()
    quotas = leader.parts.router.port_sessions._quotas
    for number in range(MOST_NAMES + 5):
        quotas._note(Principal(f"User:u{number}"), 1, 0.001)
    assert len(quotas.throttled) == MOST_NAMES + 1
    assert quotas.throttled["other"] == {"requests": 5, "ms": 5}


# --- clients --------------------------------------------------------------------------------------


@pytest.mark.parametrize("quota", ["bytes_in", "bytes_out", "requests"])
def test_clients_wait_count_it_and_lose_nothing(quota: str) -> None:
    with InProcessGroup(1) as group, Client(group.bootstrap_servers) as client:
        client.create_topic("t")
        rate = {"bytes_in": 40_000, "bytes_out": 250_000, "requests": 10}[quota]
        client.set_quotas("User:ANONYMOUS", {quota: rate})
        assert client.throttled_ms == 0
        for number in range(12):
            client.append("t", f"{number}" * 5000)
        for _ in range(6):
            assert client.table("t").num_rows == 12
        assert client.throttled_ms > 0
        client.remove_quotas("User:ANONYMOUS")
        with client.producer("t") as producer:
            client.set_quotas("User:*", {quota: rate})
            for number in range(20):
                producer.append([f"{number}" * 3000])
        assert client.end_offsets("t") == {0: 32}
        assert client.quotas() == {"User:*": {quota: rate}}


def test_user_of_certificate_is_throttled_and_others_are_not(
    issue: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    authority = trustme.CA()
    alice, bob = (
        issue("127.0.0.1", f"dledger://client/{name}", authority=authority, nodes=())
        for name in (ALICE, BOB)
    )
    with (
        InProcessGroup(1, **issue(authority=authority)) as group,
        Client(group.bootstrap_servers, **bob) as client,
    ):
        client.create_topic("t")
        client.set_quotas("User:alice", {"requests": 8, "connections": 1})
        with (
            Client(group.bootstrap_servers, request_timeout_ms=1000, **alice) as throttled,
            Client(group.bootstrap_servers, request_timeout_ms=1000, **alice) as second,
        ):
            for _ in range(12):
                throttled.append("t", "one")
            assert throttled.throttled_ms > 0
            with pytest.raises(Unavailable, match="User:alice may have 1 connections"):
                second.append("t", "one")
        for _ in range(12):
            client.append("t", "one")
        assert client.throttled_ms == 0
        with pytest.raises(ConfigError, match=r"did you mean 'User:alice'"):
            client.set_quotas("alice", {"requests": 8})
