"""Metrics and health of a node over HTTP: what they say, at any time of its life."""

from __future__ import annotations

import asyncio
import datetime
import json
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from dledger.config import NodeConfig
from dledger.environment import REAL
from dledger.errors import ConfigError, PortInUse
from dledger.net.secret import create_secret
from dledger.node import node as node_module
from dledger.node.access.traffic import MOST_NAMES
from dledger.node.monitoring import families, http_server, values
from dledger.node.monitoring.monitor import Monitor
from dledger.node.monitoring.topics import LagSeries
from dledger.protocol.messages.catalog_commands import AlterQuotas, CommitOffsets
from dledger.protocol.messages.client import FetchRequest
from dledger.protocol.messages.codes import Code
from dledger.storage.opening import open_store
from dledger.types import ANONYMOUS
from tests.node.bodies import body
from tests.node.elections import QUICK
from tests.node.scraping import ask, context_of, fetch, parsed, samples

pytestmark = pytest.mark.group(metrics_port=0, **QUICK)


async def test_page_of_metrics_has_what_the_node_has_done(group: Any) -> None:
    client, topic = await group.topic()
    leader = await group.leader()
    before = await samples(leader)
    for _ in range(3):
        assert (await client.append(body(topic, count=7))).code is Code.SUCCESS
    await client.ask(FetchRequest(topic_id=topic, partition=0, start_offset=0, max_bytes=1 << 20))
    await group.agree()
    after = await samples(leader)
    assert after['dledger_topic_records_total{topic="t"}'] == 21
    assert after['dledger_topic_read_records_total{topic="t"}'] == 21
    size = after['dledger_topic_bytes_total{topic="t"}']
    assert after['dledger_topic_read_bytes_total{topic="t"}'] == size > 0
    for times in ("append", "fsync", "commit", "apply"):
        name = f"dledger_{times}_duration_seconds"
        assert after[f"{name}_count"] >= before[f"{name}_count"] + 1, times
        assert after[f"{name}_sum"] > 0
        assert after[f'{name}_bucket{{le="+Inf"}}'] == after[f"{name}_count"]
    assert after["dledger_append_duration_seconds_count"] == 3
    assert after["dledger_committed_index"] == leader.raft.committed_index
    assert after["dledger_applied_index"] == leader.catalog.applied_index
    assert (after['dledger_role{role="leader"}'], after["dledger_ready"]) == (1, 1)
    assert (after["dledger_members"], after["dledger_members_connected"]) == (3, 2)
    assert after["dledger_requests_total"] == before["dledger_requests_total"] + 4
    assert after["process_resident_memory_bytes"] > 0


async def test_every_metric_is_in_the_table_and_has_its_kind(group: Any) -> None:
    """So docs/metrics.md, which is held against the table, has all of them."""
    await group.topic()
    _, kind, text = await ask(await group.leader(), "/metrics")
    assert kind.startswith("text/plain; version=")
    told = dict(
        line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE dledger_")
    )
    assert told.items() <= {name: one.kind for name, one in families.FAMILIES.items()}.items()
    without_value = {"dledger_consumer_group_lag_records", "dledger_consumer_group_lag_seconds"} | {
        "dledger_certificate_expiry_timestamp_seconds", "dledger_requests_refused_total",
        "dledger_throttled_seconds_total",
    }  # fmt: skip
    assert families.FAMILIES.keys() - told.keys() == without_value
    assert not any("127.0.0.1" in line or 'partition="' in line for line in text.splitlines())


async def test_scraper_that_asks_for_openmetrics_gets_it(group: Any) -> None:
    await group.topic()
    wanted = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    status, kind, text = await ask(await group.leader(), "/metrics", Accept=wanted)
    assert (status, kind.partition(";")[0]) == (200, "application/openmetrics-text")
    assert text.endswith("# EOF\n")
    found = {family.name for family in text_string_to_metric_families(text)}
    assert {"dledger_topic_records", "dledger_append_duration_seconds", "dledger_term"} <= found


async def test_node_that_knows_no_leader_is_alive_and_says_why_unready(group: Any) -> None:
    left = await group.follower()
    assert (await ask(left, "/readyz"))[::2] == (200, "ok\n")
    await group.kill(*(name for name, node in group.nodes.items() if node is not left))
    await group.until(lambda: left.raft.leader_id is None)
    status, _, why = await ask(left, "/readyz")
    assert (status, why) == (
        503,
        "no leader is known; does a majority of n0, n1, n2 run?\n",
    )
    assert (await ask(left, "/livez"))[::2] == (200, "ok\n")
    found = await samples(left)
    assert (found["dledger_ready"], found["dledger_leader_known"]) == (0, 0)
    assert found["dledger_members_connected"] == 0


