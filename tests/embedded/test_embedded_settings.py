"""Settings of an embedded group: names are checked, and joining never changes what is there behind
anybody's back."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from dledger.embedded.groupfile import GroupFile
from dledger.embedded.ports import free_ports, port_range
from dledger.embedded.settings import (
    check_join,
    check_replicas,
    check_settings,
    group_config,
    node_config,
)
from dledger.errors import ConfigError, PortInUse, UnknownOption
from dledger.types import NodeId

N0 = NodeId("n0")


def existing(**settings: Any) -> GroupFile:
    return GroupFile(
        group="g", members=(N0,), addresses={N0: "127.0.0.1:1"}, local=(N0,), settings=settings
    )


def test_unknown_setting_names_the_nearest_one() -> None:
    with pytest.raises(UnknownOption, match="did you mean 'segment_bytes'"):
        check_settings({"segment_byte": 1})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"node_id": "n7"}, "leave it out"),
        ({"port": 1}, "leave it out"),
        ({"segment_bytes": "1 GiB"}, "type int"),
        ({"heartbeat_ms": True}, "type int"),
        ({"audit_topic": 1}, "type bool"),
        ({"idle_timeout_ms": -1}, "milliseconds"),
        ({"flush": "later"}, "'sync' or 'async'"),
        ({"host": "0.0.0.0"}, "advertise_host"),
    ],
)
def test_setting_that_cannot_be_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_settings(settings)


def test_a_flag_may_be_set_for_a_path() -> None:
    check_settings({"audit_topic": True, "insecure": False})


@pytest.mark.parametrize("replicas", [1, 3, 5, 7])
def test_replicas_may_be(replicas: int) -> None:
    check_replicas(replicas)


@pytest.mark.parametrize("replicas", [0, 2, 4, -3, 9, True])
def test_replicas_may_not_be(replicas: int) -> None:
    with pytest.raises(ConfigError, match="1, 3, 5 or 7"):
        check_replicas(replicas)


@pytest.mark.parametrize(
    ("file", "replicas", "settings", "running", "refusal"),
    [
        (existing(), None, {}, True, ""),
        (existing(), 3, {}, False, "1 replicas, not 3"),
        (existing(), None, {"segment_bytes": 1 << 25}, False, "since the group was made"),
        (existing(), None, {"flush": "async"}, False, ""),
        (existing(), None, {"flush": "async"}, True, "running with flush='sync'"),
        (existing(flush="async"), None, {"flush": "async"}, True, ""),
        (existing(), None, {"idle_timeout_ms": 5}, True, ""),
    ],
    ids=[
        "whatever there is",
        "other replicas",
        "what the files were made with",
        "another setting while nothing runs",
        "another setting while nodes run",
        "the same setting",
        "what running nodes take up",
    ],
)
def test_join_changes_only_what_can_be_had(
    file: GroupFile, replicas: int | None, settings: dict[str, Any], running: bool, refusal: str
) -> None:
    with pytest.raises(ConfigError, match=refusal) if refusal else nullcontext():
        check_join(file, replicas, settings, running, where="here")


def test_configs_of_a_node_come_from_the_group_file() -> None:
    group = group_config(
        "g", (N0,), {"segment_bytes": 1 << 26, "preferred_leaders": ["n0"], "flush": "async"}
    )
    assert (group.group, group.segment_bytes, group.preferred_leaders) == ("g", 1 << 26, (N0,))
    node = node_config(N0, Path("n0"), "127.0.0.1:7000", {"flush": "async", "idle_timeout_ms": 5})
    assert (node.host, node.port, node.flush) == ("127.0.0.1", 7000, "async")
    assert node.idle_timeout_ms == 0
    shown = node_config(N0, Path("n0"), "box:7000", {"host": "0.0.0.0", "advertise_host": "box"})
    assert shown.host == "0.0.0.0"


def test_ports_are_free_different_and_not_the_systems_own() -> None:
    """A port out of the system's own range could go to anybody's outgoing connection while its node
    is down."""
    ports = free_ports("127.0.0.1", 7)
    first, end = port_range()
    assert len(set(ports)) == 7
    assert all(first <= port < end for port in ports)


def test_ports_of_a_foreign_address_are_an_error() -> None:
    with pytest.raises(PortInUse, match=r"203\.0\.113\.1"):
        free_ports("203.0.113.1", 1)
