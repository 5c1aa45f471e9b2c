"""What is in a topic, as its records say it."""

from __future__ import annotations

from dledger import Client


def records_of(client: Client, topic: str, partition: int = 0) -> list[tuple[bytes, bytes]]:
    """Key and value of every record of a partition, in order."""
    end = client.end_offsets(topic)[partition]
    return [
        (row["key"], row["value"])
        for batch in client.read(topic, partition, 0, end)
        for row in batch.to_pylist()
    ]