async def test_node_answers_while_recovery_holds_its_loop(
    play: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are opened on the node's loop, which does nothing else meanwhile."""
    async with play(1, start=False, metrics_port=0) as group:
        server, answers, opened = group.make("n0"), {}, open_store

        def open_slowly(*args: Any, **named: Any) -> Any:
            for path in ("/livez", "/readyz", "/metrics"):
                answers[path] = fetch(server.metrics_port, path)
            return opened(*args, **named)

        monkeypatch.setattr(node_module, "open_store", open_slowly)
        await server.start()
        group.nodes["n0"] = server
        assert answers["/livez"][::2] == (200, "ok\n")
        assert answers["/readyz"][::2] == (503, "it is starting\n")
        assert parsed(answers["/metrics"][2])["dledger_ready"] == 0
        await group.leader()
        assert (await ask(server, "/readyz"))[0] == 200


@pytest.mark.group(1, metrics_port=0)
async def test_loop_that_does_not_run_is_told_from_one_that_hangs(group: Any) -> None:
    node = await group.leader()
    now_s = node._monitor._now_s
    for late_s, ready, lives in ((0, 200, 200), (6, 503, 200), (61, 503, 503)):
        node._monitor._now_s = lambda late_s=late_s: now_s() + late_s
        assert (await ask(node, "/readyz"))[0] == ready
        status, _, text = await ask(node, "/livez")
        assert status == lives
    assert text == "its loop has not run for 61 s\n"


@pytest.mark.group(1, metrics_port=0)
async def test_node_that_has_failed_is_not_alive(group: Any) -> None:
    node = await group.leader()
    node.parts.ready_loop.failed = True
    for path in ("/livez", "/readyz"):
        assert (await ask(node, path))[::2] == (503, "it has failed; its log says why\n")


@pytest.mark.group(3, metrics_port=0)
async def test_member_that_is_not_admitted_is_not_ready(group: Any) -> None:
    await group.agree()
    name = (await group.follower()).node.node_id
    node = await group.replace_disk(name)
    await group.until(lambda: node.raft.leader_id)
    await group.until(lambda: not node.parts.context.is_admitted)
    assert f"dledger admit {name}" in (await ask(node, "/readyz"))[2]
    assert (await samples(node))["dledger_admitted"] == 0


@pytest.mark.group(3, start=False, metrics_port=0)
async def test_member_of_a_group_that_is_not_founded_says_whom_it_waits_for(group: Any) -> None:
    """It has lost nothing, and there is nobody to admit it."""
    node = await group.start("n0")
    assert (await ask(node, "/readyz"))[::2] == (
        503,
        "its group is not founded yet, as far as it knows: it has not heard of n1, n2\n",
    )
    assert (await samples(node))["dledger_admitted"] == 1
    assert node.parts.context.status.values()["admission"]["missing"] == ["n1", "n2"]
    await group.start("n1", "n2")
    await group.leader()
    await group.until(lambda: not node.parts.context.raft.not_heard_yet)
    assert node.raft.is_admitted


@pytest.mark.group(1, metrics_port=0)
async def test_entries_that_wait_to_be_applied_keep_a_node_unready(group: Any) -> None:
    """Those that it knew to be committed at its start; later it may always be a few behind."""
    node = await group.leader()
    health, applied = node._monitor.health, node.catalog.applied_index
    node.catalog.applied_index = applied - 5
    assert (await ask(node, "/readyz"))[0] == 503
    node.catalog.applied_index = applied
    assert health.unready(REAL.now_s()) == ""
    node.catalog.applied_index = applied - 5
    assert health.unready(REAL.now_s()) == ""
    node.catalog.applied_index = applied


@pytest.mark.group(1, metrics_port=0)
async def test_idle_and_slow_connections_keep_no_scraper_out(group: Any) -> None:
    """A thousand that say nothing, or take nothing, and places for 64."""
    node = await group.leader()
    before = (await samples(node))["process_open_fds"]
    with ExitStack() as stack:
        for number in range(1000):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", node.metrics_port)))
            if number % 2:
                one.sendall(b"GET /metrics HTTP/1.1\r\n")
        status, _, text = await asyncio.to_thread(fetch, node.metrics_port, "/metrics")
        assert status == 200
        assert parsed(text)["process_open_fds"] - before < 1000 + 3 * http_server.PLACES
        assert len(node._monitor._server._open) <= http_server.PLACES


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n", 431),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /secret HTTP/1.1\r\n\r\n", 404),
        (b"\x16\x03\x01 what\r\n\r\n", 400),
        (b"GET http://[ HTTP/1.1\r\n\r\n", 400),
        (b"GET /livez HTTP/3\r\n\r\n", 505),
        (b"HEAD /livez HTTP/1.0\r\n\r\n", 200),
    ],
)
@pytest.mark.group(1, metrics_port=0)
async def test_requests_that_are_none_are_answered_as_such(
    group: Any, request_: bytes, status: int
) -> None:
    node = await group.leader()
    reader, writer = await asyncio.open_connection("127.0.0.1", node.metrics_port)
    writer.write(request_)
    answer = await reader.read()
    writer.close()
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert answer.endswith(b"\r\n\r\n") == request_.startswith(b"HEAD")


