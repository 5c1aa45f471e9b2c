"""``dledger up PATH --nodes N``: a path's group gets other nodes while programs use it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger import Client, EmbeddedGroup
from dledger.embedded import connect_path
from dledger.embedded.home import Home
from dledger.embedded.resizing import Resize
from dledger.embedded.start import stop_group
from dledger.errors import ConfigError, Unavailable
from tests.cli.commands import out, refusal
from tests.embedded import reads
from tests.embedded.changing import Cuts, Load, file_of, killed_at, roles, voters
from tests.embedded.conftest import SMALL

pytestmark = pytest.mark.cluster
Until = Callable[..., None]


def test_a_group_grows_and_shrinks_under_appends(log_path: Path) -> None:
    EmbeddedGroup(log_path, replicas=1, **SMALL)
    with Load(log_path) as appends:
        assert out(f"up {log_path} --nodes 3").count("127.0.0.1:") == 3
        assert roles(log_path) == voters(0, 1, 2)
        out(f"up {log_path} --nodes 5")
        assert roles(log_path) == voters(0, 1, 2, 3, 4)
        before = file_of(log_path).members
        out(f"up {log_path} --nodes 5")
        assert file_of(log_path).members == before, "what is so already"
        out(f"up {log_path} --nodes 3")
        assert roles(log_path) == voters(0, 1, 2)
    appends.check(log_path)
    assert sorted(path.name for path in log_path.glob("n*")) == ["n0", "n1", "n2"]


def test_a_grown_group_restarts_with_all_its_nodes(log_path: Path) -> None:
    EmbeddedGroup(log_path, replicas=1, **SMALL)
    with Load(log_path) as appends:
        Resize(log_path, 3).run()
    stop_group(Home(log_path), file_of(log_path))
    with EmbeddedGroup(log_path, replicas=3) as group:
        assert {info.pid is not None for info in group.nodes.values()} == {True}
        group.kill("n0")  # the founder: those that joined go on without it
        appends.check(log_path)
        with Client(log_path) as client:
            client.append("t", b"after")
    assert EmbeddedGroup(log_path, replicas=1).path, "as many as a program has asked for once"


def test_a_copy_of_a_grown_group_runs_beside_it(log_path: Path, tmp_path: Path) -> None:
    """Its nodes never speak to those of the original, whose addresses are in the log."""
    EmbeddedGroup(log_path, replicas=1, **SMALL)
    with Load(log_path) as appends:
        Resize(log_path, 3).run()
    stop_group(Home(log_path), file_of(log_path))
    copy = tmp_path / "copy"
    shutil.copytree(log_path, copy)
    with EmbeddedGroup(log_path) as original, EmbeddedGroup(copy) as other:
        with Client(copy) as client:
            for node in ("n0", "n1", "n2"):
                if node != other.leader:
                    other.kill(node)
                    break
            client.append("t", b"of the copy")
            told = {said.get("port") for said in client.status().values()}
        ports = {int(info.address.rpartition(":")[2]) for info in other.nodes.values()}
        assert told - {None} <= ports
        with Client(original.bootstrap_servers) as client:
            assert client.end_offsets("t") == {0: appends.acknowledged}


def test_a_change_that_ends_at_any_step_goes_on_with_the_next(log_path: Path) -> None:
    EmbeddedGroup(log_path, replicas=1, **SMALL)
    with Load(log_path) as appends:
        cuts = Cuts()
        cuts.run(Resize(log_path, 3, cuts.client).run)
        assert cuts.count == 8, "before and behind each: two added, two promoted"
        assert roles(log_path) == voters(0, 1, 2)
        cuts.run(Resize(log_path, 1, cuts.client).run)
        assert cuts.count == 12
        assert roles(log_path) == voters(0)
    appends.check(log_path)
    assert [path.name for path in log_path.glob("n*")] == ["n0"]


def test_a_killed_command_leaves_a_group_that_restarts(log_path: Path) -> None:
    EmbeddedGroup(log_path, replicas=1, **SMALL)
    with Load(log_path) as appends:
        killed_at(f"up {log_path} --nodes 3", "n1 at ")
    stop_group(Home(log_path), file_of(log_path))
    appends.check(log_path)  # starts it again
    with Load(log_path) as more:
        pass
    out(f"up {log_path} --nodes 3")
    killed_at(f"up {log_path} --nodes 1", "n2 is no member")
    stop_group(Home(log_path), file_of(log_path))
    connect_path(log_path)
    out(f"up {log_path} --nodes 1")
    assert roles(log_path) == voters(0)
    assert [path.name for path in log_path.glob("n*")] == ["n0"]
    with Client(log_path) as client:
        found = len(list(reads.values(client)))
    assert found == appends.acknowledged + more.acknowledged


def test_a_node_that_an_operator_removed_is_not_started_again(log_path: Path, until: Until) -> None:
    EmbeddedGroup(log_path, replicas=3, **SMALL)
    out(f"members remove n2 --yes -b {log_path}")
    home = Home(log_path)
    until(lambda: not home.node(file_of(log_path).local[-1]).running, "n2 to end by itself")
    connect_path(log_path)
    assert file_of(log_path).local == ("n0", "n1")
    assert (log_path / "n2").is_dir(), "its files are the operator's"
    out(f"up {log_path} --nodes 3")
    assert roles(log_path) == voters(0, 1, 3)


def test_what_cannot_be_is_refused(log_path: Path, tmp_path: Path) -> None:
    assert "use 1, 3, 5 or 7" in refusal(f"up {log_path} --nodes 2")
    assert not log_path.exists()
    EmbeddedGroup(log_path, replicas=1, **SMALL)
    with Home(log_path).changing(), pytest.raises(Unavailable, match="is changing the nodes"):
        Resize(log_path, 3).run()
    with pytest.raises(ConfigError, match=f"'dledger up {log_path} --nodes 3'"):
        EmbeddedGroup(log_path, replicas=3)
    assert file_of(log_path).members == ("n0",)


def test_up_makes_a_group_and_starts_it(log_path: Path) -> None:
    said = out(f"up {log_path} --nodes 1")
    assert said == f"{log_path}: n0 {file_of(log_path).bootstrap_servers}\n"
    stop_group(Home(log_path), file_of(log_path))
    assert out(f"up {log_path}") == said
