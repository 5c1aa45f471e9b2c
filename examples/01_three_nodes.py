"""python examples/01_three_nodes.py

Start a group of three nodes on this machine, look at it, hand its leadership over, and stop it.
"""

import tempfile

from dledger import Client, EmbeddedGroup


def main() -> None:
    """Each node is a process of its own, with files of its own."""
    with tempfile.TemporaryDirectory() as directory, EmbeddedGroup(directory, replicas=3) as group:
        print("the group listens on", group.bootstrap_servers)
        for node_id, node in group.nodes.items():
            print(f"  {node_id}: {node}")
        print("its leader is", group.leader)

        with Client(group.bootstrap_servers) as client:
            client.create_topic("greetings")
            appended = client.append("greetings", [b"hello", b"world"])
            print(f"a majority of disks has [{appended.start}, {appended.end}) of {appended.topic}")

            heir = next(node_id for node_id in group.nodes if node_id != group.leader)
            client.transfer(heir)
            print("now its leader is", group.leader)
            for node_id, status in client.status().items():
                print(
                    f"  {node_id}: {status['role']}, term {status['term']}, committed "
                    f"{status['committed_index']}"
                )


if __name__ == "__main__":
    main()
