"""A little of ``make strangers`` at real nodes, as this user and without looking at the clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dledger import Client, EmbeddedGroup
from dledger.errors import ConfigError
from dledger.types import NodeId
from verification.strangers import users
from verification.strangers.__main__ import main as campaign_main
from verification.strangers.campaign import SMALL, Campaign, Part
from verification.strangers.healthy import p99
from verification.strangers.intruder import OPERATIONS, command, main
from verification.strangers.nodes import Nodes

pytestmark = pytest.mark.cluster


def found_by(folder: Path, *strangers: str) -> dict[str, Any]:
    """What a small campaign with these strangers alone finds: no problem."""
    said: list[str] = []
    found = Campaign(folder, SMALL, said.append, strangers, timed=False).run()
    assert found["problems"] == [], said
    assert found["ok"]
    assert [row[0] for row in found["table"][1:]] == list(strangers)
    return found


def test_hostile_strangers_stop_no_node_and_take_bounded_memory(tmp_path: Path) -> None:
    """Slow, deaf, polling and flooding strangers do not move the term either."""
    found = found_by(tmp_path, "slow", "deaf", "polls", "idle", "crowd", "flood")
    assert json.loads(json.dumps(found))["figures"]["MiB at most in a node"] < 300


def test_liar_without_secret_or_with_a_foreign_certificate_is_no_member(tmp_path: Path) -> None:
    found = found_by(tmp_path, "unproven", "liar", "certificates")
    assert all("refused" in row[1] for row in found["table"][2:])


def test_where_no_other_users_can_be_had_the_campaign_fails_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert campaign_main(["--only", "path"]) == 2
    said = capsys.readouterr().out
    assert (
        "two Unix users, and this process can become neither: run it as root with setpriv" in said
    )
    assert "/etc/subuid" in said


def test_nodes_and_strangers_are_two_users_other_than_the_caller(tmp_path: Path) -> None:
    try:
        users.check_users()
    except ConfigError as error:
        pytest.skip(str(error))
    assert (
        campaign_main(["--small", "--only", "path,slow", "--json", str(tmp_path / "found.json")])
        == 0
    )
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["figures"]["uid of the nodes"] == users.OWNER
    assert found["figures"]["uid of the strangers"] == users.STRANGER
    assert [row[0] for row in found["table"][1:]] == ["slow", "path"]


def test_the_groups_own_user_can_do_all_that_a_stranger_tries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else it shows nothing that the stranger cannot."""
    with (
        EmbeddedGroup(tmp_path / "log", replicas=1, segment_bytes=16 << 20) as group,
        Client(group.bootstrap_servers) as client,
    ):
        client.create_topic("mine")
        client.append("mine", b"a record")
        nodes = json.dumps({"n0": group.bootstrap_servers})
        assert main(["path", "--nodes", nodes, "--topic", "mine"]) == 0
    found = json.loads(capsys.readouterr().out)
    del found["uid"], found["welcome"]  # the raw connection proves nothing
    assert found == dict.fromkeys(OPERATIONS, 1)


def test_growth_by_a_crowd_is_the_peak_above_the_memory_before(tmp_path: Path) -> None:
    with Nodes(tmp_path, 1) as nodes:
        before = nodes.begin_peak()
        assert before[NodeId("n0")] > 1
        assert 0 <= nodes.growth_mib(before) < 64
        assert nodes.growth_mib({NodeId("n0"): before[NodeId("n0")] - 100}) > 99


def test_an_intruder_that_is_the_same_user_is_found_out(tmp_path: Path) -> None:
    """Else whatever it is refused would show nothing."""
    with pytest.raises(ConfigError, match="the other user is none"):
        users.check_stranger(tmp_path / "mine", users.same_user)


def test_client_wait_above_three_times_or_few_requests_is_a_problem() -> None:
    """The wait under attack is compared with the quiet one."""
    part = Part("flood", {}, [1.0] * 1000, [1.0] * 980 + [2.9] * 20)
    part.judge()
    assert part.problems == []
    part.attacked[-20:] = [3.1] * 20
    part.judge()
    assert part.problems == ["a healthy client waited 3.1 ms (p99), 1.0 quiet"]
    crowd = Part("crowd", {}, [1.0] * 1000, [2.1] * 1000, slower=2.0)
    crowd.judge()
    assert len(crowd.problems) == 1
    beside = Part("crowd", {}, crowd.quiet, crowd.attacked, slower=2.0, bare_ms=1.1)
    beside.judge()
    assert beside.problems == []
    few = Part("flood", {}, [1.0] * 299, [1.0] * 300)
    few.judge()
    assert few.problems == ["only 299 requests quiet and 300 attacked"]


def test_an_intruder_says_what_it_achieved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["files", "--path", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["read"] == 1
    assert main(["flood", "--nodes", "{}"]) == 0
    assert "commands" not in json.loads(capsys.readouterr().out)


def test_a_flood_is_of_all_kinds_of_commands() -> None:
    assert len({type(command(number)) for number in range(6)}) == 4


def test_p99_is_one_of_the_samples() -> None:
    assert p99([]) == 0.0
    assert p99([float(number) for number in range(1000)]) == 990.0
