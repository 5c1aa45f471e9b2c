"""Both clients against a group whose answers get lost, point elsewhere, or never come."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from dledger.client import Appended, Client, Span
from dledger.client.protocol.results import Lineage
from dledger.errors import (
    ConfigError,
    CorruptEntry,
    OffsetOutOfRange,
    OutcomeUnknown,
    ProducerFenced,
    ProtocolError,
    RecordTooLarge,
    TopicExists,
    TopicNotFound,
    Unavailable,
    UnknownOption,
    WrongGroup,
)
from dledger.protocol.messages.catalog_commands import DeleteTopic, InitProducer
from dledger.protocol.messages.client import (
    AppendRequest,
    ExecuteRequest,
    FetchRequest,
    MetadataRequest,
    OffsetsRequest,
    StatusResponse,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.splits import SplitRequest, pack_cuts
from dledger.records.body.build import make_records
from dledger.records.body.header import Codec, decode_header
from dledger.records.columns.partitioner import murmur2_of, partition_for


def sequences(group: Any) -> list[int]:
    """Of all appends that arrived, in order."""
    return [
        decode_header(head).sequence
        for _, message, head in group.seen
        if isinstance(message, AppendRequest)
    ]


def values(batches: Iterable[pa.RecordBatch]) -> list[bytes]:
    return [value for batch in batches for value in batch["value"].to_pylist()]


def test_append_then_read_gives_the_same_records(either: Any) -> None:
    assert either.append("t", b"one") == Appended("t", 0, 0, 1)
    assert either.append(
        "t", [b"two", b"three"], keys=[b"k", None], headers=[("h", b"v")]
    ) == Appended("t", 0, 1, 3)
    assert either.append("t", pa.array(["four"]), timestamps=1_000_000).end == 4
    assert either.append_batch("t", 0, make_records(b"five")) == Appended("t", 0, 4, 5)
    table = pa.Table.from_batches(either.read("t", 0, 1, 4))
    assert table["offset"].to_pylist() == [1, 2, 3]
    assert table["value"].to_pylist() == [b"two", b"three", b"four"]
    assert table["key"].to_pylist() == [b"k", None, None]
    assert table["headers"].to_pylist()[0] == [{"key": "h", "value": b"v"}]


def test_append_to_a_follower_first_finds_the_leader(group: Any, either: Any) -> None:
    group.leader = "n2"
    assert either.append("t", b"x").start == 0
    assert group.values("t") == [b"x"]


@pytest.mark.parametrize(
    "fault", ["lose", "drop", ("done", Code.WAIT_QUORUM_ACK_TIMEOUT), Code.TERM_CHANGED]
)
def test_append_with_lost_answer_is_repeated_and_stored_once(
    group: Any, either: Any, fault: Any
) -> None:
    """The repeat has the same sequence number."""
    either.append("t", b"a")
    group.fault(AppendRequest, fault)
    assert either.append("t", b"b") == Appended("t", 0, 1, 2)
    assert either.append("t", b"c") == Appended("t", 0, 2, 3)
    assert sequences(group) == [0, 1, 1, 2]
    assert group.values("t") == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    "code", [Code.LEADER_PENDING_FULL, Code.LEADER_NOT_READY, Code.NOT_LEADER, Code.DISK_FULL]
)
def test_append_refused_for_a_moment_is_asked_again(group: Any, either: Any, code: Code) -> None:
    group.fault(AppendRequest, code, code)
    assert either.append("t", b"a").start == 0
    assert sequences(group) == [0, 0, 0]


def test_append_when_the_leader_dies_goes_on_at_the_next_one(group: Any, either: Any) -> None:
    either.append("t", b"a")
    group.nodes["n0"].kill()
    group.leader = "n1"
    assert either.append("t", b"b").start == 1


def test_unanswered_append_is_outcome_unknown_and_next_append_works(
    group: Any, connect_either: Any
) -> None:
    client = connect_either(request_timeout_ms=300)
    client.append("t", b"a")
    group.fault(AppendRequest, "lose", *["drop"] * 2000)
    with pytest.raises(OutcomeUnknown) as caught:
        client.append("t", b"b")
    assert not caught.value.definite
    group.faults.clear()
    assert client.append("t", b"c") == Appended("t", 0, 2, 3)
    assert group.values("t") == [b"a", b"b", b"c"]


def test_append_never_sent_is_unavailable_and_definite(group: Any, connect_either: Any) -> None:
    """One attempt alone: on a busy machine a later one could be under way when the time is over."""
    client = connect_either(request_timeout_ms=1000, retry_min_ms=10_000, retry_max_ms=10_000)
    group.fault(AppendRequest, Code.LEADER_NOT_READY)
    with pytest.raises(Unavailable) as caught:
        client.append("t", b"b")
    assert caught.value.definite
    assert client.append("t", b"c").start == 0


def test_append_after_an_unclear_attempt_a_refusal_stays_indefinite(
    group: Any, either: Any
) -> None:
    """The first attempt may have been stored, so being fenced at the second one does not mean "not
    written"."""
    group.fault(AppendRequest, "lose", Code.PRODUCER_FENCED)
    with pytest.raises(OutcomeUnknown):
        either.append("t", b"a")
    assert either.append("t", b"b").start == 1


