"""Members of consumer groups: who has which partition, and whose commits count."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.catalog.clients.assignment import assign
from dledger.protocol.messages.catalog_commands import (
    AddPartitions,
    CommitConsumed,
    CommitConsumedTransaction,
    CommitProgress,
    DeleteGroup,
    DeleteTopic,
    JoinGroup,
    LeaveGroup,
    ReleasePartitions,
    StageSum,
)
from dledger.protocol.messages.codes import Code

T0, T1 = 1 << 32, 1 << 32 | 1


def join(log: Any, member: str, *topics: str, **more: Any) -> Code:
    fields = {"topics": topics or ("t",), "session_timeout_ms": 5000, **more}
    code: Code = log.run(JoinGroup(consumer_group="g", member_id=member, **fields)).code
    return code


def leave(log: Any, *members: str, temporarily: bool = False) -> None:
    log.run(LeaveGroup(consumer_group="g", member_ids=members, temporarily=temporarily))


def group(log: Any) -> Any:
    return log.catalog.consumer_groups.by_name["g"].membership


def release(log: Any, member: str, *keys: int, epoch: int | None = None) -> None:
    epoch = group(log).epoch if epoch is None else epoch
    command = ReleasePartitions(
        consumer_group="g", member_id=member, epoch=epoch, partitions=tuple(keys)
    )
    log.run(command)


def commit(
    log: Any, member: str, *, epoch: int | None = None, sequence: int = 0, **spans: dict[int, int]
) -> Code:
    command = CommitConsumed(
        consumer_group="g",
        member_id=member,
        epoch=group(log).epoch if epoch is None else epoch,
        sequence=sequence,
        offsets=spans,
        time_ms=7,
    )
    code: Code = log.run(command).code
    return code


def has(log: Any, member: str) -> list[int]:
    return sorted(group(log).assigned_to(member))


def test_member_that_leaves_twice_in_one_command_is_gone_once(log: Any) -> None:
    """A command is applied on every node, so nothing that a client sends may end in an error."""
    join(log, "a", "t", "t")
    join(log, "b")
    leave(log, "a", "a", "nobody")
    assert set(group(log).members) == {"b"}


# --- assignment -----------------------------------------------------------------------------------

SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from("abcdefg"), st.lists(st.integers(1, 4), unique=True, min_size=1), min_size=1
)


@given(SUBSCRIPTIONS, SUBSCRIPTIONS, st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_assignment_is_whole_even_and_moves_no_more_than_that_takes(
    before: dict[str, list[int]], after: dict[str, list[int]], counts: list[int]
) -> None:
    keys = [topic << 32 | at for topic in range(1, 5) for at in range(counts[topic - 1])]
    former = assign(before, keys, {})
    found = assign(after, keys, former)
    readers = {topic: [m for m in after if topic in after[m]] for topic in range(1, 5)}
    assert found.keys() == {key for key in keys if readers[key >> 32]}
    shares = Counter(found.values())
    for key, member in found.items():
        assert member in readers[key >> 32]
        assert all(shares[member] <= shares[other] + 1 for other in readers[key >> 32])
    assert assign(after, keys, found) == found


def test_one_more_member_moves_only_its_own_share() -> None:
    keys = [1 << 32 | at for at in range(12)]
    three = assign({name: [1] for name in "abc"}, keys, {})
    four = assign({name: [1] for name in "abcd"}, keys, three)
    assert sum(three[key] != four[key] for key in keys) == 3
    assert sum(four[key] == "d" for key in keys) == 3


# --- members --------------------------------------------------------------------------------------


def test_partition_changes_hands_only_when_its_former_member_releases_it(log: Any) -> None:
    join(log, "a")
    assert has(log, "a") == [T0, T1]
    join(log, "b")
    assert (has(log, "a"), has(log, "b")) == ([T0], [])
    assert not group(log).is_settled("b")
    release(log, "a", T1)
    assert (has(log, "a"), has(log, "b")) == ([T0], [T1])
    assert group(log).is_settled("b")


def test_partitions_of_a_member_that_is_gone_are_given_at_once(log: Any) -> None:
    join(log, "a")
    join(log, "b")
    leave(log, "a", "nobody")
    assert has(log, "b") == [T0, T1]
    leave(log, "b")
    assert group(log).owners == {}


def test_release_that_comes_late_takes_nothing_that_was_given_since(log: Any) -> None:
    join(log, "a")
    join(log, "b")
    old = group(log).epoch
    release(log, "a", T1)
    leave(log, "b")
    assert has(log, "a") == [T0, T1]
    join(log, "c")
    assert group(log).target[T1] == "c"
    release(log, "a", T1, epoch=old)
    assert group(log).owners[T1] == ("a", old + 1)


def test_topics_and_partitions_that_come_and_go_are_shared_out(log: Any) -> None:
    join(log, "a", "t", "later")
    epoch = group(log).epoch
    later = log.topic("later", 1)
    log.run(AddPartitions(name="t", partitions=3))
    assert has(log, "a") == [T0, T1, T0 | 2, later << 32]
    log.run(DeleteTopic(name="t"))
    assert has(log, "a") == [later << 32]
    assert group(log).epoch == epoch + 3


def test_member_changes_its_topics_and_a_late_join_does_not_undo_that(log: Any) -> None:
    other = log.topic("u", 1)
    join(log, "a", version=1)
    join(log, "a", "u", version=2)
    join(log, "a", version=1)
    release(log, "a", T0, T1)
    assert has(log, "a") == [other << 32]


def test_static_member_that_comes_back_has_its_share_and_no_other_changes(log: Any) -> None:
    join(log, "a", instance_id="one")
    join(log, "b")
    release(log, "a", *(set(group(log).owned_by("a")) - set(has(log, "a"))))
    mine, others = has(log, "a"), has(log, "b")
    leave(log, "a", temporarily=True)
    assert (group(log).owned_by("a"), has(log, "b")) == ([], others)
    join(log, "a2", instance_id="one")
    assert (has(log, "a2"), has(log, "b")) == (mine, others)
    assert "a" not in group(log).members


def test_successor_of_a_static_member_waits_until_that_one_is_gone(log: Any) -> None:
    """It may be alive: nothing is read by both."""
    join(log, "a", instance_id="one")
    join(log, "a2", instance_id="one")
    assert group(log).members["a"].is_replaced
    assert has(log, "a") == has(log, "a2") == []
    assert group(log).owned_by("a") == [T0, T1]
    leave(log, "a")
    assert has(log, "a2") == [T0, T1]


# --- commits --------------------------------------------------------------------------------------


def test_commit_counts_until_the_partition_is_released_and_never_after(log: Any) -> None:
    log.data(9, partition=1)
    join(log, "a")
    join(log, "b")
    assert commit(log, "a", t={1: 3}) is Code.SUCCESS
    assert commit(log, "b", t={1: 4}) is Code.CONSUMER_FENCED
    old = group(log).epoch
    release(log, "a", T1)
    assert commit(log, "a", sequence=1, t={1: 5}) is Code.CONSUMER_FENCED
    assert commit(log, "b", t={1: 6}) is Code.SUCCESS
    leave(log, "b")  # and the partition is the former one's again, in another epoch
    assert commit(log, "a", epoch=old, sequence=2, t={1: 7}) is Code.CONSUMER_FENCED
    assert commit(log, "a", sequence=3, t={1: 8}) is Code.SUCCESS
    assert commit(log, "b", sequence=9, t={1: 9}) is Code.UNKNOWN_CONSUMER
    assert log.catalog.group("g") == {"t": {1: 8}}


def test_commit_that_comes_behind_a_newer_one_changes_nothing(log: Any) -> None:
    log.data(9)
    join(log, "a")
    assert commit(log, "a", sequence=2, t={0: 6}) is Code.SUCCESS
    assert commit(log, "a", sequence=1, t={0: 3}) is Code.SUCCESS
    assert log.catalog.group("g") == {"t": {0: 6}}


def test_group_with_members_takes_no_other_commits_and_stays(log: Any) -> None:
    log.data(9)
    outside = CommitProgress(consumer_group="g", offsets={"t": {0: 4}})
    assert log.run(outside).code is Code.SUCCESS
    join(log, "a", label="host/1")
    result = log.run(outside)
    assert result.code is Code.GROUP_IN_USE
    assert "'g' has 1 members (host/1)" in result.message
    assert log.run(DeleteGroup(consumer_group="g")).code is Code.GROUP_IN_USE
    leave(log, "a")
    assert log.run(outside).code is Code.SUCCESS
    assert log.run(DeleteGroup(consumer_group="g")).code is Code.SUCCESS


def transact(log: Any, stage: tuple[int, int, int], offset: int, member: str = "a") -> Any:
    consumed = CommitConsumed(
        consumer_group="g",
        member_id=member,
        epoch=group(log).epoch,
        sequence=5,
        offsets={"t": {0: offset}},
    )
    total = StageSum(stage_id=stage[0], batches=stage[1], records=stage[2])
    command = CommitConsumedTransaction(
        writer_id="w", sequence=0, stages=(total,), consumed=consumed, time_ms=77
    )
    return log.run(command)


def test_transaction_and_its_offsets_are_committed_together_once(log: Any) -> None:
    log.data(4)
    join(log, "a")
    stage = log.staged(2)
    assert transact(log, stage, 4).result["offsets"] == {"t": {0: [4, 6]}}
    assert commit(log, "a", sequence=6, t={0: 5}) is Code.SUCCESS
    assert transact(log, stage, 4).result["repeated"]
    assert log.catalog.group("g") == {"t": {0: 5}}
    assert log.catalog.end_offset(1, 0) == 6


def test_transaction_of_a_fenced_member_or_with_other_rows_leaves_no_trace(log: Any) -> None:
    log.data(4)
    join(log, "a")
    stage = log.staged(2)
    assert transact(log, (stage[0], 1, 1), 4).code is Code.STAGE_INCOMPLETE
    leave(log, "a")
    join(log, "b")
    assert transact(log, stage, 4).code is Code.UNKNOWN_CONSUMER
    assert log.catalog.group("g") == {}
    assert log.catalog.end_offset(1, 0) == 4
    assert transact(log, stage, 4, "b").code is Code.SUCCESS


@pytest.mark.parametrize(
    "wrong",
    [
        {"topics": ()},
        {"topics": ("x" * 1025,)},
        {"member_id": ""},
        {"session_timeout_ms": 999},
        {"session_timeout_ms": 1_800_001},
        {"consumer_group": "a b"},
    ],
)
def test_join_that_cannot_be_makes_no_group(log: Any, wrong: dict[str, Any]) -> None:
    right = {"consumer_group": "g", "member_id": "a", "topics": ("t",), "session_timeout_ms": 1000}
    result = log.run(JoinGroup(**right | wrong))
    assert result.code is Code.MALFORMED
    assert log.catalog.groups() == ()


# --- any history ----------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(0, 3), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("leave"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("hear"), st.integers(0, 3)),
        st.tuples(st.just("release"), st.integers(0, 3)),
        st.tuples(st.just("again"), st.integers(0, 30)),
        st.tuples(st.just("topic"), st.integers(1, 4)),
        st.tuples(st.just("restart")),
    ),
    max_size=50,
)


class Reader:
    """A member as its program sees it: it reads what it heard of, and stops before it releases."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.reads: dict[int, int] = {}
        self.epoch = 0

    def hear(self, membership: Any) -> set[int]:
        """Take the answer to a heartbeat; the partitions to be released."""
        self.epoch = membership.epoch
        assigned = membership.assigned_to(self.member_id)
        gone = {key for key, since in self.reads.items() if assigned.get(key) != since}
        self.reads = assigned
        return gone


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_no_history_gives_a_partition_to_two_members(new_log: Any, steps: list[Any]) -> None:
    """Late and repeated commands included; and each node, also from a snapshot, knows the same."""
    log = new_log()
    log.topic("t", 2)
    readers: dict[str, Reader] = {}
    held: dict[int, str] = {}
    pending: list[tuple[str, set[int], int]] = []
    for number, (what, *args) in enumerate(steps):
        if what == "join":
            known = [name for name in readers if name.startswith(f"m{args[0]}")]
            member = f"m{args[0]}.{number}" if args[2] or not known else known[0]
            instance = f"i{args[1]}" if args[1] else ""
            join(log, member, instance_id=instance, version=number + 1)
            readers.setdefault(member, Reader(member))
        elif what == "topic":
            log.run(AddPartitions(name="t", partitions=args[0] + 1))
        elif what == "restart":
            log.restart()
        elif what == "again" and args[0] < len(log.entries):
            entry = log.entries[args[0]]
            if entry and not (isinstance(entry[0], JoinGroup) and _is_over(log, entry[0])):
                log.run(entry[0])
        elif "g" not in log.catalog.groups():
            continue
        elif what == "leave":
            gone = [name for name in readers if name.startswith(f"m{args[0]}")]
            leave(log, *gone, temporarily=args[1])
            held = {key: one for key, one in held.items() if one not in gone}
            for name in gone:
                del readers[name]
            pending = [one for one in pending if one[0] not in gone]
        elif what == "hear":
            for name, reader in readers.items():
                if name.startswith(f"m{args[0]}") and name in group(log).members:
                    gone_keys = reader.hear(group(log))
                    pending.append((name, gone_keys, reader.epoch))
                    held = {k: o for k, o in held.items() if o != name or k not in gone_keys}
                    for key in reader.reads:
                        assert held.get(key, name) == name, f"{key} has two members"
                        held[key] = name
        elif what == "release" and pending:
            name, keys, epoch = pending.pop(args[0] % len(pending))
            release(log, name, *keys, epoch=epoch)
    groups = log.catalog.consumer_groups
    there = {name for name, one in groups.by_name.items() if one.membership.members}
    assert groups.with_members.keys() == there
    assert log.replay(type(log.catalog)(type(log.tables)())).snapshot() == log.catalog.snapshot()


def _is_over(log: Any, command: JoinGroup) -> bool:
    """A join that comes again behind the end of its member makes one that nobody stands for; that
    one ends with its session, and is not what is looked at here."""
    return command.member_id not in group(log).members
