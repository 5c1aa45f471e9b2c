"""python examples/02_append_and_tail.py

Append records in the three shapes that there are, read them back as Arrow, and follow a topic as it
grows.
"""

import tempfile
import threading

import pyarrow as pa

from dledger import Client, EmbeddedGroup


def tail(bootstrap_servers: str, count: int) -> None:
    """Print records as they are committed, until there were so many."""
    seen = 0
    with Client(bootstrap_servers) as client:
        for batch in client.read("orders", 0, 0, follow=True):
            for row in batch.to_pylist():
                print(f"  tail: offset {row['offset']}, key {row['key']}, value {row['value']}")
            seen += batch.num_rows
            if seen >= count:
                return


def main() -> None:
    """One writer and one reader, at the same time."""
    with (
        tempfile.TemporaryDirectory() as directory,
        EmbeddedGroup(directory, replicas=3) as group,
        Client(group.bootstrap_servers) as client,
    ):
        client.create_topic("orders")
        reader = threading.Thread(target=tail, args=(group.bootstrap_servers, 6))
        reader.start()

        print("one record:", client.append("orders", b"a single one"))
        print("a list:", client.append("orders", [b"two", b"three"], keys=[b"k2", b"k3"]))
        print("an Arrow array:", client.append("orders", pa.array([b"four", b"five"])))
        # pipelined and idempotent: many in flight, each once
        with client.producer("orders") as producer:
            print("a future:", producer.append([b"six"]).result())
        reader.join()

        print("begin", client.begin_offsets("orders"), "end", client.end_offsets("orders"))
        table = pa.Table.from_batches(client.read("orders", 0, 2, 5))
        print(table.select(["offset", "timestamp", "value"]))


if __name__ == "__main__":
    main()
