"""Backups of a running group, and the groups that are restored from them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dledger.backup import copying
from dledger.backup.copying import ReadRate
from dledger.backup.cut import RestorePlan, before_offset, before_time
from dledger.backup.reading import BackupReader
from dledger.backup.restoring import RestoreJob
from dledger.backup.view import open_node
from dledger.client import Client
from dledger.errors import ConfigError, OffsetOutOfRange, WrongGroup
from dledger.testing import InProcessGroup
from dledger.types import NodeId
from tests.backup.conftest import SMALL, at, back_up, fill, restore, restored, state, until


def test_restored_group_is_the_group_at_the_index(
    filled: Client, group: InProcessGroup, place: Path, tmp_path: Path
) -> None:
    before = state(filled)
    report = back_up(filled, place)
    assert report.node != group.leader
    fill(filled, 1)
    made = restore(place, tmp_path / "new")
    with restored(tmp_path / "new") as new:
        client = new.client()
        assert state(client) == before
        lineage, old = client.lineage(), filled.lineage()
        assert lineage.group_id == made.group_id != old.group_id
        assert lineage.ancestors == ((old.group_id, report.manifest.index),)
        assert client.commit_transaction("writer", 0, ()).repeated
        fill(client, 1)
        assert state(client)["plain", "rows"]["value"] == state(filled)["plain", "rows"]["value"]
        new.kill(new.leader)
        fill(client, 2)


@pytest.mark.usefixtures("small_chunks")
def test_next_backup_copies_what_is_new(
    filled: Client, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries and rows are copied once; the catalog each time."""
    states, reports = [], []
    for turn in range(3):
        fill(filled, turn)
        filled.append("plain", [bytes(20_000)], partition=0)
        states.append(state(filled))
        reports.append(back_up(filled, place))
    for one, before in zip(reports[1:], reports, strict=False):
        new = one.manifest.log[-1].end_pos - before.manifest.log[-1].end_pos
        assert new < one.read < 1.1 * new + 2 * sum(c.size for c in one.manifest.front)
        assert set(before.manifest.log) < set(one.manifest.log)
        assert set(before.manifest.rows) < set(one.manifest.rows)
    again = back_up(filled, place)
    assert again.manifest.log == reports[-1].manifest.log
    for number, (one, seen) in enumerate(zip(reports, states, strict=True)):
        restore(place, tmp_path / f"{number}", one.manifest.index, nodes=1)
        with restored(tmp_path / f"{number}", 1) as group:
            assert state(group.client()) == seen
    monkeypatch.setattr(copying, "MOST_SMALL", 0)
    merged = back_up(filled, place).manifest
    assert len(merged.rows) <= len(again.manifest.rows)
    restore(place, tmp_path / "merged", nodes=1)
    with restored(tmp_path / "merged", 1) as group:
        assert state(group.client()) == states[-1]


@pytest.mark.usefixtures("small_chunks")
def test_log_is_cut_at_an_index_offset_or_time(filled: Client, place: Path, tmp_path: Path) -> None:
    times = [(1 << 60) + 1_000_000 * n for n in range(10)]  # later than those of `fill`
    filled.create_topic("timed", if_absent=True)
    for time in times:
        filled.append("timed", [b"x", b"y"], timestamps=[time, time + 1])
    repository = at(place)
    reader = BackupReader(repository.target, back_up(filled, place).manifest)
    assert before_offset(reader, "timed", 0, 7) == before_time(reader, times[3])
    last = before_time(reader, times[4] + 1)
    assert last == before_offset(reader, "timed", 0, 10)
    assert before_time(reader, 1 << 61) == reader.manifest.index
    restore(place, tmp_path / "new", last, nodes=1)
    with restored(tmp_path / "new", 1) as new:
        client = new.client()
        assert client.end_offsets("timed") == {0: 10}
        assert client.group("readers").offsets == filled.group("readers").offsets
    for wrong, says in (
        (("timde", 0, 1), "no topic 'timde'. Did you mean 'timed'|no topic 'timde'.*timed"),
        (("timed", 3, 1), "partitions 0 to 0"),
        (("plain", 1, -1), "no record with offset -1"),
    ):
        with pytest.raises(ConfigError, match=says):
            before_offset(reader, *wrong)
    for last, says in ((-1, "nothing of backup"), (10_000, "entry 10000 is not in it")):
        with pytest.raises(ConfigError, match=says):
            restore(place, tmp_path / "other", last)


@pytest.mark.usefixtures("small_chunks")
def test_backups_of_a_log_without_its_beginning(place: Path, tmp_path: Path) -> None:
    """Retention has taken the first files: a restore begins with the catalog of a backup."""
    more = {"checkpoint_bytes": 1 << 16, "retention_bytes": 1 << 20, "delete_when": ""}
    with InProcessGroup(1, **{**SMALL, **more}) as group:
        client = group.client()
        client.create_topic("plain")
        first = back_up(client, place).manifest
        states, manifests = [], []
        node = next(iter(group._servers.values()))

        async def retain() -> None:
            await node.parts.retention.retain()

        for _ in range(5):
            for number in range(30):
                client.append("plain", [b"%d" % number + bytes(20_000)])
            for _ in range(20):
                group._run(retain())
            states.append(state(client))
            manifests.append(back_up(client, place).manifest)
    assert manifests[-1].begin.position.index > first.index
    with pytest.raises(ConfigError, match=r"oldest state .* is as of entry \d+"):
        restore(place, tmp_path / "early", manifests[0].index - 1, nodes=1)
    assert not (tmp_path / "early").exists()
    for number in (3, 4):
        restore(place, tmp_path / f"{number}", manifests[number].index, nodes=1)
        with restored(tmp_path / f"{number}", 1) as group:
            assert state(group.client())["plain", "rows"] == states[number]["plain", "rows"]


