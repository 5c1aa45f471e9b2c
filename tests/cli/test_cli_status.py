"""``dledger status``: each node asked by itself, and what is wrong told with an exit code."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from dledger.cli.group import node_states
from dledger.cli.group.node_states import NodeStates, problems
from dledger.errors import Unavailable
from dledger.node.handlers.metadata import OF_EVERYBODY
from dledger.testing import InProcessGroup
from tests.cli.commands import out, run


@pytest.fixture
def three() -> Iterator[InProcessGroup]:
    with InProcessGroup(3, election_ms=500) as group:
        yield group


def test_status_of_a_sound_group_is_all_well(three: InProcessGroup) -> None:
    """One address leads to all the nodes."""
    address = three.bootstrap_servers.split(",")[1]
    told = json.loads(out(f"status --json -b {address}"))
    assert sorted(told) == ["n0", "n1", "n2"]
    assert [state["problems"] for state in told.values()] == [[], [], []]
    table = out(f"status -b {address}")
    assert all(word in table for word in ("n0", "n1", "n2", "LEADER", "FOLLOWER"))


def test_node_that_lives_is_shown_though_there_is_no_quorum(three: InProcessGroup) -> None:
    for name in ("n0", "n2"):
        three.kill(name)
    left = three._servers["n1"]  # type: ignore[index]
    while left.raft.leader_id is not None:
        pass
    for address in (three.nodes["n1"].address, three.bootstrap_servers):  # type: ignore[index]
        result = run(f"status -b {address} --json")
        told = json.loads(result.stdout)
        assert (result.exit_code, sorted(told)) == (1, ["n0", "n1", "n2"])
        assert told["n1"]["node_id"] == "n1"
        assert "knows no leader" in told["n1"]["problems"]
        assert "Connection refused" in told["n0"]["error"]
    result = run(f"status -b {three.bootstrap_servers}")
    assert result.exit_code == 1
    assert "n1: knows no leader\n" in result.stdout
    assert "n2: does not answer: Connection refused\n" in result.stdout


def test_address_of_a_member_that_was_replaced_is_to_be_left_out(three: InProcessGroup) -> None:
    """All is well without it; the row of the table would leave its reader with a question."""
    result = run(f"status -b {three.bootstrap_servers},127.0.0.1:1")
    assert result.exit_code == 0
    assert (
        "127.0.0.1:1: does not answer: Connection refused; no member has this address: leave it "
        "out of --bootstrap\n"
    ) in result.stdout


def test_status_tells_how_full_the_disk_is_and_by_which_limits(three: InProcessGroup) -> None:
    told = json.loads(out(f"status --json -b {three.bootstrap_servers}"))["n0"]["disk"]
    server = three._servers["n0"]  # type: ignore[index]
    node, disk = server.node, server.parts.context.disk
    assert told["directory"] == str(node.directory)
    assert told["size_bytes"] == disk.statvfs(node.directory).total
    assert 0 <= told["free_bytes"] <= told["size_bytes"]
    limits = (told["warn_ratio"], told["full_ratio"], told["reserve_bytes"])
    assert limits == (node.disk_warn_ratio, node.disk_full_ratio, node.disk_reserve_bytes)


def test_addresses_where_no_node_answers_are_told_with_the_reason() -> None:
    result = run("status -b 127.0.0.1:1,127.0.0.1:2 --timeout 0.3")
    assert result.exit_code == 1
    for address in ("127.0.0.1:1", "127.0.0.1:2"):
        assert f"{address}: does not answer: Connection refused\n" in result.stdout


def test_node_that_hangs_is_told_with_the_whole_reason() -> None:
    """The kernel takes connections of a process that is stopped; nobody answers on them."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        result = run(f"status -b {address} --timeout 0.5")
    assert result.exit_code == 1
    (told,) = (line for line in result.stdout.splitlines() if line.startswith(f"{address}: "))
    assert "does its process hang?" in told
    assert told.endswith(")")
    assert told.count("(") == told.count(")")


def sound(name: str, **fields: Any) -> dict[str, Any]:
    """The status of a node that is well, but for ``fields``."""
    return {
        "node_id": name,
        "role": "LEADER" if name == "n0" else "FOLLOWER",
        "leader_id": "n0",
        "members": ["n0", "n1"],
        "group_id": "g",
        "committed_index": 9,
        "applied_index": 9,
        "admission": {"admitted": True},
        "repair": {"faulty": []},
        "disk_level": "OK",
        **fields,
    }


