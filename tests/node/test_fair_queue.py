"""The queue in front of the log: equal parts for accounts, and all for one alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.net.connections.handlers import RECEIVE_BYTES
from dledger.net.limits.accounts import Accounts, account_of
from dledger.net.limits.inflow import PRESSED_READ_BYTES
from dledger.node.peers.handshake import Gate
from dledger.node.proposals.commit_window import MOST_BYTES
from dledger.node.proposals.fair_queue import BESIDE_BYTES, QUANTUM_BYTES, FairQueue
from dledger.node.proposals.proposal import PROPOSAL_BYTES, Proposal
from dledger.protocol.messages.client import AppendRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest
from dledger.types import ANONYMOUS, OWNER, Principal
from tests.node.bodies import body
from tests.node.conftest import BareClient
from tests.node.holding import HeldSyncs, between

MIB = 1 << 20
HEAVY, LIGHT = Principal("heavy"), Principal("light")
SIZES = st.lists(st.integers(1, 2 * MIB), min_size=1, max_size=60)


@dataclass(eq=False)
class FakeConnection:
    account: str


def proposal(account: str, size: int, deadline_ms: int = 1000) -> Proposal:
    connection: Any = FakeConnection(account) if account else None
    return Proposal(connection, (1,), (b"",), size, deadline_ms)


def accounts_of(found: list[Proposal]) -> list[str]:
    return ["" if one.connection is None else one.connection.account for one in found]


@pytest.fixture
def shared() -> Accounts:
    """Two principals are connected, one of them fifty times."""
    accounts = Accounts()
    for _ in range(50):
        accounts.enter(HEAVY)
    accounts.enter(LIGHT)
    return accounts


def test_an_account_alone_waits_for_nothing() -> None:
    accounts = Accounts()
    for _ in range(50):
        accounts.enter(HEAVY)
    queue = FairQueue(accounts)
    much = [proposal("heavy", MIB) for _ in range(100)]
    assert queue.in_turn(much, -64 * MIB) is much
    assert not queue


def test_who_comes_is_next_and_waits_for_no_crowd(shared: Accounts) -> None:
    queue = FairQueue(shared)
    first = queue.in_turn([proposal("heavy", 100_000) for _ in range(500)], QUANTUM_BYTES)
    assert QUANTUM_BYTES <= 100_512 * len(first) <= QUANTUM_BYTES + 100_512
    assert queue.requests == 500 - len(first)
    assert queue.in_turn([proposal("light", BESIDE_BYTES)], 0) == []
    assert accounts_of(queue.in_turn([], QUANTUM_BYTES)) == ["light", "heavy"]


def test_a_little_of_one_that_comes_goes_beside_a_full_window(shared: Accounts) -> None:
    queue = FairQueue(shared)
    assert len(queue.in_turn([proposal("heavy", 1000) for _ in range(500)], 1000)) == 1
    assert queue.in_turn([proposal("heavy", 1000)], 0) == [], "it has something waiting"
    found = queue.in_turn([proposal("light", 1000) for _ in range(3)], -QUANTUM_BYTES)
    assert accounts_of(found) == ["light"] * 3
    assert queue.in_turn([proposal("light", 1000)], 0) == [], "once in a round"
    assert accounts_of(queue.in_turn([], 1000)) == ["heavy"]


def test_what_goes_beside_a_full_window_is_bounded_however_many_come(shared: Accounts) -> None:
    queue = FairQueue(shared)
    queue.in_turn([proposal("heavy", MIB) for _ in range(3)], 1)
    size = BESIDE_BYTES // 10 - PROPOSAL_BYTES
    for _ in range(2):
        came = [proposal(f"user {number}", size) for number in range(40)]
        passed = [one for one in came if queue.in_turn([one], 0)]
        assert passed == came[:10]
        assert queue.in_turn([], 1) == [came[-1]], "and room lets others pass again"
        queue.take_all()
        queue.in_turn([proposal("heavy", MIB) for _ in range(3)], 1)


def test_to_come_again_and_again_is_no_way_to_more_than_a_share(shared: Accounts) -> None:
    """One always waits with much; the other has nothing waiting whenever it asks, and asks for what
    goes beside a full window, too."""
    queue, got = FairQueue(shared), Counter[str]()
    found = queue.in_turn([proposal("heavy", 10_000) for _ in range(5000)], QUANTUM_BYTES)
    for _ in range(200):
        for room in (0, 0, QUANTUM_BYTES):
            asked = [proposal("light", 10_000) for _ in range(QUANTUM_BYTES // 10_000)]
            found = queue.in_turn([] if "light" in queue._queues else asked, room)
            for one in found:
                got[accounts_of([one])[0]] += one.size
    assert got["heavy"] >= 0.8 * got["light"]


def test_two_that_want_everything_get_half_each(shared: Accounts) -> None:
    """However many, and however large, the requests of either are."""
    queue = FairQueue(shared)
    given = [proposal("heavy", MIB) for _ in range(100)]
    given += [proposal("light", 10_000) for _ in range(5000)]
    given += [proposal("", 100) for _ in range(3)]
    found, got = queue.in_turn(given, QUANTUM_BYTES), Counter[str]()
    while len(found) < 2000:
        found += queue.in_turn([], QUANTUM_BYTES)
    for account, one in zip(accounts_of(found), found, strict=True):
        got[account] += one.size + PROPOSAL_BYTES
    assert abs(got["heavy"] - got["light"]) <= 2 * MIB
    assert accounts_of(found).count("") == 3, "the node's own commands"


@given(SIZES, SIZES)
def test_nobody_backlogged_falls_behind_by_more_than_a_turn(
    heavy: list[int], light: list[int]
) -> None:
    accounts = Accounts()
    accounts.enter(HEAVY)
    accounts.enter(LIGHT)
    queue, waiting = FairQueue(accounts), Counter({"heavy": len(heavy), "light": len(light)})
    given = [proposal("heavy", size) for size in heavy]
    given += [proposal("light", size) for size in light]
    got, orders = Counter[str](), {"heavy": [], "light": []}  # type: ignore[var-annotated]
    found = queue.in_turn(given, 2 * MIB)
    while found:
        for one in found:
            (account,) = accounts_of([one])
            orders[account].append(one.size)
            got[account] += one.size + PROPOSAL_BYTES
            waiting[account] -= 1
            if min(waiting.values()) > 0:
                assert abs(got["heavy"] - got["light"]) <= 2 * (QUANTUM_BYTES + 2 * MIB)
        found = queue.in_turn([], 2 * MIB)
    assert orders == {"heavy": heavy, "light": light}, "in their order, and all of them"
    assert not queue


def test_the_late_ones_are_taken_out_and_the_rest_goes_on(shared: Accounts) -> None:
    queue = FairQueue(shared)
    queue.in_turn([proposal("light", MIB)], 0)
    queue.in_turn([proposal("heavy", MIB, at) for at in (5, 2000)], 0)
    assert accounts_of(queue.take_late(1500)) == ["heavy", "light"]
    assert accounts_of(queue.take_all()) == ["heavy"]
    assert not queue
    assert queue.take_late(9999) == []


def test_one_account_left_gets_what_waits(shared: Accounts) -> None:
    queue = FairQueue(shared)
    queue.in_turn([proposal("heavy", MIB) for _ in range(9)], 0)
    shared.leave(LIGHT)
    assert not shared.are_many
    assert queue.in_turn([proposal("heavy", 1)], 0) == [], "behind those that wait"
    found: list[Proposal] = []
    while queue:
        found += queue.in_turn([], QUANTUM_BYTES)
    assert [one.size for one in found] == [MIB] * 9 + [1]


def test_shares_leave_room_for_one_that_comes() -> None:
    accounts = Accounts()
    accounts.enter(HEAVY)
    assert accounts.share(100, 90, 1) == 100, "alone"
    accounts.enter(LIGHT)
    assert accounts.share(100, 60, 1) == 50
    assert accounts.share(100, 10, 1) == 90
    assert accounts.share(100, 130, 4) == 12
    accounts.hold("a", 5)
    accounts.hold("a", -5)
    assert accounts.held == {}


def test_nobody_known_is_counted_by_address() -> None:
    assert account_of(ANONYMOUS, "10.0.0.1") == "10.0.0.1"
    assert account_of(OWNER, "10.0.0.1") == OWNER
    assert account_of(Principal("User:a"), "10.0.0.1") == account_of(
        Principal("User:a"), "10.0.0.2"
    )


# --- at a node ------------------------------------------------------------------------------------


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client is the user that its hello gives as the release."""
    monkeypatch.setattr(
        Gate, "principal", lambda gate, hello, users: Principal(f"User:{hello.release}")
    )