def test_view_holds_back_retention_until_its_connection_ends(
    filled: Client, group: InProcessGroup
) -> None:
    with open_node(filled, "n1") as view:
        server = group._servers["n1"]  # type: ignore[index]
        assert server.parts.backups.floor == view.about.begin_index == 0
        with open_node(group.client(), "n1") as other:
            other.about.__class__.__setattr__(other.about, "view", view.about.view)
            with pytest.raises(OffsetOutOfRange):
                other.image(0, 4)

    until(lambda: server.parts.backups.floor is None)


def test_backup_goes_on_at_another_node_when_its_node_ends(
    filled: Client, group: InProcessGroup, place: Path, tmp_path: Path, small_chunks: None
) -> None:
    killed: list[str] = []

    def kill(done: int, total: int) -> None:
        if not killed:
            killed.extend(
                str(node) for node, one in group._servers.items() if one.parts.backups._views
            )
            group.kill(killed[0])

    client = group.client(request_timeout_ms=1500)
    report = back_up(client, place, on_bytes=kill)
    assert report.node not in killed
    assert killed
    restore(place, tmp_path / "new")
    with restored(tmp_path / "new") as new:
        assert state(new.client()) == state(filled)


def test_member_that_was_admitted_is_none_of_the_restored_group(
    tmp_path: Path, place: Path
) -> None:
    """The incarnations that count are the new ones, and the next admission counts."""
    with InProcessGroup(3, tmp_path / "old", **SMALL) as group:
        client = group.client()
        fill(client)
        first = back_up(client, place).manifest.index
        name = next(str(node) for node in group.nodes if node != group.leader)
        group.kill(name)
        shutil.rmtree(tmp_path / "old" / name)
        group.restart(name)
        client.admit(name)
        fill(client, 1)
        before = state(client)
        last = back_up(client, place).manifest.index
    # from the catalog of the first backup, so that the admission comes behind it
    repository = at(place)
    old, log = repository.manifests()[0]
    nodes = {NodeId(f"n{n}"): tmp_path / "whole" / f"n{n}" for n in range(3)}
    assert old.index == first
    RestoreJob(repository.target, RestorePlan(log, old, last)).to_directories("test", nodes)
    with restored(tmp_path / "whole") as new:
        client = new.client()
        assert state(client) == before
        name = next(str(node) for node in new.nodes if node != new.leader)
        new.kill(name)
        shutil.rmtree(tmp_path / "whole" / name)
        new.restart(name)
        client.admit(name)
        fill(client, 2)


def test_list_of_members_of_the_old_group_is_none_of_the_restored_one(
    tmp_path: Path, place: Path
) -> None:
    """Also where it is in the catalog that a wiped member takes over."""
    with InProcessGroup(3, tmp_path / "old", **SMALL) as group:
        client = group.client()
        fill(client)
        client.upgrade_group()
        client.add_member("n7", "127.0.0.1:7")
        back_up(client, place)
    restore(place, tmp_path / "new")
    with restored(tmp_path / "new") as new:
        client = new.client()
        fill(client, 1)
        name = next(str(node) for node in new.nodes if node != new.leader)
        new.kill(name)
        shutil.rmtree(tmp_path / "new" / name)
        new.restart(name)
        client.admit(name)
        fill(client, 2)
        for node, of_node in client.status().items():
            assert sorted(of_node["member_roles"]) == ["n0", "n1", "n2"], node
        client.add_member("n8", "127.0.0.1:8")


def test_copy_tells_how_far_it_shares_records_with_its_ancestor(
    filled: Client, place: Path, tmp_path: Path
) -> None:
    """Also of a transaction that was open at the backup, and committed here and there."""
    with filled.transaction("open", 0) as transaction:
        transaction.append("plain", [b"later"], partition=1)
        back_up(filled, place)
        shared = filled.end_offsets("plain")
    restore(place, tmp_path / "new")
    old = filled.lineage().group_id
    with restored(tmp_path / "new") as new:
        client = new.client()
        fill(client, 1)
        client.create_topic("new")
        found = client.shared_offsets(old, ["plain", "new", "nosuch"])
        assert found.offsets == {"plain": shared, "new": {0: 0}}
        assert found.log_ids["plain"] == filled.topic("plain").log_id
        assert client.end_offsets("plain")[0] > shared[0]
        assert client.shared_offsets("", ["plain"]).offsets["plain"] == client.end_offsets("plain")
        with pytest.raises(WrongGroup, match="is no copy of the group 77"):
            client.shared_offsets("77", ["plain"])
        with pytest.raises(WrongGroup, match="made from a backup of the group"):
            Client(new.bootstrap_servers, group_id=old).topics()


def test_pace_keeps_to_a_rate() -> None:
    now = [0.0]
    pace = ReadRate(100, lambda: now[0], lambda s: now.__setitem__(0, now[0] + s))
    for _ in range(10):
        now[0] += 0.1  # what else takes time is no reason to be slower
        pace.spend(50)
    assert now[0] == pytest.approx(5.0)


def test_backup_of_other_group_or_log_is_refused(lone: Client, filled: Client, place: Path) -> None:
    back_up(lone, place)
    with pytest.raises(ConfigError, match="a place of its own for each group"):
        back_up(filled, place)
    with pytest.raises(ConfigError, match="there is no node 'n7'"):
        back_up(filled, place / "b", node="n7")
    assert back_up(filled, place / "b", node="n2").node == "n2"
