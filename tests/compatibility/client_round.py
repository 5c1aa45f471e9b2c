"""A client's basic round, run by the interpreter of either release: ``client_round.py ADDRESSES
NAME``. Appends, reads, groups, a transaction and a consumer; prints what came back as JSON."""

from __future__ import annotations

import json
import sys

from dledger import Client


def play(addresses: str, name: str) -> dict[str, object]:
    """What a round with a topic of this name sees."""
    with Client(addresses, request_timeout_ms=60_000) as client:
        client.create_topic(name, 2)
        client.append(name, ["a", "b"], keys=["1", "2"])
        for number in range(20):
            client.append(name, f"v{number}".encode(), partition=number % 2)
        with client.producer(name) as producer:
            producer.append(b"produced", partition=0).result()
        with client.transaction(f"writer-of-{name}", 0) as transaction:
            transaction.append(name, b"committed", partition=1)
        ends = client.end_offsets(name)
        client.commit_offsets(f"group-of-{name}", {name: ends})
        read = client.table(name).column("value").to_pylist()
        client.create_topic(f"{name}-typed", type="typed")
        client.append(f"{name}-typed", [{"id": 1, "text": "x"}])
        consumed = _consumed(client, name, sum(ends.values()))
        return {
            "read": sorted(bytes(value).decode() for value in read),
            "consumed": consumed,
            "typed": client.table(f"{name}-typed").select(["id", "text"]).to_pylist(),
            "lag": sum(row.rows for row in client.lag(f"group-of-{name}")),
            "leads": sum(state.get("role") == "LEADER" for state in client.status().values()),
        }


def _consumed(client: Client, name: str, count: int) -> int:
    with client.consumer(f"consumers-of-{name}", [name], auto_offset_reset="earliest") as consumer:
        seen = 0
        while seen < count:
            seen += len(consumer.poll(10))
        consumer.commit()
    return seen


if __name__ == "__main__":
    print(json.dumps(play(*sys.argv[1:])))  # noqa: T201
