"""A group whose majority is gone goes on with one disk: what stays, what is told, and that the old
members are left out."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator

import pytest

from dledger.client import Client
from dledger.errors import ConfigError, DLedgerError, PathError, WrongGroup
from dledger.node.handlers.replaced_disks import body_of
from dledger.recover.new_group import recover
from dledger.recover.others import ask_all, check_gone, other_addresses, own_address
from dledger.types import Index, NodeId
from tests.backup.conftest import fill, state, until
from tests.recover.conftest import DISK, Disaster, append_bodies, listing


def test_report_has_what_is_committed_and_what_only_this_disk_has(disaster: Disaster) -> None:
    found = disaster.look()
    assert (found.node_id, found.group_id) == (disaster.left, disaster.old_id)
    assert found.voters == ("n0", "n1", "n2")
    assert found.only_here.entries == found.end.index - found.committed == 1
    assert found.only_here.records == {"plain/1": 7}
    assert found.newest_us > 0
    assert found.is_admitted


def test_recovered_group_has_everything_and_takes_more(disaster: Disaster) -> None:
    """Records, positions, schemas, exactly-once state, and the batch that was not acknowledged."""
    made = disaster.recover()
    assert made.ancestor == disaster.old_id != made.group_id
    disaster.start(disaster.left)
    client = disaster.client()
    now = state(client)
    assert now["groups"] == disaster.before["groups"]
    assert now["topics"] == disaster.before["topics"]
    assert now["typed", "rows"] == disaster.before["typed", "rows"]
    ends = disaster.before["plain"][0]
    assert now["plain"][0] == {0: ends[0], 1: ends[1] + 7}
    assert client.commit_transaction("writer", 0, ()).repeated
    fill(client, 1)


def test_records_that_may_differ_are_not_called_shared(disaster: Disaster) -> None:
    """The rule of restored groups: what a program has read of the old group is there up to the
    entry that was known to be committed, and its offsets are refused behind that."""
    committed = disaster.look().committed
    disaster.recover()
    disaster.start(disaster.left)
    client = disaster.client()
    assert client.lineage().ancestors == ((disaster.old_id, committed),)
    shared = client.shared_offsets(disaster.old_id, ["plain"]).offsets["plain"]
    assert shared == disaster.before["plain"][0]
    assert client.end_offsets("plain")[1] == shared[1] + 7
    with pytest.raises(WrongGroup, match="made from a backup of the group"):
        Client(disaster.addresses[disaster.left], group_id=disaster.old_id).topics()


def test_old_members_that_come_back_are_of_another_group(disaster: Disaster) -> None:
    """They elect a leader among themselves, and neither group hears the other, also where the new
    one has a member of that name."""
    disaster.recover()
    disaster.start(disaster.left)
    client = disaster.client()
    fill(client, 1)
    for node in disaster.others:
        disaster.start(node)
    server = disaster.group._servers[disaster.left]
    name = disaster.others[0]
    with Client(disaster.addresses[name]) as old:
        old.append("plain", [b"old"], partition=0)
        assert old.lineage().group_id == disaster.old_id
        with pytest.raises(ConfigError, match="is of another group"):
            client.add_member(name, disaster.addresses[name])
        disaster.group.kill(name)
        client.add_member(name, disaster.addresses[name])
        disaster.start(name)
        old.append("plain", [b"older"], partition=0)
    place = disaster.addresses[disaster.left]
    with Client(place, request_timeout_ms=500) as hasty, pytest.raises(DLedgerError):
        hasty.promote_member(name)
    assert server.raft.voters == (disaster.left,)
    fill(client, 2)


@pytest.mark.parametrize("has_change", [False, True])
def test_recovered_group_grows_by_machines_under_old_names(
    disaster: Disaster, has_change: bool
) -> None:
    """Also where the entries that only this disk has list other members: these are applied, and
    are nobody's members."""
    if has_change:
        with disaster.store() as store:
            append_bodies(store, body_of(Index(-1), listing("n0", "n1", "n2", "n3")))
        assert disaster.look().voters == ("n0", "n1", "n2", "n3")
    disaster.recover()
    disaster.start(disaster.left)
    client = disaster.client()
    fill(client, 1)
    for node in disaster.others:
        shutil.rmtree(disaster.directory.parent / node)
        client.add_member(node, disaster.addresses[node])
        disaster.start(node, joins=True)
        _promote(client, node)
    before = state(client)
    disaster.group.kill(disaster.left)
    with Client(disaster.addresses[disaster.others[0]]) as other:
        assert state(other) == before
        fill(other, 2)
        for node in disaster.others:
            raft = disaster.group._servers[node].raft
            assert sorted(raft.voters) == ["n0", "n1", "n2"]


