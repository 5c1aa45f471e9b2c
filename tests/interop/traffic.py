"""Messages of every kind for a real broker, and the comparison of what it serves with what is read
here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dledger.errors import PathError
from dledger.rocketmq.files import tail
from dledger.rocketmq.files.layout import Store, open_store
from dledger.rocketmq.files.ranges import FileRange, cut, plan_store, read_range
from dledger.rocketmq.files.storage import Storage

TOPICS = {"orders": 3, "payments": 1, "shop%A-b_9": 2}
"""Topic -> queues."""
HIDDEN = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC")
"""Where a broker keeps transactions; it lets no consumer pull from these."""
PULLED = (
    "topic", "queue_id", "queue_offset", "physical_offset", "message_id", "unique_key", "keys",
    "tags", "body", "properties", "born_timestamp", "born_host", "store_timestamp", "store_host",
    "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset", "body_crc", "stored_size",
)  # fmt: skip
"""What a consumer has of a message: all columns but three, of which a consumer does not know."""
ENTRY = ("entry_index", "term", "position", "size", "body")
Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


def plain(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Ordinary messages over all queues, of sizes that end files in many ways; with odd keys, tags
    and properties."""
    queues = [(topic, queue) for topic, number in TOPICS.items() for queue in range(number)]
    messages = []
    for n in range(first, first + count):
        topic, queue = queues[n % len(queues)]
        body = bytes((n + i) & 255 for i in range(1 + n * 97 % 2000))
        message: dict[str, Any] = {"topic": topic, "queue": queue, "body": body}
        keys = ({}, {"keys": f"k{n}"}, {"keys": f"k{n} shared schlüssel-{n}"}, {"keys": ""})
        message |= keys[n % 4]
        message |= ({}, {"tags": f"t{n % 5}"}, {"tags": "größe"})[n % 3]
        if n % 5 == 0:
            properties = {"日本": "🚀 value", "a": "1", "long": "x" * (n % 700 + 1)}
            message |= {"properties": properties, "flag": n - 50}
        messages.append(message)
    return messages


def packable() -> list[dict[str, Any]]:
    """Bodies that a producer packs, for each of its ways to pack."""
    bodies = [b"packed %d " % n * (500 + 700 * n) for n in range(6)]
    return [
        {"topic": "orders", "queue": n % 3, "body": body, "keys": f"packed{n}"}
        for n, body in enumerate(bodies)
    ]


def batch(count: int = 20) -> list[dict[str, Any]]:
    """Messages of one batch: of one topic and queue."""
    alike = {"topic": "orders", "queue": 1, "tags": "many"}
    return [{**alike, "body": b"of a batch %d" % n, "keys": f"batch{n}"} for n in range(count)]


def send_all_kinds(client: Any, count: int) -> None:
    """Messages of every kind that the client knows; returns once the delayed one has been
    delivered."""
    for topic, queues in TOPICS.items():
        client.create_topic(topic, queues)
    client.send(plain(count))
    for compression in ("ZLIB", "LZ4", "ZSTD"):
        client.send(packable(), compression=compression)
    client.send(batch(), do="batch")
    for outcome in ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"):
        half = {"topic": "payments", "body": b"half: " + outcome.encode()}
        halves = [{**half, "keys": f"half{n}"} for n in range(3)]
        client.send(halves, do="transaction", outcome=outcome)
    client.send([{"topic": "payments", "queue": 0, "body": b"later", "delay": 1, "keys": "later"}])


def is_all_delivered(messages: Iterable[dict[str, Any]]) -> bool:
    """Whether each delayed message has come back under its own topic."""
    delivered = [one["topic"] in TOPICS for one in messages if one["keys"] == "later"]
    # one of two stays under the broker's own topic
    return bool(delivered) and 2 * sum(delivered) == len(delivered)


def opened(path: Path | str, layout: str = "rocketmq") -> Store:
    """A store as it is now."""
    return open_store(Storage.of(str(path), {}), layout)