async def user_of(node: Any, name: str) -> BareClient:
    user = await BareClient.dial(node.port)
    assert (await user.ask(HelloRequest(release=name))).code is Code.SUCCESS
    return user


@pytest.mark.group(1)
async def test_one_record_overtakes_what_fifty_connections_wait_with(
    group: Any, users: None
) -> None:
    leader = await group.leader()
    bob = await user_of(leader, "bob")
    topic = await bob.create("t")
    large, count = body(topic, bytes(300_000)), 3
    crowd = [await user_of(leader, "alice") for _ in range(50)]
    proposals = leader.parts.proposals
    with HeldSyncs(leader) as disk:
        asked = [
            user.start(AppendRequest(timeout_ms=60_000), large)
            for user in crowd
            for _ in range(count)
        ]
        await group.until(lambda: proposals.unanswered.held_bytes > 2 * MOST_BYTES)
        own = bob.start(AppendRequest(timeout_ms=60_000), body(topic))
        await group.until(lambda: "User:bob" in leader.parts.context.accounts.held)
        assert leader.raft.leader.acks.pending_bytes <= MOST_BYTES + len(large)
        disk.open.set()
        answer = (await own)[0]
    behind = [(await one)[0] for one in asked]
    assert {one.code for one in (answer, *behind)} == {Code.SUCCESS}
    before = sum(one.index < answer.index for one in behind)
    assert before * len(large) <= MOST_BYTES + QUANTUM_BYTES + 2 * len(large)
    assert before < 50 * count // 2
    for user in (bob, *crowd):
        user.close()