def _promote(client: Client, node: NodeId) -> None:
    def is_near() -> bool:
        for one in client.status().values():
            if one.get("role") == "LEADER":
                return bool(one["watermarks"].get(node, -2) >= one["committed_index"])
        return False

    until(is_near)
    client.promote_member(node)


def test_second_run_makes_no_second_group(disaster: Disaster) -> None:
    made = disaster.recover()
    again = disaster.look()
    assert again.is_alone
    assert recover(again, "", again.group, DISK).group_id == made.group_id
    assert disaster.look() == again


def test_node_that_ran_meanwhile_is_looked_at_again(disaster: Disaster) -> None:
    survivor = disaster.look()
    disaster.start(disaster.left)
    with pytest.raises(PathError, match="a node runs on this store"):
        disaster.look()
    with pytest.raises(PathError, match="in use by another node process"):
        recover(survivor, "h:1", "test", DISK)
    disaster.start(disaster.others[0])
    fill(disaster.group.client(), 1)
    for node in (disaster.left, disaster.others[0]):
        disaster.group.kill(node)
    with pytest.raises(ConfigError, match="has changed since it was looked at"):
        recover(survivor, "h:1", "test", DISK)
    assert disaster.look().group_id == disaster.old_id


def test_majority_that_answers_needs_no_recovery(disaster: Disaster) -> None:
    survivor = disaster.look()
    addresses = other_addresses(survivor, disaster.addresses)
    assert set(addresses) == set(disaster.others)
    answers = ask_all(survivor, addresses, None, 5)
    assert [one.presence.name for one in answers] == ["ABSENT", "ABSENT"]
    check_gone(survivor, answers)
    disaster.start(disaster.others[0])
    with pytest.raises(ConfigError, match=r"this is not needed: .* are a majority"):
        check_gone(survivor, ask_all(survivor, addresses, None, 5))


def test_machine_that_was_made_anew_is_no_member(disaster: Disaster) -> None:
    """Its node knows no group yet, or another one."""
    survivor = disaster.look()
    other = disaster.others[0]
    shutil.rmtree(disaster.directory.parent / other)
    disaster.start(other)
    answers = ask_all(survivor, {other: disaster.addresses[other]}, None, 5)
    assert [one.presence.name for one in answers] == ["STRANGER"]
    check_gone(survivor, answers)


@pytest.fixture
def silent() -> Iterator[str]:
    """A program that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_who_does_not_say_what_it_is_counts_as_there(disaster: Disaster, silent: str) -> None:
    """It may be a member under TLS."""
    survivor = disaster.look()
    answers = ask_all(survivor, {disaster.others[0]: silent}, None, 0.2)
    assert [one.presence.name for one in answers] == ["UNCLEAR"]
    with pytest.raises(ConfigError, match="DLEDGER_TLS_CA"):
        check_gone(survivor, answers)


def test_addresses_that_no_file_has_are_asked_for(disaster: Disaster) -> None:
    survivor = disaster.look()
    with pytest.raises(ConfigError, match=f"where {disaster.left} is: name it in --peers"):
        own_address(survivor, {})
    with pytest.raises(ConfigError, match="give --peers with the addresses of all members"):
        other_addresses(survivor, {disaster.left: "h:1"})
    with pytest.raises(ConfigError, match="--peers names n7: the members are n0, n1, n2"):
        other_addresses(survivor, {**disaster.addresses, NodeId("n7"): "h:1"})
