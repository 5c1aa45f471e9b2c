"""The audit log of a node: what is in it, who did it, and what a flood or a full disk does."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from pathlib import Path
from typing import Any, get_args

import pytest

from dledger.environment import Environment, Turn, Worker
from dledger.logs.repeats import INTERVAL_S, MOST_KINDS
from dledger.node.audit import AuditLog
from dledger.node.audit.audit_file import AuditFile
from dledger.node.audit.audited_commands import AUDITED, NOT_AUDITED, outcome
from dledger.protocol.messages.catalog_commands import (
    AddPartitions,
    Command,
    CommitProgress,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
)
from dledger.protocol.messages.client import ExecuteRequest, TransferRequest
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest
from dledger.types import ANONYMOUS, NodeId, Principal
from tests.node.bodies import body
from tests.node.conftest import BareClient
from tests.node.damaging import damage
from tests.node.elections import QUICK
from tests.node.test_node_repair import faulty, fill
from tests.node.trimming import payload
from verification.disk.memory_disk import MemoryDisk, kills

ALICE = Principal("User:alice")


def lines(node: Any) -> list[dict[str, Any]]:
    path = Path(node.node.directory) / "audit.log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def found(node: Any, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(line[name] for name in names) for line in lines(node)]


class Clock(Environment):
    """Time that a test sets; the thread's work is done at once."""

    ms = 0

    def now_ms(self) -> int:  # type: ignore[override]
        return self.ms

    def worker(self, name: str, turn: Turn, pause_s: float = 0.0) -> Worker:
        class Inline:
            def put(self, job: Any) -> None:
                turn([job], False)

            def start(self) -> None: ...

            def join(self) -> None:
                turn([], True)

        return Inline()


class Kit:
    """An audit log of its own on a disk in memory."""

    def __init__(self, **sizes: int) -> None:
        self.clock, self.disk = Clock(), MemoryDisk()
        self.directory = Path("/n0")
        self.disk.mkdir(self.directory)
        self.sizes = {"max_bytes": 1 << 20, "files": 3, **sizes}
        self.log = self.begin()

    def begin(self) -> AuditLog:
        """That of a node that starts."""
        file = AuditFile(self.disk, self.directory, environment=self.clock, **self.sizes)
        return AuditLog(NodeId("n0"), file, environment=self.clock)

    def record(self, event: str = "delete topic", address: str = "h:1", **more: Any) -> None:
        self.log.record(event, principal=ALICE, address=address, **more)

    def lines(self, name: str = "audit.log") -> list[dict[str, Any]]:
        path = self.directory / name
        if not self.disk.exists(path):
            return []
        file = self.disk.open(path)
        return [json.loads(line) for line in file.pread(file.size(), 0).splitlines()]


def test_each_command_is_an_event_or_listed_as_none() -> None:
    assert set(AUDITED) | NOT_AUDITED == set(get_args(Command))
    assert not set(AUDITED) & NOT_AUDITED
    for kind, row in AUDITED.items():
        assert set(row.details) <= set(kind.__dataclass_fields__), kind


def test_each_event_of_a_command_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| `event` |")]
    assert {one.event for one in AUDITED.values()} <= set(re.findall(r"`([a-z ]+)`", row))


@pytest.mark.group(1)
async def test_commands_are_told_with_principal_address_and_outcome(group: Any) -> None:
    node = await group.leader()
    client = await group.client()
    await client.create("orders", 2)
    progress = CommitProgress(consumer_group="g", offsets={"orders": {0: 0}})
    for command in (
        CreateTopic(name="orders", log_id="x", partitions=3),
        AddPartitions(name="orders", partitions=4),
        progress,
        DeleteGroup(consumer_group="g"),
        DeleteTopic(name="orders"),
        DeleteTopic(name="orders"),
    ):
        await client.execute(command)
    await client.ask(ExecuteRequest(command=progress, reset=True))
    await group.until(lambda: len(lines(node)) == 7)
    assert found(node, "event", "result") == [
        ("create topic", "done"),
        ("create topic", "refused"),
        ("add partitions", "done"),
        ("delete group", "done"),
        ("delete topic", "done"),
        ("delete topic", "refused"),
        ("reset group", "refused"),
    ]
    assert set(found(node, "node", "principal")) == {("n0", ANONYMOUS)}
    first, second = lines(node)[:2]
    assert first["address"] == client.address
    assert first["details"] == {"name": "orders", "partitions": 2, "settings": {}}
    assert first["time"].endswith("Z")
    assert "orders" in second["reason"]
    mode = (Path(node.node.directory) / "audit.log").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


