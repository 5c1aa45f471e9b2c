"""The way of Spark's rows without a log: bare sockets and files, three processes, and a source and
a sink of Spark's on top of them.

A task of the sink sends each Arrow batch to the first process, which sends it on to the two others;
all three write it to a file and call fdatasync, and then the task is answered. A task of the source
has batches of keys, values and times sent to it from a file, and puts the other columns to them.
Nothing is framed, checked, indexed, committed or repeated: no source or sink whose rows are kept by
three processes can do less.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from benchmarks.bare import receive, receive_into, tune
from benchmarks.ceiling import ROWS_PER_BATCH, SCHEMA, chosen, parts_of, ready_batch

NODES: Final = 3
SIZE: Final = struct.Struct(">Q")
READ, WRITE, DONE = b"r", b"w", b"d"
IN_FLIGHT: Final = 4
"""Batches of one task that are not answered."""
STORED: Final = ["key", "value", "timestamp"]


@dataclass(frozen=True)
class BareNodes:
    """``port`` is that of the first one."""

    port: int
    pids: list[int]


@contextmanager
def bare_nodes(directory: Path) -> Iterator[BareNodes]:
    """Three processes with their files in the directory."""
    spawn = multiprocessing.get_context("spawn")
    (directory / "body").write_bytes(stored_batch().serialize())
    ports: list[int] = []
    pids: list[int] = []
    with ExitStack() as stack:
        for number in reversed(range(NODES)):
            here, there = spawn.Pipe()
            peers = () if number else tuple(ports)
            process = spawn.Process(
                target=_node, args=(there, directory, f"rows-{number}", peers), daemon=True
            )
            process.start()
            stack.callback(process.join)
            stack.callback(process.terminate)
            ports.append(here.recv())
            pids.append(process.pid or 0)
        yield BareNodes(ports[-1], pids)


def _node(pipe: Pipe, directory: Path, name: str, peers: tuple[int, ...]) -> None:
    """One process: a thread for each connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    pipe.send(listener.getsockname()[1])
    for number in count():
        sock, _ = listener.accept()
        arguments = sock, directory, f"{name}-{number}", peers
        threading.Thread(target=_serve, args=arguments, daemon=True).start()


def _serve(sock: socket.socket, directory: Path, name: str, peers: tuple[int, ...]) -> None:
    tune(sock)
    try:
        if receive(sock, 1) == READ:
            _give(sock, directory / "body")
        else:
            _keep(sock, directory / name, peers)
    except (EOFError, ConnectionError):
        pass  # the task has ended
    finally:
        sock.close()


def _give(sock: socket.socket, path: Path) -> None:
    """The batch of the file, as often as it is asked for."""
    with path.open("rb") as file:
        size = path.stat().st_size
        while True:
            receive(sock, 1)
            sent = 0
            while sent < size:
                sent += os.sendfile(sock.fileno(), file.fileno(), sent, size - sent)


def _keep(sock: socket.socket, path: Path, peers: tuple[int, ...]) -> None:
    """Batches of one task, here and at the peers."""
    with ExitStack() as stack:
        followers = [stack.enter_context(_connected(port, WRITE)) for port in peers]
        file = stack.enter_context(path.open("wb", buffering=0))
        stack.callback(path.unlink)
        memory = bytearray()
        while True:
            head = receive(sock, SIZE.size)
            (size,) = SIZE.unpack(head)
            if len(memory) < size:
                memory = bytearray(size)
            body = memoryview(memory)[:size]
            receive_into(sock, body)
            for follower in followers:
                follower.sendall(head)
                follower.sendall(body)
            written = 0
            while written < size:
                written += file.write(body[written:])
            os.fdatasync(file.fileno())
            for follower in followers:
                receive(follower, 1)
            sock.sendall(DONE)


def _connected(port: int, word: bytes) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    tune(sock)
    sock.sendall(word)
    return sock


def stored_batch() -> pa.RecordBatch:
    """What a log keeps of a batch of rows."""
    return ready_batch(ROWS_PER_BATCH).select(STORED)


class Bare(DataSource):
    """Format "bare"; option ``port``, and of a read ``rows``, ``parts`` and ``columns``."""

    @classmethod
    def name(cls) -> str:
        return "bare"

    def schema(self) -> str:
        return chosen(SCHEMA, self.options.get("columns", ""))

    def reader(self, schema: Any) -> BareReader:
        return BareReader(
            int(self.options["port"]),
            int(self.options["rows"]),
            int(self.options["parts"]),
            schema.fieldNames(),
        )

    def writer(self, schema: Any, overwrite: bool) -> BareWriter:
        return BareWriter(int(self.options["port"]))


class BareReader(DataSourceReader):
    """Gives ``rows`` rows in ``parts`` tasks, a batch ahead of the rows that are taken."""

    def __init__(self, port: int, rows: int, parts: int, columns: list[str]) -> None:
        self._port, self._rows, self._parts, self._columns = port, rows, parts, columns

    def partitions(self) -> list[InputPartition]:
        return parts_of(self._parts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        constant = ready_batch(ROWS_PER_BATCH)
        stored, size = constant.select(STORED).schema, stored_batch().serialize().size
        left = self._rows // self._parts
        with _connected(self._port, READ) as sock:
            sock.sendall(DONE)
            while left > 0:
                body = pa.allocate_buffer(size)
                receive_into(sock, memoryview(body).cast("B"))
                if left > ROWS_PER_BATCH:
                    sock.sendall(DONE)
                kept = pa.ipc.read_record_batch(body, stored)
                columns = [
                    (kept if name in STORED else constant).column(name) for name in self._columns
                ]
                rows = pa.RecordBatch.from_arrays(columns, self._columns)
                yield rows if left >= ROWS_PER_BATCH else rows.slice(0, left)
                left -= ROWS_PER_BATCH


class BareWriter(DataSourceArrowWriter):
    """Three processes have each batch on their disks when its task ends."""

    def __init__(self, port: int) -> None:
        self._port = port

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        waiting = 0
        with _connected(self._port, WRITE) as sock:
            for batch in iterator:
                body = batch.serialize()
                sock.sendall(SIZE.pack(body.size))
                sock.sendall(body)
                waiting += 1
                if waiting > IN_FLIGHT:
                    waiting -= len(receive(sock, 1))
            receive(sock, waiting)
        return WriterCommitMessage()
