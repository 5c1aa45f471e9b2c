"""A disk that has lost the end of its log, under real nodes: no voter until it is admitted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from dledger.protocol.messages.codes import Code
from dledger.types import NodeId
from tests.node.bodies import body

PARTS = ("data", "index", "mark")
SIZES = {"segment_bytes": 1 << 16, "index_file_bytes": 1 << 13, "max_body_bytes": 1 << 14}


def copy(source: Path, target: Path) -> None:
    """The log, and what tells of its end."""
    for part in PARTS:
        if (source / part).is_dir():
            shutil.rmtree(target / part, ignore_errors=True)
            shutil.copytree(source / part, target / part)
        else:
            shutil.copy2(source / part, target / part)


@pytest.mark.group(**SIZES)
async def test_member_that_lost_end_of_its_log_is_no_voter_until_admitted(
    group: Any, tmp_path: Path, caplog: Any
) -> None:
    """Until then the member reports the loss."""
    client, topic = await group.topic()
    await group.agree()
    await group.stop("n2")
    (tmp_path / "before").mkdir()
    copy(tmp_path / "n2", tmp_path / "before")
    await group.start("n2")
    client = await group.client()
    await client.write(topic, [b"x"] * 20)
    await group.agree()
    former = group.nodes[NodeId("n2")].store.identity.incarnation
    await group.stop("n2")
    copy(tmp_path / "before", tmp_path / "n2")
    lossy = await group.start("n2")
    lost = lossy.store.recovery.lost
    assert "the disk has lost them" in lost
    assert "dledger admit" in lost
    assert lost in caplog.text
    assert lossy.store.identity.incarnation != former
    own = await group.client(lossy)
    assert (await own.status())["recovery"]["lost"] == lost
    await group.agree()
    assert not lossy.raft.is_admitted
    leader = await group.leader()
    # The entries are there again by the leader's pushes, and still it counts for nothing: with
    # it no quorum is one.
    other = next(name for name in ("n0", "n1") if name != leader.node.node_id)
    await group.kill(other)
    answer = await (await group.client(leader)).append(body(topic), timeout_ms=500)
    assert answer.code is not Code.SUCCESS
    await group.start(other)
    admitted = await group.admit("n2")
    assert admitted.code is Code.SUCCESS, admitted
    await group.until(lambda: lossy.raft.is_admitted)
    await group.kill(other)
    client = await group.client(await group.leader())
    assert (await client.append(body(topic))).code is Code.SUCCESS