@pytest.mark.group(**QUICK)
async def test_transfers_admissions_and_strangers_are_told(group: Any) -> None:
    leader, follower = await group.leader(), await group.follower()
    await group.agree()
    client = await group.client()
    await client.ask(TransferRequest(to=NodeId("n9")))
    await client.ask(TransferRequest(to=follower.node.node_id))
    await group.leader(but=str(leader.node.node_id))
    to = str(follower.node.node_id)
    await group.until(lambda: len(lines(leader)) == 2)
    assert found(leader, "event", "result", "details") == [
        ("transfer leadership", "refused", {"to": "n9"}),
        ("transfer leadership", "done", {"to": to}),
    ]
    now = await group.leader()
    await group.admit("n9")
    stranger = await BareClient.dial(now.port)
    await stranger.ask(HelloRequest(group="test", node_id="n9"))
    stranger.close()
    await group.until(lambda: len(lines(now)) == 2)
    assert found(now, "event", "principal", "result") == [
        ("admit", ANONYMOUS, "refused"),
        ("authenticate", "Node:n9", "refused"),
    ]


@pytest.mark.group(**QUICK)
async def test_damage_found_and_repaired_is_told(group: Any) -> None:
    await fill(group, 20)
    victim = (await group.follower()).node.node_id
    await group.kill(victim)
    damage(group.folder / victim, payload(3))
    (group.folder / victim / "mark").unlink()
    node = await group.start(victim)
    await group.until(lambda: not faulty(node) and len(lines(node)) == 2)
    assert found(node, "event", "principal") == [
        ("damage found", f"Node:{victim}"),
        ("damage repaired", f"Node:{victim}"),
    ]
    assert lines(node)[0]["details"]["file"]


@pytest.mark.group(1, audit_files=0)
async def test_without_files_the_lines_are_in_the_nodes_log(group: Any, caplog: Any) -> None:
    node, client = await group.leader(), await group.client()
    with caplog.at_level("INFO", "dledger.audit"):
        await client.create("orders")
    assert [json.loads(line)["event"] for line in caplog.messages] == ["create topic"]
    assert not (Path(node.node.directory) / "audit.log").exists()


def test_answers_after_which_clients_ask_again_are_no_outcome() -> None:
    assert outcome(Code.SUCCESS, "") == {}
    assert outcome(Code.NOT_LEADER, "ask n1") is None
    assert outcome(Code.TERM_CHANGED, "") == {"unknown": "TERM_CHANGED"}
    assert outcome(Code.TOPIC_EXISTS, "it is there") == {"refused": "it is there"}


def test_control_characters_and_marks_are_escaped() -> None:
    kit = Kit()
    kit.record(refused="no \x1b[31m\u202e\n{}", name="<script>\r\n")
    path = kit.directory / "audit.log"
    raw = kit.disk.open(path).pread(4096, 0)
    assert raw.isascii()
    assert raw.count(b"\n") == 1
    assert b"\x1b" not in raw
    assert kit.lines()[0]["reason"] == "no \x1b[31m\u202e\n{}"


def test_refusals_of_one_kind_are_told_once_in_a_while_with_a_count() -> None:
    kit = Kit()
    for n in range(1000):
        kit.record("authenticate", f"10.0.0.1:{n}", refused="another secret")
    kit.record("authenticate", "10.0.0.2:1", refused="another secret")
    kit.record("delete topic", "10.0.0.1:1", name="orders")
    assert len(kit.lines()) == 3
    kit.log.tick(kit.clock.ms)
    assert len(kit.lines()) == 3
    kit.clock.ms = int(INTERVAL_S * 1000)
    kit.log.tick(kit.clock.ms)
    last = kit.lines()[-1]
    assert (last["address"], last["details"]) == ("10.0.0.1", {"repeated": 999, "seconds": 10})
    for n in range(2 * MOST_KINDS):
        kit.record("authenticate", f"10.1.{n}.1:1", refused="another secret")
    assert len(kit.lines()) <= 4 + MOST_KINDS + 1
    kit.log.close()
    counted = [line["details"].get("repeated", 1) for line in kit.lines()]
    assert sum(counted) == 1002 + 2 * MOST_KINDS, "each is told or counted"


