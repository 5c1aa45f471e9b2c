"""The way of an append without a log: bare sockets and files, three processes, the same messages
and syncs.

A client sends a body to the leader, which sends it on to two followers; all three write it to a
file allocated ahead and call fdatasync; the client is answered when two of the three disks have it.
Nothing is framed, checked, indexed or applied. What this takes is the machine's share of what a
group takes in the same run.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import SpawnProcess
from pathlib import Path

COUNT = struct.Struct(">Q")
HOST = "127.0.0.1"


def latencies(directory: Path, size: int, count: int) -> list[float]:
    """Seconds of each of ``count`` appends of ``size`` bytes, one in flight."""

    def one_by_one(sock: socket.socket) -> list[float]:
        body, times = os.urandom(size), []
        for _ in range(count):
            start = time.perf_counter()
            sock.sendall(body)
            receive(sock, COUNT.size)
            times.append(time.perf_counter() - start)
        return times

    return _with_nodes(directory, size, count, one_by_one)


def bytes_per_second(directory: Path, size: int, count: int, in_flight: int) -> float:
    """Bytes a second of ``count`` appends of ``size`` bytes with so many in flight."""

    def pipelined(sock: socket.socket) -> list[float]:
        body, sent, answered = os.urandom(size), 0, 0
        start = time.perf_counter()
        while answered < count:
            while sent < count and sent - answered < in_flight:
                sock.sendall(body)
                sent += 1
            answered = COUNT.unpack(receive(sock, COUNT.size))[0]
        return [time.perf_counter() - start]

    return size * count / _with_nodes(directory, size, count, pipelined)[0]


def _with_nodes(
    directory: Path, size: int, count: int, client: Callable[[socket.socket], list[float]]
) -> list[float]:
    """Run ``client`` on a connection to a leader with two followers."""
    with nodes(directory, size, count) as port, socket.create_connection((HOST, port)) as sock:
        tune(sock)
        return client(sock)


@contextmanager
def nodes(directory: Path, size: int, count: int) -> Iterator[int]:
    """A leader with two followers, each a process; the port of the leader, which takes one
    connection. They end with it.

    Args:
        directory: of their files.
        size, count: bytes of an append, and how many there is room for without a longer file.
    """
    spawn = multiprocessing.get_context("spawn")
    processes: list[SpawnProcess] = []
    ports: list[int] = []
    for name in ("follower-1", "follower-2", "leader"):
        here, there = spawn.Pipe()
        peers = tuple(ports) if name == "leader" else ()
        process = spawn.Process(
            target=_node, args=(there, directory / f"bare-{name}", size, count, peers), daemon=True
        )
        process.start()
        there.close()  # else its end would not be noticed here
        ports.append(here.recv())
        processes.append(process)
    yield ports[-1]
    for process in processes:
        process.join()


def tune(sock: socket.socket) -> None:
    """Small messages leave at once."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def receive(sock: socket.socket, size: int) -> bytes:
    """Exactly so many bytes; EOFError when the other side ends first."""
    data = bytearray(size)
    receive_into(sock, memoryview(data))
    return bytes(data)


def receive_into(sock: socket.socket, view: memoryview) -> None:
    """Fill all of it; EOFError when the other side ends first."""
    got = 0
    while got < len(view):
        read = sock.recv_into(view[got:])
        if read == 0:
            raise EOFError
        got += read


def _node(pipe: Pipe, path: Path, size: int, count: int, peers: tuple[int, ...]) -> None:
    """One process: takes bodies from upstream until it ends, and reports how many are on its
    disk."""
    listener = socket.create_server((HOST, 0))
    pipe.send(listener.getsockname()[1])
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    os.posix_fallocate(handle, 0, size * count)
    os.fsync(handle)
    followers = [socket.create_connection((HOST, port)) for port in peers]
    upstream, _ = listener.accept()
    for sock in (upstream, *followers):
        tune(sock)
    Node(handle, size, upstream, followers).run()
    os.close(handle)
    path.unlink()


class Node:
    """Receives and writes on one thread, syncs on another, and hears each follower on one more."""

    def __init__(
        self, handle: int, size: int, upstream: socket.socket, followers: list[socket.socket]
    ) -> None:
        self._handle, self._size, self._upstream, self._followers = (
            handle,
            size,
            upstream,
            followers,
        )
        self._durable = [0] * (1 + len(followers))
        self._answered = self._written = 0
        self._ended = False
        self._more, self._answering = threading.Condition(), threading.Lock()

    def run(self) -> None:
        threads = [threading.Thread(target=self._sync)]
        threads += [
            threading.Thread(target=self._hear, args=(n, sock))
            for n, sock in enumerate(self._followers, 1)
        ]
        for thread in threads:
            thread.start()
        body = memoryview(bytearray(self._size))
        try:
            while True:
                receive_into(self._upstream, body)
                for sock in self._followers:
                    sock.sendall(body)
                os.pwrite(self._handle, body, self._written * self._size)
                with self._more:
                    self._written += 1
                    self._more.notify()
        except EOFError:
            pass  # the client has what it wanted
        with self._more:
            self._ended = True
            self._more.notify()
        for sock in self._followers:
            sock.shutdown(socket.SHUT_WR)
        for thread in threads:
            thread.join()

    def _sync(self) -> None:
        while True:
            with self._more:
                self._more.wait_for(lambda: self._written > self._durable[0] or self._ended)
                written = self._written
            if written == self._durable[0]:
                return
            os.fdatasync(self._handle)
            self._reached(0, written)

    def _hear(self, number: int, sock: socket.socket) -> None:
        try:
            while True:
                self._reached(number, COUNT.unpack(receive(sock, COUNT.size))[0])
        except EOFError:
            return

    def _reached(self, number: int, count: int) -> None:
        """This disk has so many: tell upstream what most disks have."""
        with self._answering:
            self._durable[number] = count
            most = sorted(self._durable)[len(self._durable) // 2]
            if most > self._answered:
                self._answered = most
                try:
                    self._upstream.sendall(COUNT.pack(most))
                except OSError:
                    self._ended = True  # the client has what it wanted
