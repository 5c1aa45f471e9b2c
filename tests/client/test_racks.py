"""A client that says in which rack it stands reads from the replicas there, as long as they are
well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from dledger.client.protocol.client_state import ClientState
from dledger.client.protocol.racks import ASIDE_MS, LOOK_MS, Racks
from dledger.client.protocol.reading import watching
from dledger.client.protocol.reading.fetching import Fetcher
from dledger.client.protocol.reading.replicas import Replicas
from dledger.client.protocol.reading.watching import LAG_MS, ReplicaWatch
from dledger.environment import Environment
from dledger.errors import ConfigError, Unavailable
from dledger.protocol.messages.client import (
    FetchRequest,
    OffsetsRequest,
    OffsetsResponse,
    StatusRequest,
    StatusResponse,
    TopicInfo,
)
from dledger.protocol.messages.codes import Code

SILENT = Unavailable("it is silent")
ADDRESSES = {f"n{number}": f"box-{number}:1" for number in range(4)}


class Clock(Environment):
    """On a machine that has no node. Time goes on when a test says so; dice fall in turn."""

    def __init__(self) -> None:
        self.ms = 0
        self.draws = 0

    def now_ms(self) -> int:  # type: ignore[override]
        return self.ms

    def below(self, n: int) -> int:  # type: ignore[override]
        self.draws += 1
        return self.draws % n

    def is_here(self, host: str) -> bool:  # type: ignore[override]
        return host == "here"


@pytest.fixture
def clock() -> Clock:
    return Clock()


def knowing(clock: Clock, racks: dict[str, str], own: str = "east", **settings: Any) -> ClientState:
    """A client that knows the four nodes and where they stand."""
    core = ClientState.make("box-0:1", "", {"rack": own, **settings}, clock)
    core.routes.peers = dict(ADDRESSES)
    core.racks.learned(racks, ADDRESSES, clock.ms)
    return core


def order(replicas: Replicas) -> list[str]:
    """The nodes as a reader would go through them whose questions nobody answers."""
    found = []
    for _ in ADDRESSES:
        found.append(f"n{replicas.address[4]}")
        replicas.failed(SILENT)
    return found


def test_replicas_of_the_same_rack_come_first_in_turn(clock: Clock) -> None:
    racks = {"n1": "east", "n2": "east", "n3": "west"}
    firsts = set()
    for clock.draws in range(4):
        found = order(Replicas(knowing(clock, racks), lambda: ""))
        assert set(found[:2]) == {"n1", "n2"}
        assert set(found[2:]) == {"n0", "n3"}
        firsts.add(found[0])
    assert firsts == {"n1", "n2"}


def test_replica_on_the_readers_machine_comes_before_those_of_its_rack(clock: Clock) -> None:
    core = knowing(clock, {"n1": "east"})
    core.routes.peers["n3"] = "here:1"
    replicas = Replicas(core, lambda: "")
    assert replicas.address == "here:1"
    replicas.failed(SILENT)
    assert replicas.address == "box-1:1"


def test_rack_without_replica_makes_no_difference(clock: Clock) -> None:
    core = knowing(clock, {"n1": "west"}, own="nowhere")
    firsts = {Replicas(core, lambda: "").address for _ in range(8)}
    assert firsts == set(ADDRESSES.values())
    assert not Replicas(core, lambda: "").nearer()


def test_near_replica_that_failed_is_asked_again_later(clock: Clock) -> None:
    core = knowing(clock, {"n1": "east"})
    replicas = Replicas(core, lambda: "")
    for pause in (5000, 10_000, 20_000, 40_000, 60_000, 60_000):
        assert replicas.address == "box-1:1"
        replicas.failed(SILENT)
        away = replicas.address
        assert away != "box-1:1"
        clock.ms += pause - 1
        replicas.worked()
        assert not replicas.nearer()
        assert Replicas(core, lambda: "").address != "box-1:1", "another reader knows it, too"
        clock.ms += 1
        assert replicas.nearer()
        replicas.go_back()
        replicas.worked()
    replicas.worked()
    replicas.failed(SILENT)
    clock.ms += ASIDE_MS[1]
    replicas.go_back()
    clock.ms += 2 * ASIDE_MS[1]
    replicas.worked()
    replicas.failed(SILENT)
    clock.ms += ASIDE_MS[0]
    assert replicas.nearer(), "it had worked for long: its pauses begin anew"


def test_reader_that_named_a_far_replica_goes_back_to_none(clock: Clock) -> None:
    core = knowing(clock, {"n1": "east"})
    replicas = Replicas(core, lambda: ADDRESSES["n2"])
    assert replicas.address == ADDRESSES["n2"]
    assert not replicas.nearer()
    replicas.failed(SILENT)
    replicas.worked()
    clock.ms += ASIDE_MS[1]
    assert not replicas.nearer()


def test_preferred_one_of_the_near_is_left_alone_too(clock: Clock) -> None:
    """A reader that follows prefers the leader, where that is near."""
    core = knowing(clock, {"n1": "east", "n2": "east"})
    replicas = Replicas(core, lambda: ADDRESSES["n2"])
    near = [ADDRESSES["n2"], ADDRESSES["n1"]]
    for address in near:
        assert replicas.address == address
        replicas.failed(SILENT)
    assert Replicas(core, lambda: ADDRESSES["n2"]).address not in near
    clock.ms += ASIDE_MS[0]
    assert Replicas(core, lambda: ADDRESSES["n2"]).address == ADDRESSES["n2"]


def test_reader_goes_to_a_replica_that_came_into_its_rack(clock: Clock) -> None:
    core = knowing(clock, {})
    replicas = Replicas(core, lambda: "box-0:1")
    assert not replicas.nearer()
    core.racks.learned({"n0": "west", "n2": "east"}, ADDRESSES, clock.ms)
    assert replicas.nearer()


def test_time_of_a_near_replica_is_none_of_the_others(clock: Clock) -> None:
    """It was silent for longer than a whole request may take: the read goes on."""
    core = knowing(clock, {"n1": "east"}, request_timeout_ms=1000)
    replicas = Replicas(core, lambda: "")
    clock.ms += 6000
    replicas.failed(SILENT)
    clock.ms += 999
    replicas.failed(SILENT)
    clock.ms += 2
    with pytest.raises(Unavailable):
        replicas.failed(SILENT)
    replicas.go_back()
    while replicas.address != ADDRESSES["n1"]:
        replicas._at += 1
    with pytest.raises(Unavailable):  # each near one is excused once
        replicas.failed(SILENT)


def test_client_asks_for_racks_once_in_a_while() -> None:
    racks = Racks("east")
    assert racks.is_due(0)
    racks.looks(0)
    assert not racks.is_due(1)
    racks.learned({"n1": "east"}, ADDRESSES, 10)
    assert racks.is_same("box-1:1")
    assert not racks.is_due(9 + LOOK_MS)
    assert racks.is_due(10 + LOOK_MS)
    assert not Racks("").is_due(0)


@pytest.mark.parametrize("name", ["", "a b", "r" * 64])
def test_a_name_that_no_rack_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="use 1 to 63 of the characters"):
        ClientState.make("a:1", "", {"rack": name})


TOPIC = TopicInfo(name="t", topic_id=1, log_id="a", partitions=1)


class Following:
    """A reader without an end at n1, in its rack; n0 leads."""

    def __init__(self, clock: Clock) -> None:
        self.core = knowing(clock, {"n1": "east"})
        self.core.routes.leader = ADDRESSES["n0"]
        self.fetcher = Fetcher(1, 0, 5, None, 1, "read", topic=TOPIC)
        self.replicas = Replicas(self.core, lambda: "")
        self.watch = ReplicaWatch(self.core, self.replicas, fetcher=self.fetcher)
        self.clock = clock

    def leader_ends(self, end: int) -> bool:
        """Whether the leader is asked; it answers so."""
        look = self.watch.due()
        if look is None:
            return False
        assert isinstance(next(look).message, OffsetsRequest)
        answer = OffsetsResponse(code=Code.SUCCESS, offsets={"t": {0: end}}, log_ids={"t": "a"})
        with pytest.raises(StopIteration):
            look.send((answer, memoryview(b"")))
        return True

    def replica_ends(self, end: int) -> bool:
        """It answers a question of now; whether the reader leaves it."""
        self.watch.took(end, self.clock.ms)
        return self.watch.moves()


@pytest.fixture
def following(clock: Clock) -> Following:
    one = Following(clock)
    one.replica_ends(5)
    clock.ms += watching.LOOK_MS
    return one


def test_replica_that_lacks_what_the_leader_had_is_left_for_it(following: Following) -> None:
    assert following.leader_ends(7)
    assert not following.replica_ends(5), "the records may be on their way"
    following.clock.ms += LAG_MS
    assert following.replica_ends(6)
    assert following.replicas.address == ADDRESSES["n0"]
    following.fetcher.position = 7
    following.clock.ms += watching.LOOK_MS
    following.replica_ends(7)
    assert not following.leader_ends(7), "it is the leader"
    following.clock.ms += ASIDE_MS[0]
    assert following.watch.moves()
    assert following.replicas.address == ADDRESSES["n1"]


def test_replica_that_has_what_the_leader_had_is_kept(following: Following) -> None:
    for end in (7, 9, 11):
        assert following.leader_ends(end)
        following.clock.ms += LAG_MS
        following.fetcher.position = end
        assert not following.replica_ends(end)
        following.clock.ms += watching.LOOK_MS


def test_leader_is_not_asked_while_the_replica_has_more_records(following: Following) -> None:
    following.replica_ends(6)
    assert not following.leader_ends(7)
    following.fetcher.end = 6
    following.replica_ends(5)
    assert not following.leader_ends(7), "a read up to an end finds out by itself"


def test_topic_made_anew_says_nothing_of_the_one_that_is_read(following: Following) -> None:
    look = following.watch.due()
    assert look is not None
    next(look)
    offsets, log_ids = {"t": {0: 7}}, {"t": "another"}
    answer = OffsetsResponse(code=Code.SUCCESS, offsets=offsets, log_ids=log_ids)
    with pytest.raises(StopIteration):
        look.send((answer, memoryview(b"")))
    following.clock.ms += LAG_MS
    assert not following.replica_ends(5)


def test_answer_to_an_old_question_proves_no_lag(following: Following) -> None:
    """A program may take its time between two answers."""
    assert following.leader_ends(7)
    asked_ms = following.clock.ms
    following.clock.ms += 100 * LAG_MS
    following.watch.took(5, asked_ms)
    assert not following.watch.moves()


# --- with connections ---------------------------------------------------------------------------


def readers_nodes(group: Any) -> list[str]:
    return [node for node, message, _ in group.seen if isinstance(message, FetchRequest)]


def values(batches: Iterable[Any]) -> list[bytes]:
    return [value for batch in batches for value in batch.column("value").to_pylist()]


class LocalClock(Clock):
    """The sockets of the tests are all on this machine."""

    def is_here(self, host: str) -> bool:  # type: ignore[override]
        return True


@pytest.fixture
def in_rack(group: Any, connect_either: Any, clock: Clock) -> Any:
    """A client in the rack of n1, by a clock of its own, and five records."""
    group.racks = {"n0": "west", "n1": "east"}
    client = connect_either(rack="east")
    client.core.environment = local = LocalClock()
    client.append("t", [b"0", b"1", b"2", b"3", b"4"])
    client.clock = local
    return client


ALL = [b"0", b"1", b"2", b"3", b"4"]


def test_all_reads_go_to_the_replica_of_the_rack(group: Any, in_rack: Any) -> None:
    assert values(in_rack.read("t", 0, 0)) == ALL
    assert in_rack.table("t").num_rows == 5
    assert len(list(in_rack.fetch_bodies("t", 0, 0, 5))) == 1
    following = in_rack.read("t", 0, 0, follow=True)
    assert values([next(following)]) == ALL
    following.close()
    assert set(readers_nodes(group)) == {"n1"}
    assert len(group.requests(StatusRequest)) == 1


def test_replica_named_by_the_reader_is_asked_all_the_same(group: Any, in_rack: Any) -> None:
    assert values(in_rack.read("t", 0, 0, replica="n2")) == ALL
    assert readers_nodes(group) == ["n2"]


def test_learner_of_the_rack_is_not_near(group: Any, in_rack: Any) -> None:
    group.learners = {"n1"}
    group.stuck = {"n1": 0}
    following = in_rack.read("t", 0, 0, follow=True)
    assert values([next(following)]) == ALL
    following.close()
    assert readers_nodes(group) == ["n0"], "the leader's"


def test_group_of_a_release_without_racks_is_read_as_before(group: Any, in_rack: Any) -> None:
    group.fault(StatusRequest, StatusResponse(code=Code.SUCCESS, status={}))
    assert values(in_rack.read("t", 0, 0)) == ALL


@pytest.mark.parametrize("state", ["dead", "behind"])
def test_read_goes_on_elsewhere_and_comes_back(group: Any, in_rack: Any, state: str) -> None:
    for n in range(5, 8):
        in_rack.append("t", str(n).encode())
    if state == "dead":
        group.nodes["n1"].kill()
    else:
        group.stuck = {"n1": 3}
    bodies = in_rack.fetch_bodies("t", 0, 0, 8, max_bytes=1)
    assert next(bodies)[0].base_offset == 0
    assert next(bodies)[0].base_offset == 5
    assert readers_nodes(group)[-1] != "n1"
    if state == "behind":
        group.stuck = {}
        in_rack.clock.ms += ASIDE_MS[0]
    assert [batch.base_offset for batch, _ in bodies] == [6, 7]
    assert (readers_nodes(group)[-1] == "n1") is (state == "behind")


def test_reader_leaves_a_replica_that_is_cut_off(
    group: Any, in_rack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers as if there were nothing new, each time when the wait is over."""
    fetch = group._fetch

    def wait(node: Any, message: Any, payload: Any) -> Any:
        answer = fetch(node, message, payload)
        if not answer[0].batches:
            in_rack.clock.ms += 1000
        return answer

    monkeypatch.setattr(group, "_fetch", wait)
    group.stuck = {"n1": 5}
    following = in_rack.read("t", 0, 0, follow=True)
    assert values([next(following)]) == ALL
    in_rack.append("t", b"5")
    assert values([next(following)]) == [b"5"]
    assert readers_nodes(group)[-1] == "n0"
    asked = readers_nodes(group).count("n1")
    assert asked <= 2 + (watching.LOOK_MS + LAG_MS) // 1000 + 2
    following.close()