@pytest.mark.group(1, metrics_port=0)
async def test_defect_of_a_page_is_an_error_and_not_the_end(
    group: Any, caplog: pytest.LogCaptureFixture
) -> None:
    node = await group.leader()
    node._monitor._exposition._values = lambda: {"not_in_the_table": 1}
    assert (await ask(node, "/metrics"))[0] == 500
    assert "cannot be answered" in caplog.text
    assert (await ask(node, "/livez"))[0] == 200


async def test_refusals_and_waits_are_counted(group: Any) -> None:
    leader, follower = await group.leader(), await group.follower()
    client = await group.client(follower)
    assert (await client.append(body(7))).code is Code.NOT_LEADER
    assert (await samples(follower))['dledger_requests_refused_total{code="NOT_LEADER"}'] == 1
    before = (await samples(leader))["dledger_requests_throttled_total"]
    leader.parts.router._full_bytes = leader.parts.router._little_bytes = 0
    asking, topic = await group.topic()
    assert (await asking.append(body(topic))).code is Code.SUCCESS
    assert (await samples(leader))["dledger_requests_throttled_total"] > before


@pytest.mark.group(1, metrics_port=0)
async def test_waits_behind_a_quota_are_counted_and_timed_by_principal(group: Any) -> None:
    client, topic = await group.topic()
    leader, size = await group.leader(), len(body(topic, bytes(2000)))
    alter = AlterQuotas(entity="User:ANONYMOUS", quotas={"bytes_in": size - 20})
    assert (await client.execute(alter)).code is Code.SUCCESS
    before = await samples(leader)
    assert (await client.append(body(topic, bytes(2000)))).code is Code.SUCCESS
    after = await samples(leader)
    counter = "dledger_requests_throttled_total"
    assert after[counter] == before[counter] + 1
    assert after['dledger_throttled_seconds_total{principal="User:ANONYMOUS"}'] > 0


@pytest.mark.group(1, metrics_port=0)
async def test_times_of_so_many_principals_are_told_by_name(group: Any) -> None:
    node = await group.leader()
    for number in range(MOST_NAMES + 5):
        node.parts.router.port_sessions._quotas._note(f"User:u{number}", 1, 0.5)
    times = values.of_node(node.parts)["dledger_throttled_seconds_total"]
    assert len(times) == MOST_NAMES + 1
    assert (times["User:u0"], times["other"]) == (0.5, 2.5)


async def test_changes_of_leader_and_elections_are_counted(group: Any) -> None:
    await group.agree()
    name = (await group.follower()).node.node_id
    before = await samples(group.nodes[name])
    await group.hand_over(name)
    after = await samples(group.nodes[name])
    for counter in ("dledger_elections_total", "dledger_leader_changes_total"):
        assert after[counter] >= before[counter] + 1
    assert after["dledger_term"] > before["dledger_term"]


