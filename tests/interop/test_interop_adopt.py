"""A real broker's plain store goes on inside a group of dledger, and from there inside a real
broker again."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dledger import Client
from dledger.cli.main import main
from dledger.embedded.ports import free_ports
from dledger.errors import PathError
from dledger.rocketmq.format.message import Message
from dledger.rocketmq.upgrade.adoption import copy_store

INDEX_BYTES = 1 << 20


def run(*words: str) -> str:
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return str(done.stdout)


@contextmanager
def serving(real: Any, programs: Any, node: Path) -> Iterator[Client]:
    """A node of dledger in a process of its own, and a client of it."""
    (port,) = free_ports("127.0.0.1", 1)
    size = real.FILE_BYTES
    words = f"serve --self-id n0 --peers n0-127.0.0.1:{port} --set commit_log=rocketmq"
    words += f" --set segment_bytes={size} --set max_body_bytes={size // 2}"
    words += f" --set index_file_bytes={INDEX_BYTES} --dir"
    command = [sys.executable, "-m", "dledger", *words.split(), str(node)]
    with (
        real.Running(command, programs.log("node")),
        Client(f"127.0.0.1:{port}") as client,
    ):
        yield client


def queue(client: Client, topic: str, queue_id: int) -> list[Message]:
    """Every message of a queue of the group."""
    found: list[Message] = []
    at = 0
    while True:
        got = client.get_message(topic, queue_id, at)
        found += got.messages
        if got.next_begin_offset >= got.max_offset:
            return found
        at = got.next_begin_offset


@pytest.fixture(scope="module")
def plain(
    programs: Any, real: Any, traffic: Any, tmp_path_factory: Any
) -> tuple[Path, int, dict[Any, dict[str, Any]]]:
    """A store that a broker wrote, its port, and what its consumer pulled."""
    store, port = tmp_path_factory.mktemp("adopted") / "store", real.free_port()
    with real.Broker(programs, "adopted", store, port) as broker, broker.client() as client:
        traffic.send_all_kinds(client, 300)
        return store, port, traffic.written(real, client, store)


def test_an_adopted_store_goes_over_the_border_and_back_to_a_broker(
    plain: tuple[Path, int, dict[Any, dict[str, Any]]],
    programs: Any,
    real: Any,
    traffic: Any,
    tmp_path: Path,
) -> None:
    store, port, old = plain
    adopted, out = tmp_path / "adopted", tmp_path / "store"
    words = ("--self-id", "n0", "--index-file-bytes", str(INDEX_BYTES))
    assert "close " in run("rocketmq", "adopt", str(store), *words, "--to", str(adopted), "--yes")
    traffic.assert_same(traffic.by_place(traffic.rows(adopted)), old)
    with serving(real, programs, adopted / "dledger-n0") as client:
        ends: dict[tuple[str, int], int] = {}
        for topic, queue_id, queue_offset in old:
            ends[topic, queue_id] = max(queue_offset + 1, ends.get((topic, queue_id), 0))
        for topic, queues in traffic.TOPICS.items():
            for queue_id in range(queues):
                found = queue(client, topic, queue_id)
                assert [(m.queue_offset, m.physical_offset, m.property_map()) for m in found] == [
                    (one["queue_offset"], one["physical_offset"], one["properties"])
                    for place, one in sorted(old.items())
                    if place[:2] == (topic, queue_id)
                ]
        (shared,) = client.query_message("orders", "packed3")[:1]
        assert client.view_message(shared.physical_offset) == shared
        for n in range(120):
            topic, queue_id = ("orders", "payments")[n % 2], n // 2 % 3 * (1 - n % 2)
            put = client.put_message(
                topic, b"in the group %d " % n * 60, queue_id=queue_id, keys=[f"g{n}"], tags="new"
            )
            assert put.queue_offset == ends[topic, queue_id]
            ends[topic, queue_id] += 1
    both = traffic.by_place(traffic.rows(adopted))
    assert len(both) == len(old) + 120
    traffic.assert_same({place: both[place] for place in old}, old)

    node = ("--format", "dledger", "--node", str(adopted / "dledger-n0"), "--messages")
    assert json.loads(run("export", str(out), *node))["moved"] == 120
    exported = traffic.by_place(traffic.rows(out))
    traffic.assert_same({place: exported[place] for place in old}, old)
    assert {place: one["body"] for place, one in exported.items()} == {
        p: one["body"] for p, one in both.items()
    }
    settings = {**real.DEFAULTS, **real.in_ledger_mode()}
    with (
        real.Broker(programs, "adopted", out, port, **settings) as broker,
        broker.client() as client,
    ):
        traffic.assert_same(traffic.all_served(real, client, exported), exported)
        (found,) = client.query("orders", "g20")
        (wanted,) = [one for one in exported.values() if one["keys"] == "g20"]
        assert found["body"] == wanted["body"]
        assert [one["body"] for one in client.query("orders", "packed3")]
        bodies = [b"back %d" % n * 99 for n in range(60)]
        client.send(
            {"topic": "orders", "queue": n % 3, "body": body} for n, body in enumerate(bodies)
        )
        again = traffic.all_served(real, client, exported, 60)
    traffic.assert_same(traffic.by_place(traffic.rows(out)), again)
    for queue_id in range(3):
        ours = sorted(place[2] for place in again if place[:2] == ("orders", queue_id))
        assert ours == list(range(ends["orders", queue_id] + 20))


def test_old_log_is_closed_as_by_real_broker_and_refused_while_it_runs(
    plain: tuple[Path, int, dict[Any, dict[str, Any]]],
    programs: Any,
    real: Any,
    traffic: Any,
    tmp_path: Path,
) -> None:
    store, port, old = plain
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    words = ("--self-id", "n0", "--index-file-bytes", str(INDEX_BYTES), "--yes")
    run("rocketmq", "adopt", str(store), *words, "--to", str(ours))
    copy_store(store, theirs)
    with real.Broker(programs, "adopted", theirs, port, **real.in_ledger_mode("n7")):
        refused = CliRunner().invoke(
            main, ["rocketmq", "adopt", str(theirs), *words], standalone_mode=False
        )
        assert isinstance(refused.exception, PathError)
        assert "is in use: a broker" in str(refused.exception)
        (data,) = (theirs / "dledger-n7" / "data").iterdir()
    logs = [
        {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}
        for root in (ours, theirs)
    ]
    assert logs[0] == logs[1]
    assert [path.name for path in (ours / "dledger-n0" / "data").iterdir()] == [data.name]
    refused = CliRunner().invoke(
        main, ["rocketmq", "adopt", str(theirs), *words], standalone_mode=False
    )
    assert "of a broker in DLedger mode" in str(refused.exception)
    traffic.assert_same(traffic.by_place(traffic.rows(ours)), old)
