"""A restore of some topics, and the version of the group that is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.backup.cut import RestorePlan
from dledger.backup.restoring import RestoreJob
from dledger.client import Client
from dledger.errors import ConfigError, TopicNotFound, UnsupportedVersion
from dledger.storage.offline.inspect import inspect_store
from dledger.types import NodeId
from tests.backup.conftest import at, back_up, fill, restore, restored, state


def test_wanted_topics_are_there_and_the_others_are_not(
    filled: Client, place: Path, tmp_path: Path
) -> None:
    """With their records, offsets, positions and exactly-once state."""
    filled.commit_offsets("readers", {"typed": {0: 1}}, reset=True)
    back_up(filled, place)
    before, old = state(filled), filled.lineage().group_id
    report = restore(place, tmp_path / "new", None, 3, "plain")
    assert report.left_out == ("typed",)
    with restored(tmp_path / "new") as new:
        client = new.client()
        now = state(client)
        assert [info.name for info in now["topics"]] == ["plain"]
        for kept in ("plain", ("plain", "rows")):
            assert now[kept] == before[kept]
        assert now["groups"] == {"readers": {"plain": before["groups"]["readers"]["plain"]}}
        with pytest.raises(TopicNotFound):
            client.append("typed", [{"id": 1, "name": "x"}])
        assert client.commit_transaction("writer", 0, ()).repeated
        assert client.shared_offsets(old, ["plain"]).offsets["plain"] == before["plain"][0]
        assert client.lineage().ancestors == ((old, report.index),)
        fill(client, 1)
        assert client.end_offsets("typed") == {0: 1}


def test_topic_that_the_backup_has_not_is_an_error(
    filled: Client, place: Path, tmp_path: Path
) -> None:
    back_up(filled, place)
    with pytest.raises(ConfigError, match=r"has no topic 'plian' there.*plain"):
        restore(place, tmp_path / "new", None, 1, "typed", "plian")
    assert list(tmp_path.glob("new/*")) == []


def test_topics_of_the_place_where_the_log_is_cut_count(
    filled: Client, place: Path, tmp_path: Path
) -> None:
    """They are told from the catalog before that place and the entries behind it."""
    back_up(filled, place)
    filled.create_topic("later")
    filled.append("later", [b"x"])
    filled.delete_topic("typed")
    back_up(filled, place)
    repository = at(place)
    first, second = repository.manifests()[0]

    def job(*topics: str) -> RestoreJob:
        plan = RestorePlan(second, first, second.index)
        return RestoreJob(repository.target, plan, topics=topics)

    with pytest.raises(ConfigError, match="no topic 'typed'"):
        job("typed").to_directories("test", {NodeId("n0"): tmp_path / "wrong"})
    assert not (tmp_path / "wrong").exists()
    made = job("plain").to_directories("test", {NodeId("n0"): tmp_path / "new" / "n0"})
    assert made.left_out == ("later",)
    with restored(tmp_path / "new", 1) as new:
        assert [info.name for info in new.client().topics()] == ["plain"]


@pytest.mark.parametrize("last", [None, 0])
def test_restored_group_has_the_version_of_its_backup(
    filled: Client, place: Path, tmp_path: Path, last: int | None
) -> None:
    """Also where its log ends before the entry that has raised it; and a release that knows no
    such version opens none of its directories."""
    active = next(iter(filled.status().values()))["group_version"]["active"]
    assert active > 0
    back_up(filled, place)
    assert restore(place, tmp_path / "new", last, nodes=1).version == active
    record = inspect_store(tmp_path / "new" / "n0").state
    assert record is not None
    assert (record.group_version, record.release) == (active, "0.2.0")
    with restored(tmp_path / "new", 1) as new:
        status = next(iter(new.client().status().values()))
        assert status["group_version"]["active"] == active


@pytest.mark.parametrize("last", [None, 0])
def test_backup_of_a_newer_version_is_refused(
    filled: Client,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    last: int | None,
) -> None:
    back_up(filled, place)
    monkeypatch.setattr("dledger.protocol.messages.group_version.GROUP_VERSION", 0)
    with pytest.raises(UnsupportedVersion, match=r"install dledger 0\.2\.0 or newer"):
        restore(place, tmp_path / "new", last, nodes=1)
    assert list(tmp_path.glob("new/*")) == []