def test_append_fenced_at_once_is_definite(group: Any, either: Any) -> None:
    group.fault(AppendRequest, Code.PRODUCER_FENCED)
    with pytest.raises(ProducerFenced):
        either.append("t", b"a")
    assert either.append("t", b"b").start == 0


def test_append_to_a_missing_topic_does_not_use_up_a_sequence(group: Any, either: Any) -> None:
    either.append("t", b"a")
    with pytest.raises(TopicNotFound):
        either.append("missing", b"x")
    group.fault(AppendRequest, Code.UNKNOWN_TOPIC)
    with pytest.raises(TopicNotFound):
        either.append("t", b"x")
    group.fault(AppendRequest, Code.RECORD_TOO_LARGE)
    with pytest.raises(RecordTooLarge):
        either.append("t", b"x")
    assert either.append("t", b"b") == Appended("t", 0, 1, 2)
    assert sequences(group) == [0, 1, 1, 1]


def test_append_to_a_partition_that_another_client_has_added_is_stored(
    group: Any, either: Any, fast: Any
) -> None:
    either.append("t", b"a")
    with pytest.raises(ConfigError, match="partitions 0 to 0, not 2"):
        either.append("t", b"b", partition=2)
    with Client(group.bootstrap, **fast) as other:
        assert other.add_partitions("t", 3).partitions == 3
        with pytest.raises(ConfigError, match="has 3 partitions and can have more"):
            other.add_partitions("t", 2)
    assert either.append("t", b"b", partition=2) == Appended("t", 2, 0, 1)
    with either.transaction("w", 0) as transaction:
        transaction.append("t", [b"c"], partition=1)
    assert either.end_offsets("t") == {0: 1, 1: 1, 2: 1}


def test_append_to_a_topic_created_anew_goes_to_the_new_one(
    group: Any, either: Any, fast: Any
) -> None:
    either.append("t", b"old")
    with Client(group.bootstrap, **fast) as other:
        other.delete_topic("t")
        other.create_topic("t")
    assert either.append("t", b"new") == Appended("t", 0, 0, 1)


@pytest.mark.parametrize("code", [Code.UNKNOWN_PRODUCER, Code.OUT_OF_ORDER_SEQUENCE])
def test_append_whose_session_was_forgotten_opens_a_new_one(
    group: Any, either: Any, code: Code
) -> None:
    either.append("t", b"a")
    group.fault(AppendRequest, code)
    assert either.append("t", b"b").start == 1
    assert len(group.commands(InitProducer)) == 2
    assert sequences(group) == [0, 1, 0]


def test_append_without_idempotence_is_not_repeated(group: Any, connect_either: Any) -> None:
    client = connect_either(idempotent=False)
    group.fault(AppendRequest, "lose")
    with pytest.raises(OutcomeUnknown):
        client.append("t", b"a")
    assert len(group.requests(AppendRequest)) == 1


