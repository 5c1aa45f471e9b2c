"""python examples/06_embed_a_node.py

An application that owns its log: it runs one node of the group itself, the other two run elsewhere.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from dledger import EmbeddedNode
from dledger.embedded.ports import free_ports
from session import spark_session


@contextmanager
def served_elsewhere(peers: str, names: list[str], directory: str) -> Iterator[None]:
    """The other nodes; on their machines one would type ``dledger serve`` with the same
    arguments."""
    serve = [sys.executable, "-m", "dledger", "serve", "--peers", peers]
    nodes = [
        subprocess.Popen([*serve, "--self-id", name, "--dir", f"{directory}/{name}"])
        for name in names
    ]
    try:
        yield
    finally:
        for node in nodes:
            node.terminate()
        for node in nodes:
            node.wait()


def main() -> None:
    """n0 is ours and preferred as leader; it hands over before it ends."""
    spark = spark_session("embedded")
    peers = ";".join(f"n{i}-127.0.0.1:{port}" for i, port in enumerate(free_ports("127.0.0.1", 3)))
    print("peers:", peers)
    with (
        tempfile.TemporaryDirectory() as directory,
        served_elsewhere(peers, ["n1", "n2"], directory),
        EmbeddedNode(f"{directory}/n0", peers, "n0") as node,
    ):
        node.wait_for_leader()
        print(
            "this application's node is", node.role.name if node.role is not None else "not there"
        )

        # The same three things as options of the format: Spark finds the node that runs, or starts
        # it.
        options = {"dledger.peers": peers, "dledger.selfId": "n0"}
        jobs = spark.range(1000).selectExpr("cast(id as string) as value")
        jobs.write.format("dledger").options(**options).option("topic", "jobs").mode("append").save(
            f"{directory}/n0"
        )
        table = (
            spark.read.format("dledger")
            .options(**options)
            .option("subscribe", "jobs")
            .load(f"{directory}/n0")
        )
        print("rows:", table.count())
    spark.stop()


if __name__ == "__main__":
    main()
