"""(t) A member that is replaced, beside a plain sender and receiver of as many bytes in the same
run; then beside a load, and at a limit.

The plain pair does what no replication can leave out: one process reads the files of a log, takes
the checksum of each piece and sends it; another one checks it, writes it and syncs it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from benchmarks import machine
from benchmarks.backups import log_files, written
from benchmarks.bare import receive, receive_into
from benchmarks.groups import until_in_step
from benchmarks.load import append_load
from benchmarks.report import Report
from dledger import Client
from dledger.checksum import crc32
from dledger.cli.group.filling import filling
from dledger.cli.group.replacing import Replacement, replace_member
from dledger.embedded.ports import free_ports
from dledger.types import NodeId
from verification.strangers.nodes import Nodes

REPLACING: Final = "a member of three is replaced, log of 1 GiB"
FILLED: Final = "until the new one has the log"
REPLACED: Final = "until it has the place of the old one"
PLAIN: Final = "plain sender and receiver, CRC-32 and fdatasync"
SHARE: Final = f"{REPLACED}, share of {PLAIN}"
ALONE: Final = "64 KiB appends, 8 in flight, without a new member"
BESIDE: Final = "the same while one is filled"
FILLED_BESIDE: Final = f"{FILLED}, beside appends"
KEPT: Final = "share of the appends beside a new member"
OF_LIMIT: Final = "filled at a limit, share of the limit"
FRAME: Final = struct.Struct(">II")
"""Before each piece: its size and its checksum."""
PIECE: Final = 4 << 20
"""As a push has: the receiver syncs each."""
VALUE: Final = 1 << 10
BATCH: Final = 1 << 10
"""Values of one append: 1 MiB."""
LOAD: Final = (64 << 10, 8)
MIB: Final = 1 << 20
PATIENCE_S: Final = 60.0


class Growing(Nodes):
    """Nodes of which one takes the place of another."""

    joining = NodeId("")
    """The node that was started last, once it is none of the founders."""

    def command(self, name: NodeId) -> list[str]:
        return [*super().command(name), *(["--join"] if name == self.joining else [])]

    def begin(self) -> NodeId:
        """Start a new node, which waits to be added."""
        number = max(int(name[1:]) for name in self.addresses) + 1
        self.joining = name = NodeId(f"n{number}")
        (port,) = free_ports("127.0.0.1", 1)
        self.addresses[name] = f"127.0.0.1:{port}"
        self.start(name)
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return name
            time.sleep(0.02)
        raise RuntimeError(f"{name} does not start: see its log in {self.folder}")

    def drop(self, name: NodeId) -> None:
        """A node that was removed is gone with its files."""
        self.stop(name)
        del self.addresses[name]
        shutil.rmtree(self.folder / name)


def replacing(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """Wall time; what comes first changes."""
    mebibytes, limit = (16, 16 * MIB) if quick else (1024, 64 * MIB)
    folder = directory / "replacing"
    folder.mkdir()
    with Growing(folder) as nodes, Client(nodes.bootstrap_servers) as client:
        topic_id = client.create_topic("bench").topic_id
        with client.producer("bench") as producer:
            for _ in range(mebibytes):
                producer.append(pa.array([os.urandom(VALUE) for _ in range(BATCH)], pa.binary()))
        for repetition in range(repetitions):
            until_in_step(client)
            machine.measure(report, directory, quick=quick)
            ways = [beside_plain, beside_load] if repetition % 2 else [beside_load, beside_plain]
            for way in ways:
                way(report, nodes, topic_id)
            at_limit(report, nodes, limit)
    shutil.rmtree(folder)


def beside_plain(report: Report, nodes: Growing, _: int) -> None:
    """One replacement, and as many bytes by the plain pair."""
    with Client(nodes.bootstrap_servers) as client:
        until_in_step(client)
        leader = leader_of(client)
    files, size = log_files(nodes.folder / leader["node_id"]), leader["end_pos"]
    for path in files:  # both read what is in memory
        subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)
    plain = plain_rate(files, nodes.folder)
    filled_s, replaced_s = replace_one(nodes)
    report.add(REPLACING, FILLED, "MB/s", size / 1e6 / filled_s)
    report.add(REPLACING, REPLACED, "MB/s", size / 1e6 / replaced_s)
    report.add(REPLACING, PLAIN, "MB/s", plain / 1e6)
    report.add(REPLACING, SHARE, "times", size / replaced_s / plain)


def beside_load(report: Report, nodes: Growing, topic_id: int) -> None:
    """The load alone, and while a member is filled."""
    with Client(nodes.bootstrap_servers) as client:
        address = nodes.addresses[NodeId(leader_of(client)["node_id"])]
        with load(address, topic_id):
            alone = rate(client, 3.0)
            beside: list[float] = []
            size = leader_of(client)["end_pos"]
            filled_s, _ = replace_one(nodes, beside)
    report.add(REPLACING, FILLED_BESIDE, "MB/s", size / 1e6 / filled_s)
    report.add(REPLACING, ALONE, "/s", alone)
    report.add(REPLACING, BESIDE, "/s", beside[0])
    report.add(REPLACING, KEPT, "times", beside[0] / alone)


def at_limit(report: Report, nodes: Growing, limit: int) -> None:
    """A replacement at so many bytes a second."""
    with Client(nodes.bootstrap_servers) as client:
        until_in_step(client)
        size = leader_of(client)["end_pos"]
        client.set_settings({"catch_up_bytes_per_s": limit})
        filled_s, _ = replace_one(nodes)
        client.reset_settings(["catch_up_bytes_per_s"])
    report.add(REPLACING, OF_LIMIT, "times", size / filled_s / limit)


def replace_one(nodes: Growing, appends: list[float] | None = None) -> tuple[float, float]:
    """A follower is replaced; seconds until the new one has the log that there was at first, and
    until it has the place. ``appends`` gets the entries a second of the time of filling."""
    new = nodes.begin()
    with Client(nodes.bootstrap_servers) as client:
        leader = leader_of(client)
        old = next(name for name in nodes.addresses if name not in {leader["node_id"], new})
        before, began = leader["end_index"], time.perf_counter()
        client.add_member(new, nodes.addresses[new], replaces=old)
        while (now := leader_of(client))["watermarks"].get(new, -1) < before:
            time.sleep(0.02 if appends is None else 0.2)  # each look asks all nodes
        filled_s = time.perf_counter() - began
        if appends is not None:
            appends.append((now["end_index"] - before) / filled_s)
        with filling() as shown:
            replace_member(client, Replacement(old, new, nodes.addresses[new]), PATIENCE_S, shown)
        replaced_s = time.perf_counter() - began
    nodes.drop(old)
    return filled_s, replaced_s


def leader_of(client: Client) -> dict[str, Any]:
    """What the leader says."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        for state in client.status().values():
            if state.get("role") == "LEADER":
                return dict(state)
        time.sleep(0.1)
    raise RuntimeError("no node leads")