def test_append_too_large_is_refused_before_it_is_sent(group: Any, either: Any) -> None:
    with pytest.raises(RecordTooLarge, match="max_body_bytes"):
        either.append("t", b"x" * (1 << 20))
    assert not group.requests(AppendRequest)


def test_delete_topic_whose_answer_is_lost_is_not_repeated(group: Any, either: Any) -> None:
    """It might delete a topic of the same name that somebody creates meanwhile."""
    group.fault(ExecuteRequest, "lose")
    with pytest.raises(OutcomeUnknown):
        either.delete_topic("t")
    assert len(group.commands(DeleteTopic)) == 1


def test_create_topic_whose_answer_is_lost_is_repeated_and_succeeds(
    group: Any, either: Any
) -> None:
    group.fault(ExecuteRequest, "lose")
    assert either.create_topic("u", 3).partitions == 3
    with pytest.raises(TopicExists):
        either.create_topic("u", 3)
    assert either.create_topic("u", 3, if_absent=True).name == "u"


def test_topics_and_offsets_and_groups(either: Any) -> None:
    either.create_topic("u", 2)
    assert [info.name for info in either.topics()] == ["t", "u"]
    either.append("u", b"x", partition=1)
    assert either.end_offsets("u") == {0: 0, 1: 1}
    assert either.begin_offsets("u", stale=True) == {0: 0, 1: 0}
    assert either.offsets_for_times("u", 0) == {0: -1, 1: 0}
    assert either.offsets(["t", "u"]).offsets == {"t": {0: 0}, "u": {0: 0, 1: 1}}
    either.commit_offsets("g1", {"u": {1: 1}})
    assert either.group("g1").offsets == {"u": {1: 1}}
    assert either.groups() == ["g1"]
    assert either.status() == {n: {"node_id": n} for n in ("n0", "n1", "n2")}
    either.transfer("n2")
    assert either.append("u", b"y", partition=1).start == 1


def test_status_names_the_node_that_does_not_answer(group: Any, either: Any) -> None:
    group.nodes["n2"].kill()
    status = either.status()
    assert "error" in status["n2"]
    assert status["n1"] == {"node_id": "n1"}


def test_status_needs_no_leader_and_one_node_tells_of_itself(group: Any, either: Any) -> None:
    for name in ("n0", "n2"):
        group.nodes[name].kill()
    group.leader = ""
    status = either.status()
    assert status["n1"] == {"node_id": "n1"}
    assert "error" in status["n0"]
    address = group.nodes["n1"].address
    own, members = either.node_status(address)
    assert (own, members["n1"]) == ({"node_id": "n1"}, address)


def test_topic_that_is_missing_is_told_by_a_linearizable_answer(group: Any, either: Any) -> None:
    with pytest.raises(TopicNotFound, match="missing"):
        either.topic("missing")
    assert group.requests(OffsetsRequest)


@pytest.mark.parametrize(
    ("start", "end", "follow"),
    [(3, 4, False), (0, 4, False), (-1, 1, False), (4, None, False), (-1, None, True)],
)
def test_read_out_of_range_says_which_range_there_is(
    either: Any, start: int, end: int | None, follow: bool
) -> None:
    either.append("t", [b"a", b"b", b"c"])
    with pytest.raises(OffsetOutOfRange) as caught:
        list(either.read("t", 0, start, end, follow=follow))
    assert (caught.value.begin, caught.value.end) == (0, 3)


def test_read_of_range_that_was_seen_takes_one_request(group: Any, either: Any) -> None:
    either.append("t", [b"a", b"b", b"c"])
    list(either.read("t", 0, 0, replica="n0"))
    before = len(group.seen)
    assert values(either.read("t", 0, 1, 3, replica="n0")) == [b"b", b"c"]
    assert [type(message) for _, message, _ in group.seen[before:]] == [FetchRequest]
    with pytest.raises(OffsetOutOfRange):
        list(either.read("t", 0, 1, 4))


