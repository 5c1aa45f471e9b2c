"""``dledger recover``, with nodes as processes and as a person types it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from dledger import Client
from dledger.config import format_peers
from dledger.testing import InProcessGroup
from dledger.types import NodeId
from tests.backup.conftest import SMALL
from tests.cli.commands import out, refusal, run
from tests.cli.node_processes import processes
from tests.recover.conftest import Disaster


@pytest.mark.cluster
def test_last_node_of_three_becomes_a_group_that_grows(tmp_path: Path) -> None:
    names = ["n0", "n1", "n2"]
    with processes(tmp_path, names) as nodes:
        for name in names:
            nodes.start(name, *names)
        peers = format_peers(nodes.addresses)
        with Client(nodes.addresses[NodeId("n2")]) as client:
            client.create_topic("orders")
            client.append("orders", ["one", "two"])
        assert "a node runs on this store" in refusal(f"recover {tmp_path / 'n2'} --yes")
        nodes.running["n2"].terminate()
        nodes.ended("n2")
        wanted = f"recover {tmp_path / 'n2'} --peers '{peers}' --yes"
        assert "this is not needed: n0, n1, n2 are a majority" in refusal(wanted)
        for name in ("n0", "n1"):
            nodes.running[name].kill()
            nodes.ended(name)
        made = json.loads(out(wanted + " --json"))
        assert made["made"]["ancestor"] == made["group_id"] != made["made"]["group_id"]
        assert {one["presence"] for one in made["answers"].values()} == {"ABSENT"}
        assert "there is nothing to recover, start it" in out(wanted)
        nodes.start("n2", *names)  # by the words that it had before
        group = f"-b {nodes.addresses[NodeId('n2')]}"
        assert out(f"tail orders --from 0 --to latest {group}") == "one\ntwo\n"
        out(f"members add n1 {nodes.addresses[NodeId('n1')]} {group}")
        (tmp_path / "n1").rename(tmp_path / "n1.old")
        nodes.start("n1", "n2", "n1", options="--join")
        assert out(f"members promote n1 {group}") == "n1 is a voter\n"


def test_report_comes_first_and_the_name_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with InProcessGroup(3, tmp_path, **SMALL) as group:
        disaster = Disaster(group)
    words = f"recover {disaster.directory} --peers '{format_peers(disaster.addresses)}'"
    committed = disaster.look().committed
    said = out(f"{words} --dry-run")
    assert f"known to be committed: entries up to {committed}\n" in said
    assert f"entries {committed + 1} to {committed + 1}, which are 1 of" in said
    assert "plain/1: 7 records" in said
    assert f"{disaster.others[0]} at {disaster.addresses[disaster.others[0]]} does not" in said
    assert "see the report with --dry-run, and say --yes" in run(words).stderr
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr("dledger.cli.node.recover.sys", SimpleNamespace(stdin=terminal))
    wrong = run(words, "tets\n")
    assert (wrong.exit_code, "'tets' is not 'test': nothing was changed" in wrong.stderr) == (
        2,
        True,
    )
    assert disaster.look().group_id == disaster.old_id
    assert "test is the group" in out(words, "test\n")
    assert disaster.look().is_alone


def test_node_of_a_path_group_is_copied_out_first(tmp_path: Path) -> None:
    (tmp_path / "n0").mkdir()
    (tmp_path / "group.json").write_text("{}")
    assert "cp -a" in refusal(f"recover {tmp_path / 'n0'}")