@pytest.mark.group(1, max_client_bytes=8 * MIB)
async def test_paused_connections_are_read_on_though_the_first_ask_no_more(
    group: Any, users: None
) -> None:
    """Then no answer tells of room: the last answer was given before they were all read on."""
    leader = await group.leader()
    bob = await user_of(leader, "bob")
    topic = await bob.create("t")
    crowd = [await user_of(leader, "alice") for _ in range(12)]
    router = leader.parts.router
    for connection in router.port_sessions.clients:
        if connection.account == "User:alice":
            router._hold_back(connection)
    asked = [user.start(AppendRequest(timeout_ms=60_000), body(topic)) for user in crowd[8:]]
    assert (await bob.append(body(topic))).code is Code.SUCCESS
    assert {(await one)[0].code for one in asked} == {Code.SUCCESS}
    assert not len(router._paused)
    for user in (bob, *crowd):
        user.close()


@pytest.mark.group(1, max_client_bytes=8 * MIB)
async def test_a_crowd_holds_no_more_than_its_share_of_the_memory(group: Any, users: None) -> None:
    leader = await group.leader()
    bob = await user_of(leader, "bob")
    topic = await bob.create("t")
    large = body(topic, bytes(300_000))
    crowd = [await user_of(leader, "alice") for _ in range(20)]
    crowd.append(await user_of(leader, "alice"))  # asks for nothing yet
    with HeldSyncs(leader) as disk:
        asked = [
            user.start(AppendRequest(timeout_ms=60_000), large)
            for user in crowd[:20]
            for _ in range(4)
        ]
        paused = leader.parts.router._paused
        await group.until(lambda: len(paused.crowds.get("User:alice", ())))
        held = leader.parts.context.accounts.held
        await group.until(lambda: held["User:alice"] > 3 * MIB)
        assert leader.parts.router._listener.inflow.kept_waiting
        # whole frames that one read brings have not asked for room
        clients = leader.parts.router.port_sessions.clients
        idle = {one.account: len(one.get_buffer(-1)) for one in clients if not one._holds}
        assert idle == {"User:alice": PRESSED_READ_BYTES, "User:bob": RECEIVE_BYTES}
        own = bob.start(AppendRequest(timeout_ms=60_000), large)
        await group.until(lambda: "User:bob" in held)
        assert held["User:alice"] <= 8 * MIB
        assert "User:bob" not in paused.crowds
        disk.open.set()
        assert (await own)[0].code is Code.SUCCESS
        assert {(await one)[0].code for one in asked} == {Code.SUCCESS}
    await group.until(lambda: held == {})
    assert not len(paused)
    for user in (bob, *crowd):
        user.close()
    await group.until(lambda: not leader.parts.context.accounts.connected)