def test_read_of_range_that_was_seen_in_topic_made_anew_reads_new_one(
    group: Any, either: Any
) -> None:
    either.append("t", [b"a", b"b"])
    list(either.read("t", 0, 0, replica="n0"))
    with Client(group.bootstrap) as other:
        other.delete_topic("t")
        with pytest.raises(TopicNotFound):
            list(either.read("t", 0, 0, 2, replica="n0"))
        other.create_topic("t")
        other.append("t", [b"c", b"d"])
    assert values(either.read("t", 0, 0, 2, replica="n0")) == [b"c", b"d"]


def test_read_goes_on_in_no_other_topic_than_it_began_in(group: Any, either: Any) -> None:
    for value in (b"a", b"b", b"c"):
        either.append("t", value)
    list(either.read("t", 0, 0, replica="n0"))
    batches = either.read("t", 0, 0, 3, max_bytes=1, replica="n0")
    assert next(batches).column("value").to_pylist() == [b"a"]
    with Client(group.bootstrap) as other:
        other.delete_topic("t")
        other.create_topic("t")
        other.append("t", [b"d", b"e", b"f"])
    found: list[bytes] = []
    with pytest.raises(TopicNotFound):
        found.extend(value for batch in batches for value in batch["value"].to_pylist())
    assert found in ([], [b"b"]), "the next answer may have been asked for before"


def test_read_falls_over_to_another_replica(group: Any, either: Any) -> None:
    for n in range(20):
        either.append("t", str(n).encode())
    group.behind = {"n1"}
    group.fault(FetchRequest, Code.CORRUPT_ENTRY, "drop", Code.BEHIND)
    batches = either.read("t", 0, 0, 20, max_bytes=300, replica="n1")
    assert values(batches) == [str(n).encode() for n in range(20)]


def test_read_with_wrong_bytes_everywhere_never_yields_them(
    group: Any, connect_either: Any
) -> None:
    client = connect_either(request_timeout_ms=200)
    client.append("t", b"a" * 100)
    (index,) = group.bodies
    group.bodies[index] = group.bodies[index].replace(b"aaa", b"aba", 1)
    with pytest.raises(CorruptEntry):
        list(client.read("t", 0, 0, 1))


def test_read_that_is_answered_with_something_else_asks_the_next_replica(
    group: Any, either: Any
) -> None:
    """Such a node is not asked again over that connection: what comes next on it is not known."""
    either.append("t", [b"a", b"b"])
    group.fault(FetchRequest, StatusResponse(code=Code.SUCCESS))
    assert values(either.read("t", 0, 0, 2)) == [b"a", b"b"]
    assert len({node for node, message, _ in group.seen if isinstance(message, FetchRequest)}) == 2


def test_read_asks_for_the_next_piece_before_the_first_one_is_used(either: Any) -> None:
    for n in range(3):
        either.append("t", bytes([n]) * 1000)
    bodies = either.fetch_bodies("t", 0, 0, 3, max_bytes=1)
    first = next(bodies)
    assert first[0].base_offset == 0
    second = next(bodies)
    assert second[0].base_offset == 1
    bodies.close()
    assert either.end_offsets("t") == {0: 3}


def test_read_that_follows_sees_what_is_appended_later(either: Any) -> None:
    either.append("t", b"a")
    batches = either.read("t", 0, 0, follow=True)
    assert next(batches).column("value").to_pylist() == [b"a"]
    either.append("t", b"b")
    assert next(batches).column("value").to_pylist() == [b"b"]
    batches.close()


def test_split_cuts_at_batches(either: Any) -> None:
    for _ in range(4):
        either.append("t", b"x" * 1000)
    pieces = either.split("t", 0, 0, 4, 2000)
    assert pieces[0].start == 0
    assert pieces[-1].end == 4
    assert [p.start for p in pieces[1:]] == [p.end for p in pieces[:-1]]