@pytest.mark.parametrize("name", ["g" * 100_000, ["g" * 1000] * 100], ids=["text", "list"])
def test_long_names_of_refused_requests_do_not_drive_out_other_events(name: Any) -> None:
    kit = Kit()
    kit.log.record("delete topic", principal=ALICE, address="h:1", topic="orders")
    for number in range(2 * MOST_KINDS):
        kit.log.record(
            "hold retention", principal=ALICE, address="h:1", refused="no", group=name, n=number
        )
    kit.log.close()
    assert kit.lines()[0]["event"] == "delete topic"
    told = kit.lines()[1]["details"]["group"]
    assert len(told) < 600
    assert told.endswith(" characters)")


def test_files_are_set_aside_at_their_size_and_the_oldest_goes() -> None:
    kit = Kit(max_bytes=1000, files=3)
    for n in range(60):
        kit.record(number=n)
    names = [name for name in kit.disk.listdir(kit.directory) if name.startswith("audit")]
    assert names == ["audit.log", "audit.log.1", "audit.log.2"]
    kept = [line["details"]["number"] for name in reversed(names) for line in kit.lines(name)]
    assert kept == list(range(60 - len(kept), 60))
    assert 10 < len(kept) < 30


def test_a_rotation_that_is_killed_loses_the_oldest_file_alone() -> None:
    names = [f"/n0/audit.log{suffix}" for suffix in (".3", ".2", ".1", "")]

    def begin(disk: MemoryDisk) -> AuditFile:
        return AuditFile(disk, Path("/n0"), environment=Clock(), max_bytes=5, files=4)

    def prepare() -> tuple[MemoryDisk]:
        disk = MemoryDisk()
        disk.mkdir(Path("/n0"))
        for number, name in enumerate(names):
            disk.open(Path(name), create=True).pwritev([b"full%d\n" % number], 0)
        return (disk,)

    for (disk,) in kills(prepare, lambda disk: begin(disk).write(b"next\n"), least=5):
        disk.reboot(power=False)
        begin(disk).write(b"last\n")
        there = [Path(name) for name in names if disk.exists(Path(name))]
        kept = b"".join(bytes(disk.content(path)) for path in there).split()
        assert kept == [b"full1", b"full2", b"full3", b"last"]


def test_a_restart_goes_on_in_the_same_file() -> None:
    kit = Kit()
    kit.record(number=1)
    kit.log = kit.begin()
    kit.record(number=2)
    assert [line["details"]["number"] for line in kit.lines()] == [1, 2]


def test_a_full_disk_loses_lines_with_one_warning_and_no_error(caplog: Any) -> None:
    kit = Kit()
    kit.record(number=0)
    kit.disk.fail("pwritev", "audit", code=errno.ENOSPC, times=20)
    for n in range(20):
        kit.record(number=n)
    kit.record(number=99)
    assert [line["details"]["number"] for line in kit.lines()] == [0, 99]
    warnings = [text for text in caplog.messages if "audit.log" in text]
    assert warnings == [
        f"/n0/audit.log: {os.strerror(errno.ENOSPC)}; the lines of the audit log are in this log "
        "alone meanwhile, 1 so far",
        "/n0/audit.log lacks 20 lines, which are in this log alone",
    ]


def test_a_line_of_which_the_disk_took_a_part_spoils_no_other() -> None:
    kit = Kit()
    kit.record(number=1)
    kit.disk.fail("pwritev", "audit", times=1, short=20)
    kit.record(number=2)
    kit.record(number=3)
    file = kit.disk.open(kit.directory / "audit.log")
    first, torn, last = file.pread(file.size(), 0).splitlines()
    assert json.loads(first)["details"] == {"number": 1}
    assert len(torn) == 20
    assert json.loads(last)["details"] == {"number": 3}


@pytest.mark.group(1)
async def test_a_node_goes_on_where_its_audit_file_cannot_be_written(group: Any) -> None:
    node = await group.leader()
    (Path(node.node.directory) / "audit.log").mkdir()
    client, topic = await group.topic()
    assert (await client.append(body(topic, b"one"))).code is Code.SUCCESS
