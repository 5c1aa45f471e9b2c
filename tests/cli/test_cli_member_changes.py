"""``dledger members add``, ``promote``, ``demote`` and ``remove``, with nodes as processes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dledger import Client
from dledger.config import format_peers
from dledger.embedded.ports import free_ports
from dledger.types import NodeId
from tests.cli.commands import out, program, refusal, serving

pytestmark = pytest.mark.cluster


class Processes:
    """Nodes as a user starts them."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        ports = free_ports("127.0.0.1", len(names))
        self._folder = folder
        self.addresses = {
            NodeId(name): f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)
        }
        self.running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, *members: str, options: str = "") -> None:
        peers = format_peers({NodeId(one): self.addresses[NodeId(one)] for one in members})
        words = serving(f"'{peers}'", name, self._folder / name, options)
        self.running[name] = subprocess.Popen(program(words), stderr=subprocess.PIPE, text=True)

    def ended(self, name: str) -> tuple[int, str]:
        """The exit code of a node that ends by itself, and its log."""
        process = self.running.pop(name)
        _, said = process.communicate(timeout=60)
        return process.returncode, said

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.communicate()


@contextmanager
def processes(folder: Path, names: list[str]) -> Iterator[Processes]:
    with ExitStack() as stack:
        found = Processes(folder, names)
        stack.callback(found.close)
        yield found


def test_a_machine_is_replaced_by_another_one_while_the_group_works(tmp_path: Path) -> None:
    founders, everybody = ("n0", "n1", "n2"), ["n0", "n1", "n2", "n3"]
    with processes(tmp_path, everybody) as nodes:
        for name in founders:
            nodes.start(name, *founders)
        group = f"-b {nodes.addresses[NodeId('n1')]}"
        with Client(nodes.addresses[NodeId("n1")]) as client:
            client.create_topic("t")
            client.append("t", b"before")
            place = nodes.addresses[NodeId("n3")]
            assert out(f"members add n3 {place} {group}").startswith("n3 is a learner")
            nodes.start("n3", *everybody, options="--join")
            assert out(f"members promote n3 {group}") == "n3 is a voter\n"
            assert out(f"members remove n0 --yes {group}") == "n0 is no member\n"
            code, said = nodes.ended("n0")
            assert code == 2
            assert "members add n0 HOST:PORT', and start it with --join" in said
            client.append("t", b"after")
            rows = json.loads(out(f"members --json {group}"))
            assert {row["node"]: row["role"] for row in rows} == dict.fromkeys(
                ("n1", "n2", "n3"), "voter"
            )
            nodes.start("n0", *founders)
            code, said = nodes.ended("n0")
            assert (code, "n0 was removed from the group" in said) == (2, True)
        # a client that knows the new one alone
        with Client(nodes.addresses[NodeId("n3")]) as client:
            assert client.end_offsets("t") == {0: 2}


def test_mistakes_are_refused_with_the_reason(tmp_path: Path) -> None:
    with processes(tmp_path, ["n0"]) as nodes:
        nodes.start("n0", "n0")
        group = f"-b {nodes.addresses[NodeId('n0')]}"
        Client(nodes.addresses[NodeId("n0")]).close()
        assert "no voter would be left" in refusal(f"members remove n0 --yes {group}")
        assert "'n00' is not a member (did you mean 'n0'?)" in refusal(
            f"members demote n00 {group}"
        )
        assert "'n9' is not a member" in refusal(f"members promote n9 {group}")
        assert "n0 is a member already" in refusal(f"members add n0 h:1 {group}")
        assert "write host:port" in refusal(f"members add n1 h {group}")
        assert "--yes" in refusal(f"members remove n0 {group}")
