"""A group of three nodes with everything that a log can hold, and all that can be read of it.

Uses the public interface alone, so that the release before can run it, too::

    python log_story.py write DIRECTORY    # makes DIRECTORY/log, prints what it should read as
    python log_story.py read DIRECTORY     # prints what it reads as
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from dledger import Client, EmbeddedGroup
from dledger.config import GroupConfig
from dledger.errors import OffsetOutOfRange

SIZES = {
    "segment_bytes": 1 << 16,
    "index_file_bytes": 1 << 13,
    "max_body_bytes": 1 << 14,
    "checkpoint_bytes": 1 << 15,
    "retention_bytes": 3 << 16,
}
if "founding_version" in GroupConfig.__dataclass_fields__:
    SIZES["founding_version"] = 0  # as older releases can read it
TIME_US = 1_700_000_000_000_000


def fill(client: Client) -> None:
    """Topics of each kind, and writes of each kind to them."""
    client.create_topic("events", 3)
    client.create_topic("gone", 1)
    client.create_topic("kept", 1, description="of the release before")
    client.append("gone", [b"deleted with its topic"])
    client.append("events", b"one", partition=0)
    client.append("events", [b"a", None, b""], keys=[b"k", b"k", b"k"], timestamps=TIME_US)
    client.append("events", [b"h"], headers=[("name", b"value"), ("empty", b"")], partition=1)
    with client.producer("events", partition=2) as producer:
        for number in range(50):
            producer.append(b"%d" % number)
    client.append("kept", [bytes(8000)] * 1, partition=0)
    with client.transaction("writer", 1, label="two topics") as transaction:
        transaction.append("events", [b"t1", b"t2"], partition=0)
        transaction.append("kept", [b"t3"], partition=0)
    client.commit_offsets("readers", {"events": {0: 2, 2: 17}})
    client.hold_retention("readers")
    client.delete_topic("gone")
    client.add_partitions("kept", 2)


def client_batch(values: list[bytes]) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})


def grow(client: Client) -> None:
    """More than retention keeps, so that the front of the log goes and checkpoints are made."""
    client.create_topic("filler", 1)
    for _ in range(60):
        client.append("filler", [bytes(10_000)], partition=0)
    while not client.begin_offsets("filler")[0]:
        client.topics()  # retention is under way


@contextmanager
def opened(root: Path, **settings: int) -> Iterator[tuple[EmbeddedGroup, Client]]:
    """The group, which is stopped at the end, and a client of it."""
    with (
        EmbeddedGroup(root / "log", **settings) as group,
        Client(group.bootstrap_servers) as client,
    ):
        yield group, client
        group.stop()


def write(root: Path) -> None:
    with opened(root, replicas=3, **SIZES) as (group, client):
        grow(client)
        fill(client)
        client.append("events", b"before the restart", partition=0)
        client.stage("writer", 2, timeout_ms=604_800_000).append_batch(  # open when the group stops
            "events", 1, client_batch([b"never committed"])
        )
        for node in sorted(group.nodes):  # a term of each
            client.transfer(node)
            client.append("events", b"led by " + node.encode(), partition=1)
    with opened(root) as (_, client):
        client.append("events", b"after the restart", partition=0)


def read(root: Path) -> dict[str, Any]:
    """All that the group says, as plain values."""
    with opened(root) as (group, client):
        return {
            "members": sorted(group.nodes),
            "group_id": client.lineage().group_id,
            "topics": [
                [info.name, info.partitions, info.log_id, info.typed] for info in client.topics()
            ],
            "records": {
                f"{info.name}/{partition}": records(client, info.name, partition)
                for info in client.topics()
                if info.name != "filler"  # retention may go on with it
                for partition in range(info.partitions)
            },
            "groups": {name: client.group(name).offsets for name in client.groups()},
            "commits": [
                [one.index, one.writer_id, one.sequence, one.time_ms, one.offsets]
                for one in client.commits()
            ],
            "again": repeat(client),
        }


def records(client: Client, topic: str, partition: int) -> list[Any]:
    first = client.begin_offsets(topic)[partition]
    try:
        return rows(client, topic, partition, first)
    except OffsetOutOfRange as error:  # of a node that has just started, until it knows
        return rows(client, topic, partition, error.begin)


def rows(client: Client, topic: str, partition: int, first: int) -> list[Any]:
    return [
        [
            row["offset"],
            int(row["timestamp"].timestamp() * 1_000_000),
            text(row["key"]),
            text(row["value"]),
            [[h["key"], text(h["value"])] for h in row["headers"] or ()],
        ]
        for batch in client.read(topic, partition, first)
        for row in batch.to_pylist()
    ]


def text(value: bytes | None) -> str | None:
    """A long value by its digest."""
    if value is not None and len(value) > 64:
        return f"{len(value)} bytes, {sha256(value).hexdigest()}"
    return None if value is None else value.decode("latin-1")


def repeat(client: Client) -> Any:
    """What a repeat of the commit says: it is known, and writes nothing."""
    again = client.stage("writer", 1)
    return [again.repeated, again.records, again.offsets]  # type: ignore[union-attr]


def main(action: str, directory: str) -> None:
    if action == "write":
        write(Path(directory))
    print(json.dumps(read(Path(directory)), sort_keys=True))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