DISK = {
    "directory": "/data/n1",
    "size_bytes": 100_000_000,
    "free_bytes": 8_000_000,
    "warn_ratio": 0.9,
    "full_ratio": 0.95,
    "reserve_bytes": 64 << 20,
}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, []),
        ({"leader_id": ""}, ["knows no leader"]),
        ({"role": "LEADER"}, ["leads, and so does n0"]),
        ({"admission": {"admitted": False}}, ["is not admitted: dledger admit n1"]),
        (
            {"admission": {"admitted": True, "missing": ["n0", "n2"]}, "leader_id": ""},
            ["has not heard of n0, n2: a group begins when all members run", "knows no leader"],
        ),
        ({"disk_level": "WARN"}, ["its disk is almost full"]),
        ({"disk_level": "FULL"}, ["its disk is full: writes are refused"]),
        (
            {"disk_level": "WARN", "disk": DISK},
            [
                "its disk is almost full; of /data/n1 92% are used, 8,000,000 bytes free "
                "(disk_warn_ratio=0.9)"
            ],
        ),
        (
            {"disk_level": "FULL", "disk": DISK},
            [
                "its disk is full: writes are refused; of /data/n1 92% are used, 8,000,000 bytes "
                "free (disk_full_ratio=0.95, disk_reserve_bytes=67,108,864)"
            ],
        ),
        (
            {"peers_connected": {"n0": False}, "refused_peers": {"n0": "another secret"}},
            ["has no link to n0: another secret"],
        ),
        ({"peers_connected": {"n0": True}, "refused_peers": {"n0": "another secret"}}, []),
        ({"catalog_lost": True}, ["has lost its catalog, and waits for a leader's"]),
        ({"behind": 7000}, ["is 7,000 entries behind the leader"]),
        ({"repair": {"faulty": [{"first": 3, "last": 5}]}}, ["has 3 damaged entries"]),
        ({"group_id": "h"}, ["is of group h; others are not"]),
        ({"members": ["n0", "n1", "n2"]}, []),
    ],
)
def test_each_thing_that_is_wrong_with_a_node_is_told(
    fields: dict[str, Any], told: list[str]
) -> None:
    found = problems({"n0": sound("n0"), "n1": sound("n1", **fields)})
    assert found.get("n1", []) == told


def test_node_that_does_not_answer_is_not_well() -> None:
    found = problems({"n0": sound("n0"), "n1": {"error": "does not run"}})
    assert found == {"n1": ["does not run"]}


def test_members_are_those_of_the_leaders_list() -> None:
    """A removed node may be down, or named by one that does not know of its removal yet."""
    leader, former = sound("n0", term=3), sound("n1", role="LEADER", term=2, members=["n0", "n2"])
    gone = {"n2": {"error": "does not run"}, "c:1": {"error": "does not answer"}}
    assert problems({"n0": leader, "n1": sound("n1"), **gone}) == {}
    assert "n2" in problems({"n1": former | {"leader_id": ""}, **gone})
    missing = problems({"n0": sound("n0", members=["n0", "n1", "n3"]), "n1": sound("n1")})
    assert missing == {"n0": ["names n3 as a member, which nobody has an address of"]}
    nobody = {"n1": sound("n1", leader_id="", role="CANDIDATE"), **gone}
    assert problems(nobody)["n2"] == ["does not run"]


def test_user_who_may_not_describe_the_cluster_is_told_so() -> None:
    """Nodes tell such a user a few things of themselves (`OF_EVERYBODY`)."""
    little = {name: value for name, value in sound("n0").items() if name in OF_EVERYBODY}
    states = NodeStates({}.__getitem__)
    states.found = {"n0": little | {"members": ["n0"]}}
    states.wait_for_followers()
    (reason,) = problems(states.found)["n0"]
    assert "no rule lets describe the cluster" in reason


class Node:
    """A client of one node, which says one thing after the other."""

    def __init__(self, name: str, *applied: int) -> None:
        self.name, self.applied = name, list(applied)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def node_status(self) -> tuple[dict[str, Any], dict[str, str]]:
        applied = self.applied.pop(0) if len(self.applied) > 1 else self.applied[0]
        if applied < 0:
            raise Unavailable("gone")
        return sound(self.name, applied_index=applied), {"n0": "a:1", "n1": "b:1"}


@pytest.mark.parametrize(
    ("applied", "told"),
    [
        ((9,), {}),
        ((4, 7, 9), {}),
        ((4,), {"n1": ["is 5 entries behind the leader"]}),
        ((4, -1), {"n1": ["does not answer: gone"]}),
    ],
)
def test_follower_has_a_moment_to_catch_up(
    applied: tuple[int, ...], told: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(1000))
    clock = SimpleNamespace(monotonic=lambda: next(times) * 0.3, sleep=lambda seconds: None)
    monkeypatch.setattr(node_states, "time", clock)
    nodes: dict[str, Any] = {"a:1": Node("n0", 9), "b:1": Node("n1", *applied)}
    states = NodeStates(nodes.__getitem__)
    states.ask(["a:1"])
    states.wait_for_followers()
    assert problems(states.found) == told