def rows(path: Path | Store, most: int = 1 << 40) -> list[dict[str, Any]]:
    """Every message of a store, in the log's order, as a consumer has it; there must be no
    damage."""
    store = path if isinstance(path, Store) else opened(path)
    plan = plan_store(store)
    assert not plan.faults
    return _read(store, cut(plan.ranges, most))


def entries(path: Path) -> list[dict[str, Any]]:
    """Every entry of a node of DLedger."""
    store = opened(path, "dledger")
    return _rows(store, plan_store(store).ranges, ENTRY)


def _read(store: Store, ranges: Iterable[FileRange]) -> list[dict[str, Any]]:
    return [comparable(row) for row in _rows(store, ranges, PULLED)]


def _rows(
    store: Store, ranges: Iterable[FileRange], columns: Sequence[str]
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for one in ranges:
        for read in read_range(store.storage, store.layout, one, columns):
            assert not read.damage
            found += read.rows.to_pylist() if read.rows is not None else []
    return found


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """With times in milliseconds, as a consumer has them."""
    times = {
        name: round(row[name].timestamp() * 1000) for name in ("born_timestamp", "store_timestamp")
    }
    return {**row, **times, "properties": dict(row["properties"])}


def snake_case(name: str) -> str:
    """Spark's columns have the same names in another style."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


class Tail:
    """Reads a store as a stream does, from look to look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        self.looks = 0
        """How many of them found something new."""
        self._known: tail.Places = {}

    def look(self) -> int:
        """Read what has been written since; answers how many messages there were in all."""
        try:
            store = opened(self.path)
        except PathError:  # no file yet
            return 0
        start = tail.begins(store) | self._known
        stop = tail.ends(store, start)
        assert not tail.faults_between(store, start, stop)
        new = _read(store, tail.ranges_between(store, start, stop))
        self.rows += new
        self.looks += bool(new)
        self._known |= stop
        return len(self.rows)


def by_place(messages: Iterable[dict[str, Any]]) -> dict[Place, dict[str, Any]]:
    """No two may have the same place."""
    found: dict[Place, dict[str, Any]] = {}
    for one in messages:
        place = (one["topic"], one["queue_id"], one["queue_offset"])
        assert place not in found, f"twice: {place}"
        found[place] = one
    return found


def pulled(client: Any, like: Iterable[Place]) -> dict[Place, dict[str, Any]]:
    """Every message that a consumer pulls from the queues of these."""
    queues = sorted({place[:2] for place in like})
    return by_place(one for topic, queue in queues for one in client.pull(topic, queue))


def served(
    client: Any, ours: dict[Place, dict[str, Any]], at_least: int
) -> dict[Place, dict[str, Any]] | None:
    """Every message that a consumer pulls from the queues of these, and of what it may not pull,
    each that it looks up; None while there are too few, because a broker's queues follow its
    log."""
    found = pulled(client, (place for place in ours if place[0] not in HIDDEN))
    found |= by_place(
        client.view(one["message_id"]) for one in ours.values() if one["topic"] in HIDDEN
    )
    return found if len(found) >= at_least else None


def written(real: Any, client: Any, store: Path) -> dict[Place, dict[str, Any]]:
    """Every message of a broker's store, with the delayed ones, when its consumer pulls them all;
    so they are read here."""
    real.eventually("the delayed messages", lambda: is_all_delivered(rows(store)))
    ours = by_place(rows(store))
    found: dict[Place, dict[str, Any]] = all_served(real, client, ours)
    return found


def all_served(
    real: Any, client: Any, ours: dict[Place, dict[str, Any]], more: int = 0
) -> dict[Place, dict[str, Any]]:
    """These, and so many others, as soon as a consumer pulls them all."""
    at_least = len(ours) + more
    found: dict[Place, dict[str, Any]] = real.eventually(
        "all to be pulled", lambda: served(client, ours, at_least)
    )
    return found


def assert_same(ours: dict[Place, dict[str, Any]], theirs: dict[Place, dict[str, Any]]) -> None:
    """Message by message, so that a failure says which."""
    assert sorted(ours) == sorted(theirs)
    for place, message in theirs.items():
        assert ours[place] == message, place