def rate(client: Client, seconds: float) -> float:
    """Entries a second."""
    began, before = time.perf_counter(), leader_of(client)["end_index"]
    time.sleep(seconds)
    after = leader_of(client)["end_index"]
    return float(after - before) / (time.perf_counter() - began)


@contextmanager
def load(address: str, topic_id: int) -> Iterator[None]:
    """Appends by another process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.replacing", address, str(topic_id)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[1],
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()
        time.sleep(1.0)  # the first second warms the way
        yield
        assert process.poll() is None, "the load has ended"
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def plain_rate(files: list[Path], folder: Path) -> float:
    """Bytes a second of the plain pair."""
    room = sum(end - begin for path in files for begin, end in written(path))
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    processes = [spawn.Process(target=take, args=(there, folder / "plain", room), daemon=True)]
    processes[0].start()
    port = here.recv()
    processes.append(spawn.Process(target=give, args=(there, files, port), daemon=True))
    processes[1].start()
    here.recv()  # both are ready
    began = time.perf_counter()
    here.send(None)
    size: int = here.recv()
    found = size / (time.perf_counter() - began)
    for process in processes:
        process.join()
    return found


def give(pipe: Pipe, files: list[Path], port: int) -> None:
    """The plain sender."""
    buffer = memoryview(bytearray(PIECE))
    with socket.create_connection(("127.0.0.1", port)) as sock:
        pipe.send(None)
        pipe.recv()
        for path in files:
            for begin, end in written(path):
                with path.open("rb", buffering=0) as file:
                    file.seek(begin)
                    while begin < end and (size := file.readinto(buffer[: end - begin])):
                        sock.sendall(FRAME.pack(size, crc32(buffer[:size])))
                        sock.sendall(buffer[:size])
                        begin += size
        sock.shutdown(socket.SHUT_WR)
        sock.recv(1)


def take(pipe: Pipe, path: Path, room: int) -> None:
    """The plain receiver, into a file that has its blocks: one thread receives and writes, another
    one syncs all that has come while it synced the last time."""
    listener = socket.create_server(("127.0.0.1", 0))
    buffer = memoryview(bytearray(PIECE))
    with path.open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, room)
        os.fsync(file.fileno())
        pipe.send(listener.getsockname()[1])
        sock, _ = listener.accept()
        came: queue.SimpleQueue[int] = queue.SimpleQueue()
        syncing = threading.Thread(target=sync, args=(file.fileno(), came))
        syncing.start()
        with contextlib.suppress(EOFError):
            while True:
                size, crc = FRAME.unpack(receive(sock, FRAME.size))
                receive_into(sock, buffer[:size])
                assert crc32(buffer[:size]) == crc
                file.write(buffer[:size])
                came.put(size)
        came.put(0)
        syncing.join()
        pipe.send(file.tell())
        sock.close()
    path.unlink()


def sync(handle: int, came: queue.SimpleQueue[int]) -> None:
    """Until a 0 comes."""
    while came.get():
        is_last = False
        while not came.empty():
            is_last = came.get() == 0
        os.fdatasync(handle)
        if is_last:
            return


def main() -> None:
    """The load, until this process is ended."""
    address, topic_id = sys.argv[1], int(sys.argv[2])
    append_load(address, topic_id, *LOAD, 3600.0, begins=lambda: print(flush=True))


if __name__ == "__main__":
    main()
