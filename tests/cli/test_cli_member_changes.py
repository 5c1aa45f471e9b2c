"""Changes of members by ``dledger members``, with nodes as processes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dledger import Client
from dledger.cli.group.filling import filling
from dledger.cli.group.replacing import Replacement, replace_member
from dledger.types import NodeId
from tests.cli.commands import out, program, refusal, run
from tests.cli.node_processes import Appends, Processes, processes

pytestmark = pytest.mark.cluster
FOUNDERS, EVERYBODY = ("n0", "n1", "n2"), ["n0", "n1", "n2", "n3"]


def test_a_machine_is_replaced_by_another_one_while_the_group_works(tmp_path: Path) -> None:
    founders, everybody = ("n0", "n1", "n2"), ["n0", "n1", "n2", "n3"]
    with processes(tmp_path, everybody) as nodes:
        for name in founders:
            nodes.start(name, *founders)
        group = f"-b {nodes.addresses[NodeId('n1')]}"
        with Client(nodes.addresses[NodeId("n1")]) as client:
            client.create_topic("t")
            client.append("t", b"before")
            place = nodes.addresses[NodeId("n3")]
            assert out(f"members add n3 {place} {group}").startswith("n3 is a learner")
            nodes.start("n3", *everybody, options="--join")
            assert out(f"members promote n3 {group}") == "n3 is a voter\n"
            assert out(f"members remove n0 --yes {group}") == "n0 is no member\n"
            code, said = nodes.ended("n0")
            assert code == 2
            assert "members add n0 HOST:PORT', and start it with --join" in said
            client.append("t", b"after")
            rows = json.loads(out(f"members --json {group}"))
            assert {row["node"]: row["role"] for row in rows} == dict.fromkeys(
                ("n1", "n2", "n3"), "voter"
            )
            nodes.start("n0", *founders)
            code, said = nodes.ended("n0")
            assert (code, "n0 was removed from the group" in said) == (2, True)
        # a client that knows the new one alone
        with Client(nodes.addresses[NodeId("n3")]) as client:
            assert client.end_offsets("t") == {0: 2}


class Crash(Exception):
    """The command ends here."""


class CrashingClient:
    """A client whose program ends as soon as one change is done, before it knows."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.changes: list[str] = []

    def status(self) -> Any:
        return self._client.status()

    def __getattr__(self, change: str) -> Any:
        def changed(*args: Any, **fields: Any) -> None:
            getattr(self._client, change)(*args, **fields)
            self.changes.append(change)
            raise Crash

        return changed


def started(nodes: Processes) -> str:
    """Three founders; the words that lead to the group."""
    for name in FOUNDERS:
        nodes.start(name, *FOUNDERS)
    return f"-b {nodes.addresses[NodeId('n1')]}"


def roles(group: str) -> dict[str, str]:
    return {row["node"]: row["role"] for row in json.loads(run(f"members --json {group}").stdout)}


NEW_VOTERS = dict.fromkeys(("n1", "n2", "n3"), "voter")


@pytest.mark.parametrize("is_dead", [True, False])
def test_command_that_ends_after_each_step_goes_on_under_appends(
    tmp_path: Path, is_dead: bool
) -> None:
    with processes(tmp_path, EVERYBODY) as nodes:
        group, one = started(nodes), nodes.addresses[NodeId("n1")]
        with Appends(one) as appends, Client(one) as client, filling() as shown:
            appends.wait_for()
            if is_dead:
                nodes.kill("n0")
            nodes.start("n3", *EVERYBODY, options="--join")
            wanted = Replacement("n0", "n3", nodes.addresses[NodeId("n3")])
            crashing = CrashingClient(client)
            for _ in range(3):
                appends.wait_for()
                with pytest.raises(Crash):
                    replace_member(crashing, wanted, 30, shown)  # type: ignore[arg-type]
            order = ["remove_member", "promote_member"]
            order = order if is_dead else order[::-1]
            assert crashing.changes == ["add_member", *order]
            words = f"members replace n0 n3={wanted.address} --yes {group}"
            assert out(words).endswith("has the place of n0 already\n")
            appends.wait_for()
        assert roles(group) == NEW_VOTERS
        appends.check(wanted.address)


def test_replacement_goes_on_when_nodes_and_the_command_are_killed(tmp_path: Path) -> None:
    """The dead member's, under appends; the new node and the leader lose their power."""
    with processes(tmp_path, EVERYBODY) as nodes:
        group, one = started(nodes), nodes.addresses[NodeId("n1")]
        with Appends(one) as appends, Client(one) as client:
            appends.wait_for()
            nodes.kill("n0")
            nodes.start("n3", *EVERYBODY, options="--join")
            place = nodes.addresses[NodeId("n3")]
            words = f"members replace n0 n3={place} --yes {group} --timeout 60"
            command = subprocess.Popen(program(words), stderr=subprocess.PIPE, text=True)
            assert command.stderr is not None
            assert command.stderr.readline() == "n3 gets the log, and does not count yet\n"
            command.kill()
            command.communicate()
            nodes.kill("n3")
            leader = next(
                name
                for name, state in client.status().items()
                if state.get("role") == "LEADER" and name in nodes.running
            )
            nodes.kill(leader)
            nodes.start(leader, *FOUNDERS)
            nodes.start("n3", *EVERYBODY, options="--join")
            assert out(words).startswith(f"n3 at {place} has the place of n0")
            appends.wait_for()
        assert roles(group) == NEW_VOTERS
        appends.check(place)


