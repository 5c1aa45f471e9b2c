"""A node that starts from an older checkpoint than the one by which retention dropped rows of the
topic index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dledger.storage.meta import tables
from tests.node.trimming import SMALL, has_saved, payload, read_all, stop_sound, write

WHEN_ASKED = {"checkpoint_bytes": 64 << 20, "checkpoint_entries": 1_000_000}
"""No checkpoint comes by itself."""


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
        stage = await client.stage()
        for at in range(3):
            await client.write(topic, [payload(at)], sequence=at, **stage)
        await write(group, 20, 60)
        older = await save(group, node)
        known = node.catalog.partitions[topic << 32].rows
        assert (await client.commit(stage, 3)).result["offsets"] == {"t": {0: (60, 63)}}
        await write(group, 60, 90)
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
        await group.restart("n0", kill=True, retention_bytes=0)
        node = await group.leader()
        assert len(await read_all(group, node, topic)) == 35
        await stop_sound(group, "n0")
