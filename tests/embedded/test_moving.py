"""``dledger move``: a path's group goes to nodes of ``dledger serve`` while programs use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger import Client, EmbeddedGroup
from dledger.embedded import connect_path
from dledger.embedded.home import Home
from dledger.embedded.moving import Move
from dledger.embedded.start import stop_group
from dledger.errors import ConfigError, PathError
from tests.cli.commands import out, refusal
from tests.embedded.changing import (
    Cuts,
    Load,
    Targets,
    file_of,
    killed_at,
    roles,
    targets,
    voters,
)
from tests.embedded.conftest import SMALL

pytestmark = pytest.mark.cluster


def test_a_group_moves_on_and_on_under_appends(log_path: Path, tmp_path: Path) -> None:
    EmbeddedGroup(log_path, replicas=3, **SMALL)
    with (
        targets(log_path, tmp_path, "n3", "n4", "n5") as first,
        targets(log_path, tmp_path, "n0", "n1", "n2") as second,
        Client(log_path) as idle,
        Load(log_path) as appends,
    ):
        group_id = idle.lineage().group_id
        first.start()
        said = out(f"move {log_path} --to '{first.servers}'")
        assert said.startswith(f"{log_path}: the group is at {first.addresses['n3']},")
        assert roles(log_path) == voters(3, 4, 5)
        assert idle.end_offsets("t")[0] > 0, "a client that knows none of the new addresses"
        assert list(log_path.glob("n*")) == []
        second.start()
        out(f"move {log_path} --to '{second.servers}'")
        assert roles(log_path) == voters(0, 1, 2)
        assert [first.ended(name) for name in ("n3", "n4", "n5")] == [2, 2, 2], "removed"
        assert out(f"move {log_path} --to '{second.servers}'"), "what is so already"
        assert connect_path(log_path) == ",".join(second.addresses.values())
        assert idle.end_offsets("t")[0] > 0
        appends.stop()
        appends.check(log_path)
        with Client(log_path) as client:
            assert client.lineage().group_id == group_id
        assert "the group has moved to" in refusal(f"stop {log_path}")
        assert "run elsewhere, at" in refusal(f"up {log_path} --nodes 5")
        with pytest.raises(ConfigError, match=r"has moved to .*: leave it out"):
            connect_path(log_path, flush="async")


def test_a_move_that_ends_at_any_step_goes_on_with_the_next(log_path: Path, tmp_path: Path) -> None:
    EmbeddedGroup(log_path, replicas=1, **SMALL)
    with targets(log_path, tmp_path, "n1") as there:
        there.start()
        cuts = Cuts()
        with Load(log_path) as appends:
            cuts.run(Move(log_path, there.addresses, cuts.client).run)
        assert cuts.count == 6, "before and behind each: one added, one promoted, one removed"
        assert roles(log_path) == voters(1)
        appends.check(log_path)


@pytest.mark.parametrize("line", ["n2 is a voter", "n0 is no member"])
def test_a_killed_move_leaves_a_group_that_restarts_and_goes_on(
    log_path: Path, tmp_path: Path, line: str
) -> None:
    EmbeddedGroup(log_path, replicas=1, **SMALL)
    with targets(log_path, tmp_path, "n1", "n2", "n3") as there:
        there.start()
        with Load(log_path) as appends:
            killed_at(f"move {log_path} --to '{there.servers}'", line)
        stop_group(Home(log_path), file_of(log_path))
        appends.check(log_path)
        out(f"move {log_path} --to '{there.servers}'")
        assert roles(log_path) == voters(1, 2, 3)
        assert list(log_path.glob("n*")) == []
        appends.check(log_path)


def move_refused(there: Targets, servers: str = "") -> str:
    """What the command says; nothing has changed."""
    before = file_of(there.path).members
    said = refusal(f"move {there.path} --to '{servers or there.servers}' --timeout 5")
    assert file_of(there.path).members == before
    assert set(roles(there.path)) == set(before)
    return said


def test_targets_that_cannot_be_are_refused(log_path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with EmbeddedGroup(other, replicas=1, **SMALL) as foreign:
        EmbeddedGroup(log_path, replicas=1, **SMALL)
        with targets(log_path, tmp_path, "n1", "n2", "n3") as there:
            said = move_refused(there)
            assert "n1 at 127.0.0.1:" in said
            assert "Nothing was changed. 'dledger move " in said
            there.start("n1")
            where = there.addresses["n1"]
            said = move_refused(there)
            assert "n1 at" not in said, "one that is well is not named"
            assert f"the node at {where} is n1, not n7" in move_refused(there, f"n7-{where}")
            assert "n0 is a node of the group already" in move_refused(there, f"n0-{where}")
            said = move_refused(there, f"n9-{foreign.bootstrap_servers}")
            assert "belongs to group" in said
            assert "--advertise-host" in move_refused(there, "n1-some.host:7001")
    with pytest.raises(PathError, match="there is no group"):
        Move(tmp_path / "nothing", {}).run()


def test_a_target_that_founds_a_group_or_is_full_is_refused(log_path: Path, tmp_path: Path) -> None:
    EmbeddedGroup(log_path, replicas=1, **SMALL)
    with targets(log_path, tmp_path, "n1") as there:
        there.start(options="")
        assert "start it with --join on an empty directory" in move_refused(there)
    with targets(log_path, tmp_path, "n1") as there:
        there.start(options=f"--join --set disk_reserve_bytes={1 << 60}")
        assert "the disk of n1" in move_refused(there)