def test_members_move_to_new_ports_under_appends(tmp_path: Path) -> None:
    """A follower, then the leader, the one stopped and the other killed. A client finds the group
    by the address of the one that stays."""
    with processes(tmp_path, list(FOUNDERS)) as nodes:
        started(nodes)
        everything = ",".join(nodes.addresses.values())
        with Appends(everything) as appends:
            appends.wait_for()
            status = json.loads(out(f"members --json -b {everything}"))
            leader = next(row["node"] for row in status if row["state"] == "LEADER")
            follower, stays = (name for name in FOUNDERS if name != leader)
            for name, end in ((follower, nodes.stop), (leader, nodes.kill)):
                end(name)
                place = nodes.move(name)
                nodes.start(name, *FOUNDERS)
                words = f"members readdress {name} {place} -b {everything} --timeout 60"
                assert out(words) == f"{name} is at {place}, and has everything\n"
                assert out(words) == f"{name} is at {place}, and has everything\n"
                appends.wait_for()
        old = nodes.addresses[NodeId(stays)]
        rows = json.loads(out(f"members --json -b {old}"))
        assert {row["node"]: row["address"] for row in rows} == nodes.addresses
        assert [row["bytes"] for row in rows] == [0, 0, 0]
        appends.check(old)


def test_wrong_replacements_and_moves_are_refused_with_the_reason(tmp_path: Path) -> None:
    with processes(tmp_path, EVERYBODY) as nodes:
        group = f"{started(nodes)} --timeout 2"
        one, three = nodes.addresses[NodeId("n1")], nodes.addresses[NodeId("n3")]
        with Client(one) as client:
            client.create_topic("t")
        for words, said in (
            ("replace n00 n3=h:1 --yes", "'n00' is not a member (did you mean 'n0'?)"),
            ("replace n0 n1=h:1 --yes", "n1 is a member already, as voter"),
            ("replace n0 n0=h:1 --yes", "n0 cannot replace itself"),
            ("replace n0 n3 --yes", "write NEW=HOST:PORT"),
            ("replace n0 n3=h:1", "say --yes"),
            (f"replace n0 n3={one} --yes", "n1 is at"),
            (f"replace n0 n3={three} --yes", "n3 does not answer there: start it with dledger"),
            (f"readdress n9 {three}", "'n9' is not a member"),
            (f"readdress n0 {one}", "n1 is at"),
            (f"readdress n0 localhost:{one.rpartition(':')[2]}", "n1 answers where n0 should"),
            (f"readdress n0 {three}", "n0 does not answer there: start it with dledger serve ("),
        ):
            assert said in refusal(f"members {words} {group}")
        assert roles(group) == dict.fromkeys(FOUNDERS, "voter")


def test_racks_are_said_and_shown(tmp_path: Path) -> None:
    with processes(tmp_path, ["n0"]) as nodes:
        nodes.start("n0", "n0")
        place = nodes.addresses[NodeId("n0")]
        group = f"-b {place}"
        Client(place).close()
        assert out(f"members label n0 --rack east {group}") == "n0 stands in east\n"
        added = out(f"members add n1 localhost:1 --observer --rack west {group}")
        assert added.startswith("n1 is an observer")
        rows = json.loads(run(f"members --json {group}").stdout)
        assert {row["node"]: row["rack"] for row in rows} == {"n0": "east", "n1": "west"}
        assert "west" in run(f"members {group}").stdout
        assert out(f"members label n0 --no-rack {group}") == "n0 stands in no rack\n"
        (row, _) = json.loads(run(f"members --json {group}").stdout)
        assert row["rack"] is None
        for words, said in (
            ("label n0", "write --rack NAME, or --no-rack"),
            ("label n0 --rack east --no-rack", "write --rack NAME, or --no-rack"),
            ("label n0 --rack=", "rack '': use 1 to 63"),
            ("add n2 localhost:2 --rack a/b", "rack 'a/b': use 1 to 63"),
            ("label n9 --rack east", "'n9' is not a member"),
        ):
            assert said in refusal(f"members {words} {group}")


def test_mistakes_are_refused_with_the_reason(tmp_path: Path) -> None:
    with processes(tmp_path, ["n0"]) as nodes:
        nodes.start("n0", "n0")
        group = f"-b {nodes.addresses[NodeId('n0')]}"
        Client(nodes.addresses[NodeId("n0")]).close()
        assert "no voter would be left" in refusal(f"members remove n0 --yes {group}")
        assert "'n00' is not a member (did you mean 'n0'?)" in refusal(
            f"members demote n00 {group}"
        )
        assert "'n9' is not a member" in refusal(f"members promote n9 {group}")
        assert "n0 is a member already" in refusal(f"members add n0 h:1 {group}")
        assert "write host:port" in refusal(f"members add n1 h {group}")
        assert "--yes" in refusal(f"members remove n0 {group}")