def test_many_ranges_are_split_in_one_request_and_full_answers_in_more(
    either: Any, group: Any
) -> None:
    """Only the rest of a full answer is asked for again."""
    either.create_topic("u", 3)
    for _ in range(4):
        either.append("t", b"x" * 1000)
        either.append("u", b"x" * 1000, partition=2)
    either.core.topics.clear()
    asked = len(group.requests(MetadataRequest))
    spans = [
        Span("t", 0, 0, 4, 1),
        Span("u", 2, 1, 4, 1 << 40),
        Span("u", 0, 0, 0, 1),
        Span("u", 2, 0, 4, 1, 2),
    ]
    pieces = either.split_many(spans)
    assert [[(p.start, p.end) for p in found] for found in pieces] == [
        [(0, 1), (1, 2), (2, 3), (3, 4)],
        [(1, 4)],
        [],
        [(0, 1), (1, 2)],
    ]
    assert len(group.requests(SplitRequest)) == 1
    assert len(group.requests(MetadataRequest)) == asked + 1, (
        "one question for the ids of both topics"
    )
    group.most_cuts = 1
    assert either.split_many(spans) == pieces
    assert len(group.requests(SplitRequest)) == 1 + 4


def test_stored_bytes_of_many_ranges_are_those_of_their_pieces(
    either: Any, group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One question for many, more for very many; an empty range has none."""
    either.create_topic("u", 3)
    for size in (10, 200, 3000):
        either.append("t", b"x" * size)
        either.append("u", b"x" * size, partition=2)
    columns = ["t", "u", "u", "u", "t"], [0, 2, 2, 0, 0], [0, 1, 2, 0, 1], [3, 3, 3, 0, 2]
    spans = [Span(*one, 1 << 40) for one in zip(*columns, strict=True)]
    expected = [sum(piece.bytes for piece in found) for found in either.split_many(spans)]
    assert 0 < expected[4] < expected[2] < expected[1] < expected[0]
    assert expected[3] == 0
    asked = len(group.requests(SplitRequest))
    assert either.stored_bytes(*columns) == expected
    assert len(group.requests(SplitRequest)) == asked + 1
    monkeypatch.setattr("dledger.client.protocol.operations.splitting.SPANS", 2)
    assert either.stored_bytes(*columns) == expected
    assert len(group.requests(SplitRequest)) == asked + 1 + 3
    monkeypatch.setattr("tests.client.conftest.pack_cuts", lambda cuts: pack_cuts(cuts[1:]))
    with pytest.raises(ProtocolError, match="1 sizes of 2 ranges"):
        either.stored_bytes(*columns)


def test_keys_choose_the_partition_as_kafka_does(either: Any) -> None:
    """Expected values are those of Kafka's own test of murmur2 (UtilsTest)."""
    expected = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"abc": 479470107,
    }
    for key, number in expected.items():
        assert murmur2_of(key) == number & 0xFFFFFFFF
    either.create_topic("u", 5)
    at = either.append("u", [b"1", b"2"], keys=[b"abc", b"abc"]).partition
    assert at == 479470107 % 5
    keys = [str(n).encode() for n in range(50)]
    parts = either.append("u", [b"1"] * 50, keys=keys).parts
    assert sum(part.end - part.start for part in parts) == 50
    table = either.table("u", columns=["key", "partition"])
    found = dict(zip(*table.to_pydict().values(), strict=True))
    assert {key: found[key] for key in keys} == {key: partition_for(key, 5) for key in keys}
    turns = {either.append("u", b"x").partition for _ in range(5)}
    assert turns == {0, 1, 2, 3, 4}


def test_pickled_client_works_and_carries_only_settings(client: Client) -> None:
    client.append("t", b"a")
    copy = pickle.loads(pickle.dumps(client))
    assert copy.append("t", b"b").start == 1
    copy.close()


def test_client_of_another_group_is_refused(group: Any, fast: Any) -> None:
    with Client(group.bootstrap, group="other", **fast) as client, pytest.raises(WrongGroup):
        client.topics()


def test_client_is_told_at_once_that_group_at_its_addresses_is_new(group: Any, either: Any) -> None:
    either.append("t", b"a")
    group.is_now("B")
    with pytest.raises(WrongGroup, match=r"group B.*group A.*founded apart") as caught:
        either.append("t", b"b")
    assert caught.value.definite
    assert group.values("t") == [b"a"]
    with Client(group.bootstrap) as another:
        another.append("t", b"b")