async def test_lag_of_consumer_group_is_told_in_records_and_seconds(group: Any) -> None:
    client, topic = await group.topic()
    now_us = REAL.wall_us()
    for age_s in (500, 300, 100):
        await client.append(body(topic, count=4, last_time_us=now_us - age_s * 1_000_000))
    await client.execute(CommitOffsets(consumer_group="slow", offsets={"t": {0: 4}}))
    await client.execute(CommitOffsets(consumer_group="done", offsets={"t": {0: 12}}))
    await group.agree()
    for node in group.nodes.values():
        found = await samples(node)
        lag = "dledger_consumer_group_lag_"
        assert found[f'{lag}records{{consumer_group="slow"}}'] == 8
        assert 299 < found[f'{lag}seconds{{consumer_group="slow"}}'] < 400
        assert found[f'{lag}records{{consumer_group="done"}}'] == 0
        assert found[f'{lag}seconds{{consumer_group="done"}}'] == 0


async def test_one_scrape_looks_up_the_times_of_so_many_records_only(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are as at the last look, and have their turn at another scrape."""
    monkeypatch.setattr("dledger.node.monitoring.topics.LOOK_UPS", 1)
    client, topic = await group.topic()
    await client.append(body(topic, count=4, last_time_us=1_000_000))
    for name in ("a", "b", "c"):
        await client.execute(CommitOffsets(consumer_group=name, offsets={"t": {0: 1}}))
    groups = LagSeries(lambda: 11.0)
    catalog = (await group.leader()).catalog
    seen = [groups.series(catalog)["dledger_consumer_group_lag_seconds"] for _ in range(3)]
    assert [sum(age > 0 for age in ages.values()) for ages in seen] == [1, 2, 3]


@pytest.mark.group(1, metrics_port=0)
async def test_metrics_go_on_when_a_node_starts_again_on_other_files(group: Any) -> None:
    client, topic = await group.topic()
    await client.append(body(topic))
    node, port, seen = await group.leader(), 0, []
    port = node.metrics_port
    node.parts.events.restart(lambda: seen.append(fetch(port, "/readyz")))
    await node._restarting
    assert seen[0][::2] == (503, "it starts again on other files\n")
    await group.until(lambda: node.parts.proposals.caught_up and node.raft.leader_id)
    assert node.metrics_port == port
    found = await samples(node)
    assert found['dledger_topic_records_total{topic="t"}'] == 1
    assert found["dledger_append_duration_seconds_count"] == 1


# --- who is answered ------------------------------------------------------------------------------


@pytest.mark.group(1)
async def test_port_is_closed_when_the_node_ends_and_when_it_cannot_start(group: Any) -> None:
    node = await group.restart("n0", metrics_port=0)
    port = node.metrics_port
    held = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port))
    held.close()
    other = group.make("n0", metrics_port=0)
    with pytest.raises(Exception, match="n0"):
        await other.start()  # the files are the first one's
    await group.stop("n0")
    for closed in (port, other.metrics_port):
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", closed))


async def test_port_that_another_process_has_is_named(play: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with play(1, start=False, metrics_port=port) as group:
            with pytest.raises(PortInUse, match=f"{port}.*metrics_port"):
                await group.start()


def config(tmp_path: Path, **settings: Any) -> NodeConfig:
    return NodeConfig(node_id="n0", directory=tmp_path, metrics_port=0, **settings)


def test_port_beyond_loopback_needs_tls_or_a_word(tmp_path: Path, issue: Any) -> None:
    with pytest.raises(ConfigError, match=r"metrics_host 0\.0\.0\.0 .*insecure=true"):
        Monitor(config(tmp_path, metrics_host="0.0.0.0"), REAL)
    for more in (issue(nodes=("n0",)), {"insecure": True}):
        Monitor(config(tmp_path, metrics_host="0.0.0.0", **more), REAL)
    with pytest.raises(ConfigError, match="metrics_port -2"):
        NodeConfig(node_id="n0", directory=tmp_path, metrics_port=-2)


@pytest.mark.usefixtures("new_loop")
async def test_node_under_tls_is_asked_by_certified_programs_alone(
    play: Callable[..., Any], issue: Any
) -> None:
    files = issue(nodes=("n0",))
    async with play(1, metrics_port=0, **files) as group:
        node = group.nodes["n0"]
        await group.until(lambda: node.parts.proposals.caught_up and node.raft.leader_id)
        good = context_of(files)
        status, _, text = await asyncio.to_thread(fetch, node.metrics_port, "/metrics", tls=good)
        assert status == 200
        expiry = "dledger_certificate_expiry_timestamp_seconds"
        assert parsed(text)[f'{expiry}{{certificate="node"}}'] > time.time()
        assert parsed(text)[f'{expiry}{{certificate="authority"}}'] > time.time()
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        nobody.load_verify_locations(files["tls_ca"])
        for stranger in (nobody, None):
            # while there are users, the other port takes those who show none
            node.parts.router._listener.want_certificates(False)
            with pytest.raises(OSError):
                await asyncio.to_thread(fetch, node.metrics_port, "/livez", tls=stranger)


@pytest.mark.usefixtures("new_loop")
async def test_new_certificates_are_shown_to_those_who_ask_from_then_on(
    play: Callable[..., Any], issue: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before there is a gate too, from the beginning of the start on."""
    files, opened, seen = issue(nodes=("n0",)), open_store, []
    expiry = 'dledger_certificate_expiry_timestamp_seconds{certificate="node"}'
    async with play(1, start=False, metrics_port=0, **files) as group:
        server = group.make("n0")

        def scraped() -> float:
            text = fetch(server.metrics_port, "/metrics", tls=context_of(files))[2]
            return parsed(text)[expiry]

        def open_and_ask(*args: Any, **named: Any) -> Any:
            seen.append(scraped())
            return opened(*args, **named)

        monkeypatch.setattr(node_module, "open_store", open_and_ask)
        await server.start()
        group.nodes["n0"] = server
        soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=5)
        other = issue(nodes=("n0",), not_after=soon)  # of an authority of its own
        for name, path in other.items():
            shutil.copyfile(path, files[name])
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            await asyncio.to_thread(scraped)
        server.reload()
        server._monitor._pages = {}
        assert await asyncio.to_thread(scraped) == int(soon.timestamp()) < seen[0]


