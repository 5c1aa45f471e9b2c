"""The processor time of a request at a leader, as a multiple of that at a small program in plain
Python, in the same run: ``python -m benchmarks.request_cost``.

The group has three nodes and is sent 512 requests of 1 KiB at a time, the next ones when all are
answered: so it takes them together, whatever the speed of the disk and the number of cores. The
program is a process that takes as many frames from a socket, checks each, makes an entry of it with
checksums, writes what came together to a file and answers; no followers, no sync, no catalog. Both
are looked at in turn, in short slices, by the clocks of their processor time. So a machine that is
slow, or busy with other work, is so for both, and the median of the slices' ratios says what the
code costs.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import statistics
import struct
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from benchmarks.appends import leader_address
from benchmarks.groups import group
from benchmarks.load import Caller, one_record
from benchmarks.pairs import processor_s
from benchmarks.report import Report
from dledger import Client
from dledger.compiled import native

COST: Final = "a request of 1 KiB, 512 at a time: processor time at the leader, 3 replicas"
LEADER, PROGRAM, TIMES = "the leader", "the small program", "the leader's, times the program's"
SIZE: Final = 1024
IN_FLIGHT: Final = 512
SLICES: Final = 9
SLICE_S: Final = 0.4
MOST_COMPILED, MOST_PYTHON = 3.5, 8.0
"""Twice what is seen on idle and on busy machines, with the compiled functions and without."""
FRAME: Final = struct.Struct(">IIQ")
"""Bytes of the body, its CRC-32, and the id of the request."""
ENTRY: Final = struct.Struct(">iiqqqiIIi")
FILE_BYTES: Final = 64 << 20


def small_program(pipe: Connection, path: Path) -> None:
    """Serve one connection until it ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    pipe.send(listener.getsockname()[1])
    sock, _ = listener.accept()
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    os.posix_fallocate(handle, 0, FILE_BYTES)
    buffer = memoryview(bytearray((FRAME.size + SIZE) * IN_FLIGHT))
    have = index = pos = chain = 0
    while received := sock.recv_into(buffer[have:]):
        have, at = have + received, 0
        pieces: list[bytes | memoryview] = []
        answers = []
        while have - at >= FRAME.size:
            size, crc, number = FRAME.unpack_from(buffer, at)
            end = at + FRAME.size + size
            if end > have:
                break
            body = buffer[at + FRAME.size : end]
            assert zlib.crc32(body) == crc
            fields = 1, ENTRY.size + size, index, 1, pos, 0
            chain = zlib.crc32(ENTRY.pack(*fields, 0, crc, size), chain)
            pieces += (ENTRY.pack(*fields, chain, crc, size), body)
            answers.append(FRAME.pack(0, 0, number))
            index, pos, at = index + 1, pos + ENTRY.size + size, end
        data = b"".join(pieces)
        os.pwrite(handle, data, pos % (FILE_BYTES - len(buffer) * 2))
        sock.sendall(b"".join(answers))
        buffer[: have - at] = bytes(buffer[at:have])
        have -= at
    os.close(handle)


class Small:
    """The program, and what sends it requests."""

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self._pid, self._socket = pid, sock
        body = os.urandom(SIZE)
        frames = [FRAME.pack(SIZE, zlib.crc32(body), at) + body for at in range(IN_FLIGHT)]
        self._frames = b"".join(frames)

    def microseconds(self, seconds: float) -> float:
        """Processor time of a request, over a slice."""
        before, until, requests = processor_s(self._pid), time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            self._socket.sendall(self._frames)
            left = FRAME.size * IN_FLIGHT
            while left:
                left -= len(self._socket.recv(left))
            requests += IN_FLIGHT
        return (processor_s(self._pid) - before) * 1e6 / requests


@contextmanager
def small(directory: Path) -> Iterator[Small]:
    """The program in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=small_program, args=(there, directory / "small"), daemon=True)
    process.start()
    with socket.create_connection(("127.0.0.1", here.recv())) as sock:
        assert process.pid is not None
        yield Small(process.pid, sock)
    process.join()


def at_once(caller: Caller, seconds: float) -> int:
    """How many requests were answered in a slice, all that may be in flight sent together."""
    until, requests = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        caller.send(list(range(IN_FLIGHT)))
        while caller.under_way:
            requests += len(caller.receive())
    return requests


def ratios(
    directory: Path, slices: int = SLICES, seconds: float = SLICE_S
) -> list[tuple[float, float]]:
    """Microseconds of processor time a request at the leader and at the program, of each slice."""
    found = []
    with (
        small(directory) as program,
        group(directory, 3) as running,
        Client(running.bootstrap_servers) as client,
    ):
        address, topic_id = leader_address(running), client.topic("bench").topic_id
        pid = running.nodes[running.leader].pid
        assert pid is not None
        caller = Caller(address, one_record(topic_id, SIZE), IN_FLIGHT)
        with caller.socket:
            for number in range(slices + 1):
                own = program.microseconds(seconds / 2)
                before = processor_s(pid)
                requests = at_once(caller, seconds)
                spent = (processor_s(pid) - before) * 1e6 / requests
                if number:  # the first slice warms both
                    found.append((spent, own))
    return found


def request_cost(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """All slices of so many runs."""
    for _ in range(1 if quick else repetitions):
        for leader, program in ratios(directory, 1 if quick else SLICES):
            report.add(COST, LEADER, "µs", leader)
            report.add(COST, PROGRAM, "µs", program)
            report.add(COST, TIMES, "", leader / program)


def most() -> float:
    """The bound of `ratio`."""
    return MOST_PYTHON if native is None else MOST_COMPILED


def ratio(found: list[tuple[float, float]]) -> float:
    """The median of the slices'."""
    return statistics.median(leader / program for leader, program in found)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="dledger-cost-") as scratch:
        found = ratios(Path(scratch))
    for leader, program in found:
        print(
            f"{leader:.2f} µs at the leader, {program:.2f} at the small program: "
            f"{leader / program:.2f} times"
        )
    print(
        f"median {ratio(found):.2f} times, {'with' if native else 'without'} the compiled "
        f"functions; the bound is {most():g}"
    )


if __name__ == "__main__":
    main()
