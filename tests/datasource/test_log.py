"""How options become a group that answers."""

from __future__ import annotations

import pickle
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dledger.config import Credentials
from dledger.datasource.options.options import parse_options
from dledger.datasource.table.column_text import columns
from dledger.datasource.table.log import Address, Log, find_group
from dledger.datasource.write.sink import Sink
from dledger.embedded.groupfile import GroupFile
from dledger.embedded.home import Home
from dledger.errors import ConfigError, PathError, Unavailable, WrongGroup
from dledger.types import NodeId
from tests.datasource.hops import hop


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Records how groups of paths are asked for; they are then at 127.0.0.1:7."""
    calls: list[dict[str, Any]] = []

    def connect(path: str, replicas: int | None, **more: Any) -> str:
        calls.append({"path": path, "replicas": replicas, **more})
        return "127.0.0.1:7"

    monkeypatch.setattr("dledger.embedded.group.connect_path", connect)
    return calls


def test_a_read_of_a_path_finds_a_group_and_a_write_makes_one(
    local: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, group: Any
) -> None:
    """A typing error in a read must not leave a group behind."""
    monkeypatch.setattr(Address, "client", lambda self: group)
    options = parse_options(
        {"path": "/data/log", "replicas": "1", "dledger.flush": "async", "topic": "t"}
    )
    find_group(options)
    Sink.plan(options, columns("value string"))
    asked = {"path": "/data/log", "replicas": 1, "flush": "async"}
    assert local == [{**asked, "create": False}, {**asked, "create": True}]


def test_a_path_without_a_group_is_an_error_in_a_read(tmp_path: Path) -> None:
    with pytest.raises(PathError):
        find_group(parse_options({"path": str(tmp_path / "typo"), "subscribe": "t"}))
    assert not (tmp_path / "typo").exists()


def test_a_task_on_another_host_says_why_it_cannot_reach_a_loopback_group(
    local: list[dict[str, Any]],
) -> None:
    address = hop(find_group(parse_options({"path": "/data/log"})))
    assert address.local_to == platform.node()
    with pytest.raises(
        ConfigError, match=r"only be reached on host elsewhere.*dledger\.advertise\.host"
    ):
        replace(address, local_to="elsewhere").client()


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the clients of a group answer, one after the other: a word, or an error."""
    answers: list[Any] = []
    shared = "dledger.datasource.table.log.shared_client"
    monkeypatch.setattr(shared, lambda *_, **__: answers.pop(0))
    return answers


def ask(options: dict[str, str]) -> str:
    def question(answer: Any) -> str:
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    return Log(parse_options(options)).ask(question)


def test_a_group_whose_nodes_all_came_back_elsewhere_is_found_again(
    local: list[dict[str, Any]], clients: list[Any]
) -> None:
    clients += [Unavailable("nobody"), "yes"]
    assert ask({"path": "/data/log"}) == "yes"
    assert len(local) == 2


def test_group_that_replaced_the_one_this_process_met_is_asked(clients: list[Any]) -> None:
    """Such as in a notebook, after the path was deleted; which one it is, is for the query to
    see."""
    clients += [WrongGroup("another"), "yes"]
    assert ask({"dledger.bootstrap.servers": "a:1"}) == "yes"


def test_a_running_group_that_cannot_be_reached_is_an_error_at_once(clients: list[Any]) -> None:
    clients += [Unavailable("nobody"), "yes"]
    with pytest.raises(Unavailable):
        ask({"dledger.bootstrap.servers": "a:1"})


def test_a_task_asks_only_the_group_for_which_it_was_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(
        "dledger.datasource.table.log.shared_client",
        lambda servers, **more: asked.append((servers, more)),
    )
    hop(Address("a:1", {"request_timeout_ms": 7}, group_id="A")).client()
    assert asked == [("a:1", {"group_id": "A", "request_timeout_ms": 7})]


def test_a_task_reads_in_the_rack_of_its_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the driver's is not; an option is for all of them."""
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "dledger.datasource.table.log.shared_client",
        lambda servers, **more: asked.append(more),
    )
    monkeypatch.setenv("DLEDGER_RACK", "of-the-driver")
    task, told = hop(Address("a:1")), hop(Address("a:1", {"rack": "of-all"}))
    monkeypatch.setenv("DLEDGER_RACK", "east")
    task.client()
    told.client()
    monkeypatch.setenv("DLEDGER_RACK", "")
    task.client()
    assert [more.get("rack") for more in asked] == ["east", "of-all", None]


@pytest.mark.parametrize("rack", ["", "a/b", "r" * 64])
def test_a_rack_that_cannot_be_is_an_error_at_the_driver(rack: str) -> None:
    options = parse_options({"dledger.bootstrap.servers": "a:1", "dledger.rack": rack})
    with pytest.raises(ConfigError, match="use 1 to 63 of the characters"):
        find_group(options).client()


def test_a_task_asks_a_paths_group_where_it_is_by_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its nodes may have gone since it was planned; on another host the path may be anything."""
    asked: list[str] = []
    monkeypatch.setattr(
        "dledger.datasource.table.log.shared_client", lambda servers, **more: asked.append(servers)
    )
    node = NodeId("n5")
    task = hop(Address("a:1", {}, path=str(tmp_path), group="g"))
    task.client()
    for group in ("g", "other"):
        moved = GroupFile(group=group, members=(node,), addresses={node: "b:2"}, local=())
        Home(tmp_path).write(moved)
        task.client()
    assert asked == ["a:1", "b:2", "a:1"]


def test_an_own_node_needs_a_path_for_its_files() -> None:
    with pytest.raises(ConfigError, match="keeps its files in the path"):
        find_group(parse_options({"dledger.peers": "n0-h:1", "dledger.selfId": "n0"}))


def test_an_address_of_servers_is_for_every_host() -> None:
    assert find_group(parse_options({"dledger.bootstrap.servers": "127.0.0.1:9"})) == Address(
        "127.0.0.1:9", {}
    )


def test_an_address_travels_with_the_credentials_that_its_file_has_then(tmp_path: Path) -> None:
    file = tmp_path / "alice"
    for password in ("first one", "second one"):
        file.write_text(f"user=alice\npassword={password}")
        file.chmod(0o600)
        address = Address("127.0.0.1:1", {"credentials": str(file), "tls_ca": "/ca"})
        travelled = pickle.loads(pickle.dumps(address))
        assert travelled.settings["credentials"] == Credentials("alice", password, file=str(file))
        assert password not in f"{address} {travelled}"
    assert pickle.loads(pickle.dumps(travelled)) == travelled
    file.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        pickle.dumps(address)
