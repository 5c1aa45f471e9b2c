"""``dledger members``: who belongs to a group, also where it has no leader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dledger.cli.group.members import member_rows
from dledger.cli.group.node_states import GroupLook
from dledger.embedded import EmbeddedGroup
from dledger.release import RELEASE
from dledger.testing import InProcessGroup
from tests.cli.commands import SMALL, out, run


def test_members_of_a_sound_group_are_listed_from_one_address() -> None:
    with InProcessGroup(3, election_ms=500) as three:
        address = three.bootstrap_servers.split(",")[2]
        rows = json.loads(out(f"members --json -b {address}"))
        servers = three._servers
        assert [row["node"] for row in rows] == ["n0", "n1", "n2"]
        assert {row["role"] for row in rows} == {"voter"}
        assert sorted(row["state"] for row in rows) == ["FOLLOWER", "FOLLOWER", "LEADER"]
        assert [row["address"] for row in rows] == three.bootstrap_servers.split(",")
        assert [row["incarnation"] for row in rows] == [
            servers[one["node"]].raft.membership.incarnation for one in rows
        ]
        assert [row["lag"] for row in rows] == [0, 0, 0]
        assert {row["release"] for row in rows} == {RELEASE}
        table = out(f"members -b {address}")
    assert f"{rows[0]['incarnation']:016x}" in table
    assert len(table.splitlines()) == 5


def test_members_are_listed_where_a_quorum_is_missing() -> None:
    with InProcessGroup(3, election_ms=500) as three:
        addresses = three.bootstrap_servers.split(",")
        for name in ("n0", "n1"):
            three.kill(name)
        result = run(f"members --json -b {addresses[2]}")
    rows = {row["node"]: row for row in json.loads(result.stdout)}
    assert result.exit_code == 1
    assert {name: row["reachable"] for name, row in rows.items()} == {
        "n0": False, "n1": False, "n2": True,
    }  # fmt: skip
    assert [row["address"] for row in rows.values()] == addresses
    assert "Connection refused" in rows["n0"]["error"]
    assert "Connection refused" in result.stdout


def test_members_of_a_path_are_listed_though_none_runs(tmp_path: Path) -> None:
    with EmbeddedGroup(tmp_path / "log", replicas=1, **SMALL) as group:
        address = group.bootstrap_servers
    result = run(f"members --json -b {tmp_path}/log")
    assert result.exit_code == 1
    (row,) = json.loads(result.stdout)
    assert (row["node"], row["address"], row["reachable"]) == ("n0", address, False)
    assert row["error"] == "does not run"
    assert "does not run" in run(f"members -b {tmp_path}/log").stdout


def said(role: str, **fields: Any) -> dict[str, Any]:
    return {"role": role, "members": ["n0", "n1", "n2"], "release": "9", **fields}


LEADER = said(
    "LEADER",
    committed_index=90,
    watermarks={"n0": 95, "n1": 80, "n2": -1},
    admission={"incarnation": 1, "admitted": True, "members": {"n0": 1, "n1": 2, "n2": 3}},
)
WIPED = said("FOLLOWER", admission={"incarnation": 7, "admitted": False, "members": {}})


def test_lag_and_incarnation_of_a_member_that_is_down_are_the_leaders_word() -> None:
    look = GroupLook({"n0": LEADER, "n1": WIPED}, {"n0": "a:1", "n1": "b:1"}, {})
    rows = {row["node"]: row for row in member_rows(look)}
    assert {name: row["lag"] for name, row in rows.items()} == {"n0": 0, "n1": 10, "n2": 91}
    assert {name: row["incarnation"] for name, row in rows.items()} == {"n0": 1, "n1": 7, "n2": 3}
    assert [row["admitted"] for row in rows.values()] == [True, False, None]
    assert (rows["n2"]["address"], rows["n2"]["reachable"]) == (None, False)


def test_roles_are_the_leaders_word() -> None:
    leads = LEADER | {"members": ["n0", "n1"], "member_roles": {"n0": "VOTER", "n1": "LEARNER"}}
    lags = WIPED | {"member_roles": {"n0": "VOTER", "n1": "VOTER"}}
    look = GroupLook({"n0": leads, "n1": lags, "c:1": {"error": "does not answer"}}, {}, {})
    roles = {row["node"]: row["role"] for row in member_rows(look)}
    assert roles == {"n0": "voter", "n1": "learner"}, "n2 was removed, and its address is c:1"
    del look.states["n0"]
    roles = {row["node"]: row["role"] for row in member_rows(look)}
    assert roles == {"n0": "voter", "n1": "voter", "n2": "voter", "c:1": None}


def test_status_that_a_principal_may_not_see_in_whole_makes_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {"role": "LEADER", "members": ["n0"], "node_id": "n0"}
    look = GroupLook({"n0": known}, {"n0": "a:1"}, {})
    monkeypatch.setattr("dledger.cli.group.members.look_at", lambda *_: look)
    last = out("members -b a:1").splitlines()[-1]
    assert last.split() == ["n0", "voter", "LEADER", "a:1", "-", "-", "-", "-", "yes"]
