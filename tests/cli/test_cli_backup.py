"""``dledger backup`` and ``restore``, from a path group and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dledger import Client, EmbeddedGroup
from dledger.testing import InProcessGroup
from tests.cli.commands import SMALL, out, refusal, run


@pytest.mark.cluster
def test_path_group_is_backed_up_and_restored_as_another_one(tmp_path: Path) -> None:
    place = tmp_path / "backups"
    with EmbeddedGroup(tmp_path / "log", replicas=1, **SMALL) as group:
        with Client(group.bootstrap_servers) as client:
            client.create_topic("orders")
            client.append("orders", ["one", "two"])
            client.create_topic("clicks")
        made = json.loads(out(f"backup {place} -b {tmp_path / 'log'} --json"))
        again = out(f"backup {place} -b {tmp_path / 'log'} --keep 1 --bytes-per-s 1GiB")
    assert made["written_bytes"] > 0
    assert "1 older ones dropped" in again
    report = json.loads(out(f"restore {place} {tmp_path / 'new'} --json"))
    assert report["ancestor"] == made["group_id"] != report["group_id"] == report["group"]
    try:
        assert out(f"tail orders --from 0 --to latest -b {tmp_path / 'new'}") == "one\ntwo\n"
    finally:
        out(f"stop {tmp_path / 'new'} --force")
    some = json.loads(out(f"restore {place} {tmp_path / 'some'} --topics orders --json"))
    assert (some["left_out"], some["group_version"]) == (["clicks"], 1)
    assert "without topics clicks\n" in out(f"restore {place} {tmp_path / 'b'} --topics orders")


def test_commands_of_backups(tmp_path: Path) -> None:
    place = tmp_path / "backups"
    with InProcessGroup(1) as group:
        group.client().create_topic("orders")
        made = json.loads(out(f"backup {place} -b {group.bootstrap_servers} --json"))
        assert "there is no node 'n9'" in refusal(
            f"backup create {place} -b {group.bootstrap_servers} --node n9"
        )
    (row,) = json.loads(out(f"backup list {place} --json"))["backups"]
    assert (row["name"], row["index"], row["first"]) == (made["name"], made["index"], 0)
    assert made["name"] in "".join(out(f"backup list {place}").split())
    assert out(f"backup verify {place}").startswith("1 backups are whole: ")
    peers = "--peers 'n0-a:7001;n1-b:7001;n2-c:7001'"
    nodes = " ".join(str(tmp_path / f"n{number}") for number in range(3))
    said = out(f"restore {place} {nodes} {peers} --until-index 0 --backup {made['name'][:20]}")
    assert f"--self-id n2 {peers} --group test --dir {tmp_path / 'n2'}" in said
    assert "--set segment_bytes=67108864" in said
    for number in range(3):  # the second one has the group's version
        assert json.loads(out(f"verify {tmp_path / f'n{number}'}"))["entries"] == 2
    assert "has something in it" in refusal(f"restore {place} {nodes} {peers}")
    chunk = next(one for one in (place / "chunks").rglob("*") if one.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
    damaged = run(f"backup verify {place} --json")
    assert damaged.exit_code == 1
    assert json.loads(damaged.stdout)["problems"][0]["file"].endswith(chunk.name)
    assert "is damaged" in refusal(f"restore {place} {tmp_path / 'other'}")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("a b", "a path group is one DIRECTORY"),
        ("a --peers n0-a:1;n1-b:1", "names 2 nodes"),
        ("a a --peers n0-a:1;n1-b:1", "of its own for each"),
        ("a --peers n0-a:1 --nodes 3", "--nodes is for a path group"),
        ("a --group x", "a path group is one DIRECTORY"),
        ("a", "there is no backup at"),
        ("a --backup x", "has no backups whose name begins with 'x'"),
        ("a --topics ,", "--topics: name at least one"),
        ("a --until-index 1 --until-time -1h", "give one of"),
    ],
)
def test_wrong_words_of_restore_are_refused(tmp_path: Path, words: str, says: str) -> None:
    assert says in refusal(f"restore {tmp_path} {words}")


@pytest.mark.parametrize(
    ("words", "says"),
    [("--until-offset a/b=c", "write TOPIC/PARTITION=OFFSET"), ("--until-time 7", "with its zone")],
)
def test_wrong_place_to_end_is_refused(tmp_path: Path, words: str, says: str) -> None:
    with InProcessGroup(1) as group:
        out(f"backup {tmp_path} -b {group.bootstrap_servers}")
    assert says in refusal(f"restore {tmp_path} {tmp_path / 'new'} {words}")
