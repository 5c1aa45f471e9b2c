"""A slave of a RocketMQ master that catches up over loopback, beside a bare socket that is written
to a file."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import socket
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.report import Report
from benchmarks.rocketmq import make_log
from dledger.net import run
from dledger.node.process import SWITCH_S
from dledger.rocketmq.ha.ha_service import HAService
from dledger.rocketmq.ha.slave import follow_master
from dledger.rocketmq.ha_protocol.messages import HASettings
from dledger.rocketmq.store.commit_log import CommitLog
from dledger.rocketmq.store.message_store import MessageStore

FOLLOWING = "slave of a RocketMQ master, 1 KiB messages, over loopback"
WRITTEN = "until all is in the commit log"
ACKNOWLEDGED = "until all is on the disk, and reported"
DISPATCHED = "queues and index, made behind it"
BARE = "bare: a socket into a file"
BUFFER = 4 << 20
LEAST = 16 << 20


def serve(root: Path, pipe: Connection) -> None:
    """A master in a process of its own: two ports, of which the second one sends the bare bytes."""

    async def main() -> None:
        log = CommitLog(root)
        log.recover_normally()
        service = HAService(log)
        await service.start("127.0.0.1", 0)
        listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=send, args=(listening, log.max_offset), daemon=True).start()
        pipe.send((service.accept_socket_service.port, listening.getsockname()[1]))
        await asyncio.Event().wait()

    def send(listening: socket.socket, end: int) -> None:
        while True:
            with (
                listening.accept()[0] as accepted,
                (root / "commitlog" / ("0" * 20)).open("rb") as file,
            ):
                accepted.sendfile(file, count=end)

    run(main())


def write_log(root: Path, log: bytes) -> None:
    """A master's commit log, with nothing beside it."""
    master = CommitLog(root)
    master.append_raw(0, log)
    master.flush()
    master.files.close()


def follow(root: Path, port: int, end: int) -> tuple[float, float, float]:
    """Seconds until all of the log is written, and is on the disk; seconds that queues and index
    took for each byte that was left for them then, 0 if that was little."""

    async def main(store: MessageStore) -> tuple[float, float]:
        began = time.perf_counter()
        task = asyncio.create_task(follow_master(store, f"127.0.0.1:{port}", HASettings()))
        for _ in iter(lambda: store.log.max_offset, end):
            await asyncio.sleep(0.001)
        written = time.perf_counter() - began
        for _ in iter(lambda: store.log.files.flushed_offset, end):
            await asyncio.sleep(0.001)
        acknowledged = time.perf_counter() - began
        task.cancel()
        await asyncio.wait([task])
        return written, acknowledged

    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)  # as the command does
    try:
        with MessageStore(root) as store:
            written, acknowledged = run(main(store))
            left, began = end - store.reput.offset, time.perf_counter()
            store.dispatch()
            dispatched = (time.perf_counter() - began) / left if left > LEAST else 0.0
    finally:
        sys.setswitchinterval(before)
    shutil.rmtree(root)
    return written, acknowledged, dispatched


def bare(path: Path, port: int, end: int) -> float:
    """Seconds for the same bytes without a protocol."""
    began, got, buffer = time.perf_counter(), 0, memoryview(bytearray(BUFFER))
    with (
        socket.create_connection(("127.0.0.1", port)) as sock,
        path.open("wb", buffering=0) as file,
    ):
        os.truncate(file.fileno(), 1 << 30)
        while got < end:
            count = sock.recv_into(buffer)
            got += os.pwrite(file.fileno(), buffer[:count], got)
    path.unlink()
    return time.perf_counter() - began


def following(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """(l) Wall time; master and slave are a process each and share the machine's cores."""
    log = make_log(2_000 if quick else 400_000)
    end, root = len(log), directory / "ha-master"
    write_log(root, log)
    del log
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=serve, args=(root, theirs), daemon=True
    )
    process.start()
    try:
        port, bare_port = ours.recv()
        for n in range(repetitions):
            written, acknowledged, dispatched = follow(directory / f"ha-slave-{n}", port, end)
            report.add(FOLLOWING, WRITTEN, "MB/s", end / 1e6 / written)
            report.add(FOLLOWING, ACKNOWLEDGED, "MB/s", end / 1e6 / acknowledged)
            if dispatched:
                report.add(FOLLOWING, DISPATCHED, "MB/s", 1e-6 / dispatched)
            report.add(
                FOLLOWING, BARE, "MB/s", end / 1e6 / bare(directory / "bare", bare_port, end)
            )
    finally:
        process.terminate()
        process.join()
        shutil.rmtree(root)
