"""The commands against a real group: what they print, and that scripts can read it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from dledger import Client, EmbeddedGroup
from dledger.cli.group.status import _print_status
from dledger.records.columns.types import Array, Atom, Columns, Field
from tests.cli.commands import SMALL, flip, out, program, refusal, run

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("named_group")]


def test_topic_is_created_listed_and_deleted() -> None:
    out("topics create orders --partitions 2")
    assert "orders" in refusal("topics create orders")
    out("topics create orders --partitions 2 --if-absent")
    listed = json.loads(out("topics list --json"))
    ends = [(row["topic"], row["partition"], row["end_offset"]) for row in listed]
    assert ends == [("orders", 0, 0), ("orders", 1, 0)]
    assert "orders" in out("topics list")
    assert json.loads(out("topics alter orders --partitions 3 --json"))["partitions"] == 3
    assert "records stay in their partition" in refusal("topics alter orders --partitions 1")
    out("topics delete orders --yes")
    assert json.loads(out("topics list --json")) == []


def test_topics_show_their_type_and_a_typed_one_its_columns_of_any_version(
    group: EmbeddedGroup,
) -> None:
    first = (Field("id", Atom("long"), nullable=False), Field("at", Atom("timestamp")))
    with Client(group.bootstrap_servers) as client:
        client.create_topic("plain")
        client.append("plain", [b"a", b"b"], timestamps=[5, 1_700_000_000_000_001])
        info = client.create_topic("clicks", 2, type="typed", description="who went [where]")
        client.create_topic("empty", type="typed")
        client.evolve_schema(info, 0, Columns(first, key="id", time="at"))
        more = Columns((*first, Field("[path]", Array(Atom("string")))), key="id", time="at")
        client.evolve_schema(info, 1, more)
    listed = json.loads(out("topics list --json"))
    names = ("topic", "type", "schema_version", "partition")
    assert [tuple(row[name] for name in names) for row in listed] == [
        ("clicks", "typed", 2, 0),
        ("clicks", "typed", 2, 1),
        ("empty", "typed", 0, 0),
        ("plain", "raw", None, 0),
    ]
    lines = [line.split() for line in out("topics list").splitlines()]
    assert ["clicks", "typed", "v2", "0", "0", "0", "0"] in lines
    assert ["plain", "raw", "-", "0", "0", "2", "2"] in lines
    told = json.loads(out("topics show clicks --json"))
    assert (told["type"], told["records"], len(told["partitions"])) == ("typed", 0, 2)
    assert told["settings"]["description"] == "who went [where]"
    assert told["schema"]["columns"] == [
        {"name": "id", "type": "bigint", "nullable": False},
        {"name": "at", "type": "timestamp", "nullable": True},
        {"name": "[path]", "type": "array<string>", "nullable": True},
    ]
    assert [told["schema"][name] for name in ("version", "key", "time")] == [2, "id", "at"]
    assert told["schema"]["spark"]["fields"][2]["type"]["elementType"] == "string"
    text = out("topics show clicks --schema-version 1")
    assert all(word in text for word in ("who went [where]", "v1 of v2", "event time", "bigint"))
    assert "path" not in text
    assert "[path]" in out("topics show clicks")
    plain = json.loads(out("topics show plain --json"))
    assert (plain["type"], plain["schema"], plain["records"]) == ("raw", None, 2)
    assert plain["partitions"][0]["newest"] == "2023-11-14T22:13:20.000001+00:00"
    assert plain["bytes"] == plain["partitions"][0]["bytes"] > 0
    assert "the first frame" in out("topics show empty")
    assert "has the versions 1 to 2" in run("topics show clicks --schema-version 3").stderr
    assert "is raw" in run("topics show plain --schema-version 1").stderr
    assert run("topics show nowhere").exit_code == 2
    for name in ("plain", "clicks", "empty"):
        out(f"topics delete {name} --yes")


def test_lines_are_appended_and_read_back() -> None:
    out("topics create lines")
    done = json.loads(out("append lines --json", b"one\ntwo\nthree"))
    assert (done["records"], done["offsets"]) == (3, {"0": [[0, 3]]})
    assert "offsets 3..3" in out("append lines --value four")
    assert out("tail lines") == "one\ntwo\nthree\nfour\n"
    assert out("tail lines --from -1") == "four\n"
    assert out("tail lines --from 1 --limit 2") == "two\nthree\n"
    assert out("tail lines --from latest") == ""


def test_keys_go_in_and_out() -> None:
    out("topics create keyed --partitions 3")
    out("append keyed --key-separator :", b"a:1\nb:2\na:3\nc:4\n")
    lines = out("tail keyed --key-separator =").splitlines()
    assert sorted(lines) == ["a=1", "a=3", "b=2", "c=4"]
    assert lines.index("a=1") < lines.index("a=3")
    records = [json.loads(line) for line in out("tail keyed --json").splitlines()]
    assert {record["key"]: record["partition"] for record in records}.keys() == {"a", "b", "c"}
    fields = {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}
    assert all(set(record) == fields for record in records)


def test_append_to_a_directory_makes_the_topic_and_to_addresses_does_not(
    group: EmbeddedGroup,
) -> None:
    assert "new" in refusal("append new --value x")
    out(f"append new --value x -b {group.path}")
    assert out(f"tail new -b {group.path}") == "x\n"


def test_tail_follows_until_it_has_seen_enough(group: EmbeddedGroup) -> None:
    for topic, partitions in (("live", 1), ("wide", 2)):
        out(f"topics create {topic} --partitions {partitions}")
        command = program(f"tail {topic} -f --from earliest --limit 2")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
            with Client(group.bootstrap_servers) as client:
                client.append(topic, b"one", partition=0)
                assert following.stdout is not None
                assert following.stdout.readline() == "one\n"
                client.append(topic, b"two", partition=partitions - 1)
            assert following.stdout.read() == "two\n"
            assert following.wait(30) == 0


def test_tail_of_what_is_not_there_says_what_is() -> None:
    refusal("tail nowhere")
    out("topics create short")
    assert "partitions 0..0" in refusal("tail short --from 7 -f --partition 3")
    assert "--from 7: topic 'short' is empty" in refusal("tail short --from 7")


@pytest.mark.parametrize(
    "command",
    [
        "tail",
        "topics show",
        "topics alter --partitions 9",
        "topics delete --yes",
        "append --no-create --value x",
    ],
)
def test_unknown_topic_is_an_error_that_suggests_the_nearest_name(command: str) -> None:
    out("topics create invoices --if-absent")
    said = "there is no topic 'invoice' (did you mean 'invoices'?); there are: "
    assert said in refusal(f"{command} invoice")


def test_status_tells_of_every_node(group: EmbeddedGroup) -> None:
    states = json.loads(out(f"status --json -b {group.path}"))
    assert sorted(states) == ["n0", "n1", "n2"]
    assert [state["role"] for state in states.values()].count("LEADER") == 1
    assert all(state["pid"] for state in states.values())
    table = out(f"status -b {group.bootstrap_servers}")
    assert all(word in table for word in ("n0", "n1", "n2", "LEADER", "FOLLOWER", "committed"))


def test_status_of_a_stopped_group_starts_nothing(stopped_node: Path) -> None:
    result = run(f"status -b {stopped_node.parent}")
    assert result.exit_code == 1
    assert "does not run" in result.stdout


def test_consumer_groups_show_how_far_they_are_behind(group: EmbeddedGroup) -> None:
    with Client(group.bootstrap_servers) as client:
        client.create_topic("read")
        client.append("read", [b"a", b"b", b"c"])
        client.commit_offsets("readers", {"read": {0: 1}})
    (one,) = json.loads(out("groups --json"))
    assert (one["group"], one["partitions"], one["lag"], one["holds"]) == ("readers", 1, 2, False)
    (row,) = json.loads(out("groups readers --json"))
    names = ("topic", "partition", "offset", "end_offset", "lag")
    assert [row[name] for name in names] == ["read", 0, 1, 3, 2]
    assert row["lag_bytes"] > 0
    assert row["lag_s"] > 0
    assert "readers" in out("groups")
    assert "yes" in out("groups readers --hold")
    assert "yes" not in out("groups readers --release")
    for option in ("", "--json", "--release", "--hold", "--delete"):
        said = "there is no group 'reader' (did you mean 'readers'?); there are: readers"
        assert said in refusal(f"groups reader {option}"), option
    assert "which group" in refusal("groups --release")
    assert out("groups readers --delete") == "group readers is deleted\n"
    assert json.loads(out("groups --json")) == []


def test_consumer_group_shows_its_members_and_what_each_reads(group: EmbeddedGroup) -> None:
    with Client(group.bootstrap_servers) as client:
        client.create_topic("shared", 2)
        client.append("shared", [b"a", b"b", b"c"], partition=1)
        with client.consumer("workers", ["shared"], instance_id="one") as consumer:
            consumer.poll(20)
            consumer.commit()
            (one,) = json.loads(out("groups --json"))
            assert (one["group"], one["members"], one["epoch"]) == ("workers", 1, 1)
            rows = json.loads(out("groups workers --json"))
            assert [(row["partition"], row["offset"], row["member"]) for row in rows] == [
                (0, None, "one"),
                (1, 3, "one"),
            ]
            assert {row["member_id"] for row in rows} == {consumer.member_id}
            table = out("groups workers")
            assert "epoch 1, 1 members:" in table
            assert all(word in table for word in ("one", "reads", "lag"))
            (state,) = client.members("workers")
            assert (state.state, state.partitions) == ("reads", {"shared": [0, 1]})
        (state,) = client.members("workers")
        assert (state.state, state.partitions) == ("away", {})


def test_leadership_is_handed_to_the_node_that_is_named(group: EmbeddedGroup) -> None:
    follower = next(node for node in group.nodes if node != group.leader)
    assert out(f"transfer {follower}") == f"{follower} leads\n"
    assert group.leader == follower
    assert "n9" in refusal("transfer n9")


def test_admit_readmits_embedded_node_whose_directory_was_lost(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    with EmbeddedGroup(path, replicas=3, **SMALL) as group:
        with Client(group.bootstrap_servers) as client:
            client.create_topic("t")
            client.append("t", [b"a"])
        lost = next(node for node in ("n0", "n1", "n2") if node != group.leader)
        group.kill(lost)
        shutil.rmtree(path / lost)
        group.restart(lost)
        told = ""
        while "(not admitted)" not in told:  # before it is told of its group it is of none
            result = run(f"status -b {path}")
            assert result.exit_code == 1
            told = result.stdout
        assert "dledger admit " + lost in (path / lost / "node.log").read_text()
        assert out(f"admit {lost} -b {path}") == f"{lost} is admitted\n"
        # it may have to learn of its admission yet, which the exit code tells
        states = json.loads(run(f"status --json -b {path}").stdout)
        assert states[group.leader]["admission"]["not_admitted"] == []
        assert "not a member" in refusal(f"admit n9 -b {path}")


def test_bench_measures_and_leaves_nothing_behind(group: EmbeddedGroup) -> None:
    options = "--sizes 1000 --in-flight 1,8 --seconds 0.1 --repeat 1"
    rows = json.loads(out(f"bench {options} --json -b {group.path}"))
    assert [(row["bytes"], row["in_flight"]) for row in rows] == [(1000, 1), (1000, 8)]
    assert all(
        row["appends_per_s"] > 0 and row["p50_ms"] <= row["p99_ms"] <= row["max_ms"] for row in rows
    )
    with Client(group.bootstrap_servers) as client:
        assert not [info for info in client.topics() if info.name.startswith("bench-")]


def test_verify_finds_a_store_sound_until_a_byte_of_it_is_flipped(stopped_node: Path) -> None:
    report = json.loads(out(f"verify {stopped_node}"))
    assert report["ok"]
    assert report["entries"] >= 4
    entries = [json.loads(line) for line in out(f"dump {stopped_node}").splitlines()]
    data = [entry for entry in entries if entry["kind"] == "data"]
    assert len(data) == 3
    damaged = data[1]
    segment = stopped_node / "data" / f"{0:020d}"
    flip(segment, damaged["pos"] + damaged["size"] - 1)
    result = run(f"verify {stopped_node}")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert not report["ok"]
    assert damaged["index"] in [problem["index"] for problem in report["problems"]]
    again = [json.loads(line) for line in out(f"dump {stopped_node}").splitlines()]
    assert again[damaged["index"]]["kind"] == "damaged"


def test_verify_of_a_running_node_is_refused(group: EmbeddedGroup) -> None:
    refusal(f"verify {group.path}/n0")


def test_status_names_a_node_whose_clock_is_off(capsys: pytest.CaptureFixture[str]) -> None:
    right = {"role": "LEADER", "members": ["n0", "n1"], "clock": {"off": ""}}
    wrong = {"role": "FOLLOWER", "clock": {"off": "600 s ahead of the leader's"}}
    _print_status({"n0": right, "n1": wrong}, {}, {}, as_json=False)
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == "n1: its wall clock is 600 s ahead of the leader's"
