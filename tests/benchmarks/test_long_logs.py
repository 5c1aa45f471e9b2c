"""Logs of which large zeros are holes, for the curves of ``make bench``: whole logs to a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gaps import BEGUN, CHECKPOINTS, GONE, Seen
from benchmarks.groups import group
from benchmarks.long_logs import grow
from dledger import Client

MIB = 1 << 20


@pytest.mark.cluster
def test_log_with_holes_is_read_as_if_all_of_it_were_there(tmp_path: Path) -> None:
    """The client compares each body with its checksum; small bodies are on the disk, large ones
    nearly none of them; and the node has nothing to replay."""
    settings = {"segment_bytes": 4 * MIB, "max_body_bytes": MIB}
    with group(tmp_path, 1, **settings) as running:
        with Client(running.bootstrap_servers) as client:
            client.append("bench", b"before", partition=0)
            topic_id = client.topic("bench").topic_id
        running.stop()
        grow(running.path, topic_id, MIB // 2, end_pos=64 * MIB)
        files = list((Path(running.path) / "n0" / "data").iterdir())
        assert sum(path.stat().st_size for path in files) >= 64 * MIB
        assert sum(path.stat().st_blocks * 512 for path in files) < 8 * MIB
        last = grow(running.path, topic_id, 100, end_index=5000)
        assert last == 5000
        running.start()
        with Client(running.bootstrap_servers) as client:
            [state] = client.status().values()
            assert state["checkpoint_index"] >= last
            values = [v for b in client.read("bench", 0, 0) for v in b["value"].to_pylist()]
            large = values.count(bytes(MIB // 2))
            assert large >= 64 * MIB // (MIB // 2 + 4096)
            assert values == [
                b"before",
                *[bytes(MIB // 2)] * large,
                *[bytes(100)] * (len(values) - large - 1),
            ]
            client.append("bench", b"behind", partition=0)
            [batch] = client.read("bench", 0, len(values))
            assert batch["value"].to_pylist() == [b"behind"]


def test_files_that_come_and_go_are_counted(tmp_path: Path) -> None:
    for name in ("data", "snapshot"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "0").touch()
    seen = Seen(tmp_path)
    seen.look()
    assert set(seen.counts.values()) == {0}
    (tmp_path / "data" / "0").unlink()
    for name in ("data/1", "data/2", "snapshot/1"):
        (tmp_path / name).touch()
    seen.look()
    seen.look()
    assert seen.counts == {BEGUN: 2, GONE: 1, CHECKPOINTS: 1}
