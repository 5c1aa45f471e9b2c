"""Clients that are given the path of a log."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest

from dledger import AsyncClient, Client, EmbeddedGroup
from dledger.config.log_paths import is_log_path
from dledger.embedded import connect_path
from dledger.errors import ConfigError, PathError


def test_client_of_a_path_starts_and_joins_the_group_that_spark_finds(log_path: Path) -> None:
    with EmbeddedGroup(log_path, replicas=1) as group:
        pids = {node.pid for node in group.nodes.values()}
        with Client(log_path) as client:
            assert client.bootstrap_servers == group.bootstrap_servers == connect_path(log_path)
            client.create_topic("t")
            client.append("t", "x")
            with pickle.loads(pickle.dumps(client)) as copy:
                assert copy.bootstrap_servers == client.bootstrap_servers
        with Client(f"file:{log_path}") as again:  # its closing has ended nothing
            assert again.table("t").num_rows == 1
        assert {node.pid for node in group.nodes.values()} == pids

    async def read() -> int:
        async with AsyncClient(str(log_path)) as client:
            return int((await client.table("t")).num_rows)

    assert asyncio.run(read()) == 1  # started anew, with all that was there


def test_a_path_is_told_from_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log").mkdir()
    for path in ("/data/log", "./log", "~/log", "file:///data/log", "log", "log/"):
        assert is_log_path(path), path
    for addresses in ("", "localhost", "a:1,b:2", "[::1]:7000", "logs"):
        assert not is_log_path(addresses), addresses


def test_path_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PathError, match="file"):
        Client(tmp_path / "file")
    with pytest.raises(ConfigError, match=r"'s3://bucket/log' is on 's3'"):
        Client("s3://bucket/log")
    with pytest.raises(ConfigError, match="write host:port"):
        Client("localhost")
