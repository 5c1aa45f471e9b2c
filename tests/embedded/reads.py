"""What a client reads of a topic."""

from __future__ import annotations

from dledger import Client


def values(client: Client, topic: str = "t") -> list[bytes]:
    """Of all records of its first partition."""
    return [value for batch in client.read(topic, 0, 0) for value in batch["value"].to_pylist()]