@pytest.mark.group(1)
async def test_node_whose_clients_prove_a_secret_wants_the_token(
    group: Any, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    create_secret(secret)
    node = await group.restart("n0", metrics_port=0, secret_file=str(secret), clients_prove=True)
    file = tmp_path / "n0" / "metrics.token"
    token = file.read_text().strip()
    assert file.stat().st_mode & 0o077 == 0
    assert token not in secret.read_text()
    for path in ("/metrics", "/livez", "/readyz", "/"):
        for wrong in ({}, {"Authorization": "Bearer x"}, {"Authorization": token}):
            status, _, text = await ask(node, path, **wrong)
            assert (status, "metrics.token" in text) == (401, True)
    log = tmp_path / "n0" / "audit.log"
    await group.until(log.exists)
    await group.until(lambda: log.read_text().endswith("\n"))
    (line,) = map(json.loads, log.read_text().splitlines())
    assert (line["event"], line["result"]) == ("authenticate", "refused")
    assert (line["principal"], line["details"]) == (ANONYMOUS, {"port": "metrics"})
    right = {"Authorization": f"Bearer {token}"}
    assert (await ask(node, "/metrics", **right))[0] == 200


def test_missing_package_is_named_with_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"pip install 'dledger\[metrics\]'"):
        Monitor(config(tmp_path), REAL)


def test_node_without_the_port_loads_nothing_of_it() -> None:
    script = (
        "import sys\nfrom dledger.testing import InProcessGroup\n"
        "with InProcessGroup(1) as group, group.client() as client: client.create_topic('t')\n"
        "names = ('prometheus_client', 'dledger.node.monitoring')\n"
        "bad = [module for module in sys.modules if module.startswith(names)]\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.group(1, metrics_port=-1)
async def test_node_without_the_port_counts_nothing(group: Any) -> None:
    node = await group.leader()
    client, topic = await group.topic()
    assert (await client.append(body(topic))).code is Code.SUCCESS
    assert (await client.append(body(77))).code is Code.UNKNOWN_TOPIC
    parts = node.parts
    counting = (parts.context.meters, parts.proposals._times, parts.reads._served)
    assert (*counting, parts.ready_loop.log_writer.meters) == (None,) * 4
    assert all(each.refused is None for each in parts.router._listener.connections)
    assert "metrics_port" not in await client.status()


async def test_flood_of_scrapes_costs_one_page_in_a_while(group: Any) -> None:
    node = await group.leader()
    made: list[int] = []
    values = node._monitor._values
    node._monitor._exposition._values = lambda: made.append(1) or values()
    now_s = REAL.now_s()
    node._monitor._now_s = lambda: now_s
    pages = [await asyncio.to_thread(fetch, node.metrics_port, "/metrics") for _ in range(20)]
    assert (len(made), len({text for _, _, text in pages})) == (1, 1)
    assert len(await samples(node)) > 50