async def test_what_waits_in_the_queue_too_long_was_not_done(group: Any, users: None) -> None:
    """It has no place in the log, so the answer is a definite one."""
    leader = await group.leader()
    alice, bob = await user_of(leader, "alice"), await user_of(leader, "bob")
    topic = await bob.create("t")
    heal = between(leader, lambda message, send: None)
    large = body(topic, bytes(900_000))
    asked = [alice.start(AppendRequest(timeout_ms=300), large) for _ in range(8)]
    codes = [(await one)[0].code for one in asked]
    heal()
    assert codes[0] is Code.WAIT_QUORUM_ACK_TIMEOUT
    assert codes[-2:] == [Code.LEADER_PENDING_FULL] * 2
    assert not leader.parts.proposals._fair
    for user in (alice, bob):
        user.close()


@pytest.mark.group(1, ack_timeout_ms=1000)
async def test_the_queue_goes_on_when_what_was_given_up_is_committed(
    group: Any, users: None
) -> None:
    """Its clients have had their answers by then, so no memory gets free with it."""
    leader = await group.leader()
    alice, bob = await user_of(leader, "alice"), await user_of(leader, "bob")
    topic = await bob.create("t")
    large = body(topic, bytes(900_000))
    with HeldSyncs(leader) as disk:
        asked = [alice.start(AppendRequest(timeout_ms=60_000), large) for _ in range(7)]
        await group.until(lambda: leader.parts.proposals._fair)
        assert (await asked[0])[0].code is Code.WAIT_QUORUM_ACK_TIMEOUT
        disk.open.set()
        assert {(await one)[0].code for one in asked[1:]} == {Code.SUCCESS}
    for user in (alice, bob):
        user.close()


async def test_a_leader_that_is_none_any_more_answers_what_waits(group: Any, users: None) -> None:
    leader = await group.leader()
    alice, bob = await user_of(leader, "alice"), await user_of(leader, "bob")
    topic = await bob.create("t")
    large = body(topic, bytes(900_000))
    with HeldSyncs(leader), HeldSyncs(await group.follower()):
        asked = [alice.start(AppendRequest(timeout_ms=60_000), large) for _ in range(9)]
        await group.until(lambda: leader.parts.proposals._fair)
        leader.parts.proposals.fail_all(Code.TERM_CHANGED)
        assert {(await one)[0].code for one in asked[:2]} == {Code.TERM_CHANGED}
    for user in (alice, bob):
        user.close()
