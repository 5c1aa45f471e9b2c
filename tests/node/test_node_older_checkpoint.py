"""A node that starts from an older checkpoint than the one by which retention dropped rows of the
topic index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trimming import SMALL, body, has_saved, payload, read_all, write

from dledger.protocol.messages.catalog_commands import CommitTransaction, OpenStage, StageSum
from dledger.protocol.messages.codes import Code
from dledger.records.body.header import BodyHeader, BodyKind, Flag, encode_header
from dledger.storage.meta import tables
from dledger.storage.offline.verify import verify_store

WHEN_ASKED = {"checkpoint_bytes": 64 << 20, "checkpoint_entries": 1_000_000}
"""No checkpoint comes by itself."""


def staged(topic: int, stage: int, number: int) -> bytes:
    header = BodyHeader(
        BodyKind.DATA, topic, 0, 1, producer_id=stage, sequence=number, flags=Flag.STAGED
    )
    return encode_header(header) + payload(number)


async def save(group: Any, node: Any) -> int:
    """A checkpoint of all that is applied."""
    index = node.catalog.applied_index
    await group.until(lambda: has_saved(node, index))
    return int(node.checkpoints.index)


def first_row(node: Any, topic: int) -> int:
    """Of the file in which the rows of partition 0 are."""
    (path,) = Path(node.node.directory).glob(f"tables/topic-{topic}-0.*")
    return int(path.name.rpartition(".")[2])


@pytest.mark.parametrize("lost", ["damaged", "not saved"])
async def test_start_from_older_checkpoint_goes_on_after_rows_were_dropped(
    play: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Retention goes by the older checkpoint; but a transaction's rows, which come with its COMMIT,
    go with its batches, and those may lie in front of that checkpoint."""
    monkeypatch.setattr(tables, "CHUNK_ROWS", 4)
    async with play(1, **{**SMALL, **WHEN_ASKED}) as group:
        client, (node,) = await group.client(), group.nodes.values()
        topic = await write(group, 0, 20)
        stage = (
            await client.execute(OpenStage(writer_id="w", sequence=0, label="", timeout_ms=600_000))
        ).result
        number = stage["stage_id"]
        for at in range(3):
            assert (await client.append(staged(topic, number, at))).code is Code.SUCCESS
        await write(group, 20, 60)
        older = await save(group, node)
        known = node.catalog.partitions[topic << 32].rows
        commit = CommitTransaction(
            writer_id="w", sequence=0, stages=(StageSum(stage_id=number, batches=3, records=3),)
        )
        assert (await client.execute(commit)).result["offsets"] == {"t": {0: (60, 63)}}
        for at in range(60, 90):
            assert (await client.append(body(topic, payload(at)))).code is Code.SUCCESS
        if lost == "damaged":
            assert await save(group, node) > older
        await group.until(lambda: first_row(node, topic) > known)
        assert node.checkpoints.oldest_index == older
        begin, log_begins = node.catalog.begin_offset(topic, 0), node.store.begin_index
        assert known < begin == 63
        kept = await read_all(group, node, topic)
        await group.kill("n0")
        if lost == "damaged":
            max((group.folder / "n0" / "snapshot").iterdir()).write_bytes(bytes(100))
        await group.start("n0", retention_bytes=0)
        node = await group.leader()
        assert node.store.begin_index == log_begins
        await group.until(lambda: node.catalog.begin_offset(topic, 0) == begin)
        assert await read_all(group, node, topic) == kept
        assert len(kept) == 30
        await write(group, 90, 95)
        await save(group, node)
        await group.kill("n0")
        await group.start("n0", retention_bytes=0)
        node = await group.leader()
        assert len(await read_all(group, node, topic)) == 35
        await group.stop("n0")
        assert verify_store(group.folder / "n0")["problems"] == []