def test_client_goes_on_without_an_address_that_another_group_has_now(
    group: Any, either: Any
) -> None:
    either.append("t", b"a")
    group.ids = {"n1": ("B", ())}
    group.drop_connections()
    group.leader = "n2"
    for value in (b"b", b"c", b"d"):
        either.append("t", value)
    assert group.values("t") == [b"a", b"b", b"c", b"d"]


def test_client_goes_on_with_no_copy_of_its_group(group: Any, either: Any) -> None:
    """Offsets that it knows need not hold there."""
    either.append("t", b"a")
    group.is_now("B", ("A", 7))
    with pytest.raises(WrongGroup, match=r"made from a backup of the group A, .* as of entry 7"):
        either.append("t", b"b")
    assert group.values("t") == [b"a"]


def test_client_says_which_group_it_has_met(group: Any, either: Any) -> None:
    assert either.lineage() == Lineage("A")
    asked = len(group.requests(MetadataRequest))
    assert either.lineage() == Lineage("A")
    assert len(group.requests(MetadataRequest)) == asked
    group.is_now("B", ("A", 7))
    with Client(group.bootstrap) as another:
        assert another.lineage() == Lineage("B", (("A", 7),))


def test_client_of_one_group_id_takes_that_group_alone(group: Any) -> None:
    with Client(group.bootstrap, group_id="Z") as client:
        with pytest.raises(WrongGroup, match=r"group A.*group Z"):
            client.topics()
        with pytest.raises(WrongGroup, match=r"group A.*group Z"):
            pickle.loads(pickle.dumps(client)).topics()
    group.is_now("A", ("Z", 7))
    with (
        Client(group.bootstrap, group_id="Z") as client,
        pytest.raises(WrongGroup, match="made from a backup of the group Z"),
    ):
        client.lineage()


def test_client_settings_are_checked() -> None:
    with pytest.raises(UnknownOption, match="linger_ms"):
        Client("localhost:1", linger=3)
    for address in ("localhost", ""):
        with pytest.raises(ConfigError, match="host:port"):
            Client(address)


def test_client_that_reaches_nobody_says_whom_it_asked(fast: Any) -> None:
    with (
        Client("127.0.0.1:1", **{**fast, "request_timeout_ms": 50}) as client,
        pytest.raises(Unavailable) as caught,
    ):
        client.topics()
    assert "127.0.0.1:1" in str(caught.value)


def test_closed_idle_connection_is_not_used_for_an_unrepeatable_call(
    group: Any, either: Any
) -> None:
    group.drop_connections()
    for thread in [t for node in group.nodes.values() for t in node.threads[1:]]:
        thread.join(5)
    either.delete_topic("t")
    assert not either.topics()
    assert group.requests(MetadataRequest)


@pytest.mark.parametrize("leads", [True, False])
def test_a_new_client_asks_for_its_topic_at_once_and_goes_on_to_the_leader(
    group: Any, fast: dict[str, Any], either: Any, leads: bool
) -> None:
    """Who leads is in the answer to the question itself."""
    group.seen.clear()
    node_id = group.leader if leads else next(name for name in group.nodes if name != group.leader)
    with Client(group.nodes[node_id].address, **fast) as fresh:
        assert fresh.topic("t").name == "t"
    asked = [
        (node, message.topics)
        for node, message, _ in group.seen
        if isinstance(message, MetadataRequest)
    ]
    assert asked == [(node_id, ("t",)), *([] if leads else [(group.leader, ("t",))])]


@pytest.mark.parametrize("given", [b"x" * 10_000, [b"x" * 10_000]], ids=["value", "list"])
def test_append_is_compressed_as_the_client_is_told(group: Any, connect: Any, given: Any) -> None:
    connect(compression="lz4").append("t", given)
    assert group.values("t") == [b"x" * 10_000]
    heads = [decode_header(head) for _, m, head in group.seen if isinstance(m, AppendRequest)]
    assert [head.codec for head in heads] == [Codec.LZ4]
