"""Each alert fires by its fault, on the metrics of real nodes with that fault, and not before
it."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dledger.environment import REAL
from dledger.protocol.messages.catalog_commands import CommitOffsets
from dledger.protocol.messages.client import AppendRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest
from dledger.storage.disk.disk import DiskSpace
from dledger.types import Role
from tests.node.alerting import alerts, promtool, rates, scrape
from tests.node.bodies import body
from tests.node.conftest import BareClient
from tests.node.damaging import damage
from tests.node.elections import QUICK
from tests.node.scraping import context_of
from tests.node.test_node_catalog_lost import damage_snapshots
from tests.node.trimming import SMALL, write_trimmed
from verification.disk.memory_disk import MemoryDisk

Fault = Callable[[Any], Awaitable[None]]
FAULTS: dict[str, tuple[int, dict[str, Any], Fault]] = {}
"""By alert, the size and settings of a group, and what breaks it."""


def fault(alert: str, size: int = 3, **settings: Any) -> Callable[[Fault], Fault]:
    """The function breaks a group so that this alert fires."""

    def note(breaks: Fault) -> Fault:
        FAULTS[f"Dledger{alert}"] = size, settings, breaks
        return breaks

    return note


@fault("NodeDown")
@fault("MemberUnreachable")
async def one_is_killed(group: Any) -> None:
    gone = (await group.follower()).node.node_id
    await group.kill(gone)
    for node in group.nodes.values():
        await group.until(lambda node=node: not node.parts.peers.connected()[gone])


@fault("NodeNotReady", **QUICK)
@fault("NoLeader", **QUICK)
async def majority_is_killed(group: Any) -> None:
    left = await group.follower()
    await group.kill(*(name for name, node in group.nodes.items() if node is not left))
    await group.until(lambda: left.raft.leader_id is None)


@fault("NodeStalled", 1)
async def loop_does_not_run(group: Any) -> None:
    monitor = (await group.leader())._monitor
    now_s = monitor._now_s
    monitor._now_s = lambda: now_s() + 20


@fault("MemberRefused")
async def member_of_another_group_comes(group: Any) -> None:
    client = await BareClient.dial(group.nodes["n0"].port)
    answer = await client.ask(HelloRequest(group="other", node_id="n1", members=("n0", "n1")))
    assert answer.code is not Code.SUCCESS
    client.close()


@fault("ElectionsFrequent", **QUICK)
async def another_leads(group: Any) -> None:
    await group.hand_over((await group.follower()).node.node_id)


@fault("FollowerBehind")
async def follower_gets_nothing(group: Any) -> None:
    client, topic = await group.topic()
    await group.kill((await group.follower()).node.node_id)
    waiting = [client.start(AppendRequest(timeout_ms=20_000), body(topic)) for _ in range(1100)]
    assert {answer.code for answer, _ in await asyncio.gather(*waiting)} == {Code.SUCCESS}


@fault("NodeNotAdmitted")
async def disk_is_replaced(group: Any) -> None:
    await group.agree()
    node = await group.replace_disk((await group.follower()).node.node_id, metrics_port=0)
    await group.until(lambda: node.raft.leader_id and not node.raft.is_admitted)


class Filling(MemoryDisk):
    """A disk of which a test says how much is free."""

    free = 50

    def statvfs(self, path: Path) -> DiskSpace:
        return DiskSpace(total=100, free=self.free)


def fills(free: int) -> Fault:
    async def fill(group: Any) -> None:
        node = await group.leader()
        group.disks["n0"].free = free
        await group.until(lambda: node.parts.disk_watch.level)

    return fill


ROOM: dict[str, Any] = {"disks": Filling, "disk_reserve_bytes": 0}
fault("DiskFilling", 1, **ROOM)(fills(8))
fault("DiskFull", 1, **ROOM)(fills(1))


@fault("EntriesDamaged", 1, scrub_pause_ms=0)
async def byte_of_the_log_changes(group: Any) -> None:
    client, topic = await group.topic()
    for number in range(3):
        await client.append(body(topic, b"payload %d" % number))
    node = await group.leader()
    damage(group.folder / "n0", b"payload 1", at=0)
    await group.until(lambda: node.parts.repairs.runs)


@fault("CatalogLost", **SMALL, **QUICK)
async def snapshots_are_damaged_and_no_leader_is_there(group: Any) -> None:
    await write_trimmed(group)
    name = (await group.follower()).node.node_id
    await group.stop(name)
    damage_snapshots(group.folder / name)
    await group.kill()
    node = await group.start(name)
    assert node.parts.context.catalog_lost


@fault("CertificateExpires", 1)
async def certificate_is_replaced_by_one_that_ends_soon(group: Any) -> None:
    node = await group.leader()
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=5)
    files = group.issue(nodes=("n0",), not_after=soon)
    for name in ("tls_certificate", "tls_key", "tls_ca"):
        shutil.copyfile(files[name], getattr(node.node, name))
    node.reload()
    group.tls = context_of(files)


@fault("DiskSlow", 1)
async def syncs_take_long(group: Any) -> None:
    client, topic = await group.topic()
    seconds = itertools.count()
    (await group.leader()).parts.ready_loop.log_writer._now_s = lambda: float(next(seconds))
    assert (await client.append(body(topic))).code is Code.SUCCESS


@fault("LeaderOverloaded", pending_bytes=100_000)
async def followers_are_gone_under_load(group: Any) -> None:
    client, topic = await group.topic()
    leader = await group.kill_followers()
    client.start(AppendRequest(timeout_ms=60_000), body(topic, bytes(90_000)))
    await group.until(lambda: leader.parts.proposals.unanswered.held_bytes > 90_000)
    assert leader.raft.role is Role.LEADER


@fault("ConnectionsNearLimit", 1, max_connections=5)
async def all_places_are_taken(group: Any) -> None:
    for _ in range(5):
        await group.client()


@fault("RequestsRefused", 1)
async def topic_is_not_there(group: Any) -> None:
    client = await group.client()
    for _ in range(15):
        assert (await client.append(body(77))).code is Code.UNKNOWN_TOPIC


@fault("ConsumerGroupBehind", 1)
async def group_does_not_process(group: Any) -> None:
    client, topic = await group.topic()
    await client.append(body(topic, count=5, last_time_us=REAL.wall_us() - 3600 * 1_000_000))
    await client.execute(CommitOffsets(consumer_group="slow", offsets={"t": {0: 2}}))


@fault("ClockOff")
async def clock_differs_from_the_leaders(group: Any) -> None:
    clocks = (await group.follower()).parts.proposals.clocks
    clocks.compare(REAL.wall_ms() + 600_000, REAL.now_ms())


@pytest.mark.parametrize("alert", sorted(FAULTS))
async def test_alert_fires_by_its_fault(
    play: Callable[..., Any], issue: Any, tmp_path: Path, alert: str
) -> None:
    promtool()
    size, settings, breaks = FAULTS[alert]
    tls = issue(nodes=("n0",)) if alert == "DledgerCertificateExpires" else {}
    async with play(size, metrics_port=0, **settings, **tls) as group:
        group.issue = issue
        group.tls = context_of(tls) if tls else None
        await group.leader()
        for node in group.nodes.values():
            await group.until(
                lambda node=node: (
                    all(node.parts.peers.connected().values())
                    and not node._monitor.health.unready(REAL.now_s())
                )
            )
        before = await scrape(group)
        await breaks(group)
        after = await scrape(group)
    rates(tmp_path, alert, before, after)


def test_every_alert_has_a_fault() -> None:
    assert sorted(alerts()) == sorted(FAULTS)
    assert len(alerts()) >= 12
