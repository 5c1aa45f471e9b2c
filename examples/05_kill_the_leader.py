"""python examples/05_kill_the_leader.py

SIGKILL the leader while records are being appended; see how long nothing is acknowledged, and that
nothing is lost.
"""

import tempfile
import threading
import time
from itertools import pairwise

from dledger import Client, EmbeddedGroup

RECORDS = 3000


def append_all(client: Client, acknowledged: list[tuple[float, int]]) -> None:
    """One record at a time; note when each was acknowledged and where it is."""
    for n in range(RECORDS):
        appended = client.append("events", str(n).encode())
        acknowledged.append((time.monotonic(), appended.start))


def main() -> None:
    """A killed leader is an election; the client goes on by itself, with the same sequence
    numbers."""
    with (
        tempfile.TemporaryDirectory() as directory,
        EmbeddedGroup(directory, replicas=3) as group,
        Client(group.bootstrap_servers) as client,
    ):
        client.create_topic("events")
        acknowledged: list[tuple[float, int]] = []
        writer = threading.Thread(target=append_all, args=(client, acknowledged))
        writer.start()
        while len(acknowledged) < RECORDS // 3:
            time.sleep(0.01)

        victim = group.leader
        killed_at = time.monotonic()
        group.kill(victim)
        writer.join()
        moments = [killed_at, *(at for at, _ in acknowledged if at > killed_at)]
        gap = max(later - earlier for earlier, later in pairwise(moments))
        print(
            f"SIGKILL of {victim}; nothing was acknowledged for {gap * 1000:.0f} ms, then "
            f"{group.leader} led"
        )
        group.restart(victim)

        values = [
            row["value"]
            for batch in client.read("events", 0, 0, RECORDS)
            for row in batch.to_pylist()
        ]
        assert values == [str(n).encode() for n in range(RECORDS)], (
            "a record is missing, doubled, or out of order"
        )
        assert [offset for _, offset in acknowledged] == list(range(RECORDS))
        print(f"all {RECORDS} acknowledged records are there, once, in order")


if __name__ == "__main__":
    main()
