"""Commits of writes as they are followed: right while writers give way to others and nodes restart,
and broken by a catalog that has forgotten one, or takes another one for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dledger.client import AsyncClient, AsyncStage, Committed
from dledger.errors import ReplayMismatch
from dledger.protocol.messages.catalog_commands import StageSum
from dledger.records.body.build import make_records
from dledger.records.digest import RowsSum, sum_rows
from tests.verification.watching import breaks
from verification.sim.scene import Scene
from verification.sim.watched_server import WatchedServer

MOST = 4
"""Writers that are remembered by name, and so many again by the hash of it."""


class Queries:
    """Writes of many queries, one micro-batch each, in a group that remembers few."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.client, self.loop = scene.client()
        assert scene.world.watch is not None
        self.watch = scene.world.watch
        scene.leader()
        self.run(self.client.create_topic, "t")

    def run(self, call: Callable[..., Any], *args: Any) -> Any:
        return self.scene.run(self.loop, lambda: call(*args))

    def write(self, query: int, *values: bytes, batch: int = 0) -> Committed:
        done: Committed = self.run(self._write, f"spark/{query}/t", batch, values)
        return done

    async def _write(self, name: str, batch: int, values: tuple[bytes, ...]) -> Committed:
        rows = make_records(list(values))
        stage = await self.client.stage(name, batch)
        stages = []
        if isinstance(stage, AsyncStage):
            await stage.append_batch("t", 0, rows)
            stages.append(await stage.close())
        return await self.client.commit_transaction(name, batch, stages, sum_rows(rows))

    def job(self, name: str) -> None:
        async def write() -> None:
            transaction = await self.client.transaction(f"job/{name}", 0)
            await transaction.append("t", [b"job"], partition=0)
            await transaction.commit()

        self.run(write)

    def rows(self) -> int:
        ends: dict[int, int] = self.run(self.client.end_offsets, "t")
        return ends[0]

    def restart(self) -> None:
        """All nodes lose their power, and come again with the catalogs that they have saved."""
        nodes = self.scene.group.nodes
        for node in nodes:
            node.kill(power=True)
        for node in nodes:
            if not node.is_up:
                node.boot()
        self.scene.leader()

    def check(self) -> None:
        for view in self.watch.views.values():
            self.watch.writers.check(view)


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queries]:
    make_parts = WatchedServer._make_parts

    def remembers_few(server: WatchedServer, *given: Any) -> None:
        make_parts(server, *given)
        server.catalog.transactions.writers.most = MOST

    monkeypatch.setattr(WatchedServer, "_make_parts", remembers_few)
    with Scene(3, node={"checkpoint_bytes": 1, "flush": "sync"}) as scene:
        yield Queries(scene)


def test_w1_displaced_query_must_repeat_the_rows_of_its_batch(
    queries: Queries,
) -> None:
    """Many other queries have displaced it; other rows than those of the batch are refused."""
    for number in range(2 * MOST):
        queries.write(number, b"a", b"b")
        queries.job(f"{number}")
    leader = queries.scene.leader()
    assert leader.server is not None
    writers = leader.server.catalog.transactions.writers
    assert len(writers.traces) >= MOST // 2, "some are known by the hash of their name alone"
    before = queries.rows()
    for is_restarted in (False, True):
        if is_restarted:
            queries.restart()
        for number in (0, 1, 2 * MOST - 1):
            with pytest.raises(ReplayMismatch):
                queries.write(number, b"a", b"other")
            assert queries.write(number, b"b", b"a").repeated, (
                "the order of rows is no part of them"
            )
        queries.check()
    assert queries.rows() == before


def test_w1_older_batch_is_refused_and_the_next_one_is_new(
    queries: Queries,
) -> None:
    """This also holds after a restart."""
    queries.write(0, b"a", batch=0)
    queries.write(0, b"b", batch=1)
    queries.restart()
    with pytest.raises(ReplayMismatch):
        queries.write(0, b"a", batch=0)
    assert not queries.write(0, b"a", batch=2).repeated
    assert queries.rows() == 3


def test_w1_writer_followed_by_many_may_be_forgotten_despite_repeats(
    queries: Queries,
) -> None:
    """A repeat does not make a writer the newest one while it is known by its name."""
    queries.write(0, b"a")
    for number in range(1, 2 * MOST + 1):
        queries.write(number, b"a")
        if number < MOST:
            assert queries.write(0, b"a").repeated
    assert not queries.write(0, b"a").repeated
    queries.check()


def test_w1_returning_writer_with_a_repeat_may_displace_another_one(
    queries: Queries,
) -> None:
    """One that is known by the hash of its name alone is kept by its name again."""
    for number in range(2 * MOST):
        queries.write(number, b"a")
    for number in range(MOST):
        assert queries.write(number, b"a").repeated
    for number in range(2 * MOST, 3 * MOST):
        queries.write(number, b"a")
    queries.check()


async def staged(client: AsyncClient, name: str, value: bytes) -> tuple[StageSum, RowsSum]:
    rows = make_records([value])
    stage = await client.stage(name, 0)
    assert isinstance(stage, AsyncStage)
    await stage.append_batch("t", 0, rows)
    return await stage.close(), sum_rows(rows)


def test_w1_two_drivers_with_other_rows_at_once_are_one_write(queries: Queries) -> None:
    """A checkpoint was copied, and both queries have staged their batch before either commits."""
    name, client = "spark/fork/t", queries.client
    (first, first_rows), (second, second_rows) = (
        queries.run(staged, client, name, value) for value in (b"a", b"b")
    )
    queries.run(client.commit_transaction, name, 0, [first], first_rows)
    with pytest.raises(ReplayMismatch):
        queries.run(client.commit_transaction, name, 0, [second], second_rows)
    assert queries.rows() == 1


def test_w1_batch_committed_without_a_digest_is_a_repeat_when_restaged(
    queries: Queries,
) -> None:
    """A driver of an earlier release was still at work when that of this one was started."""
    name, client = "spark/upgraded/t", queries.client
    (first, _), (second, rows) = (
        queries.run(staged, client, name, value) for value in (b"a", b"a")
    )
    queries.run(client.commit_transaction, name, 0, [first])
    assert queries.run(client.commit_transaction, name, 0, [second], rows).repeated
    assert queries.rows() == 1


def harmed(queries: Queries, harm: str) -> None:
    """All catalogs have this wrong, so that only what was committed before can tell."""
    for view in queries.watch.views.values():
        writers = view.catalog.transactions.writers
        writer = writers.by_name["spark/0/t"]
        if harm == "forgotten":
            del writers.by_name["spark/0/t"]
        elif harm == "other rows":
            writer.digest = "0" * 16
        elif harm == "held to nothing":
            writer.digest = ""
        else:
            writer.sequence -= 1


@pytest.mark.parametrize(
    ("harm", "rows"),
    [("forgotten", b"a"), ("other rows", b"a"), ("held to nothing", b"b"), ("batch before", b"a")],
)
def test_w1_a_commit_that_is_taken_for_another_one_is_found(
    queries: Queries, harm: str, rows: bytes
) -> None:
    queries.write(0, b"a", batch=3)
    queries.scene.wait(3000)
    queries.check()
    harmed(queries, harm)
    breaks("W1", queries.check)
    breaks("W1", queries.write, 0, rows, batch=3)
