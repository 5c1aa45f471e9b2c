"""(r) A backup of a running group, its successor and a restore, beside a plain read, SHA-256 and
write of the same files of its log, in one run."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks import machine
from benchmarks.groups import group, until_in_step
from benchmarks.report import Report
from dledger import Client
from dledger.backup.copying import BackupJob, BackupReport
from dledger.backup.cut import plan_restore
from dledger.backup.repository import Repository
from dledger.backup.restoring import RestoreJob
from dledger.backup.target import open_target
from dledger.backup.verifying import verify_backups
from dledger.types import NodeId

BACKUPS: Final = "backup of 1 GiB of 1 KiB records, 3 replicas"
BACKUP: Final = "dledger backup"
PLAIN: Final = "read + SHA-256 + write of the log's files"
SHARE: Final = f"{BACKUP}, share of {PLAIN}"
MOVED: Final = "bytes that the next backup moves, times the new ones"
VERIFY: Final = "backup verify"
RESTORE: Final = "restore of one node"
PIECE: Final = 8 << 20
VALUE: Final = 1 << 10
BATCH: Final = 1 << 10
"""Values of one append: 1 MiB."""


def backups(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """Wall time of whole backups, each to a place of its own, and of the plain copy in turn."""
    mebibytes, more = (8, 4) if quick else (1024, 64)
    with (
        group(directory, 3) as running,
        Client(running.bootstrap_servers) as client,
    ):
        append(client, mebibytes)
        for repetition in range(repetitions):
            until_in_step(client)
            machine.measure(report, directory, quick=quick)
            place, plain = directory / f"backups-{repetition}", directory / "plain"
            follower = next(str(node) for node in running.nodes if node != running.leader)
            files = log_files(Path(running.path) / follower)
            took: dict[str, float] = {}

            def ours(place: Path = place, node: str = follower) -> BackupReport:
                return BackupJob(client, Repository(open_target(str(place))), node=node).run()

            def theirs(files: list[Path] = files, plain: Path = plain) -> int:
                return copy(files, plain)

            ways: list[tuple[str, Callable[[], object]]] = [(BACKUP, ours), (PLAIN, theirs)]
            for way, run in ways if repetition % 2 else ways[::-1]:
                took[way] = seconds(run)
            size = sum(path.stat().st_size for path in plain.iterdir())
            shutil.rmtree(plain)
            for way, _ in ways:
                report.add(BACKUPS, way, "MB/s", size / 1e6 / took[way])
            report.add(BACKUPS, SHARE, "times", took[PLAIN] / took[BACKUP])
            before = bytes_in(place)
            new = append(client, more)
            until_in_step(client)
            read = ours().read
            report.add(BACKUPS, MOVED, "times", max(read, bytes_in(place) - before) / new)
            look(report, place, directory / "restored")


def append(client: Client, mebibytes: int) -> int:
    """So many new records; their bytes."""
    with client.producer("bench") as producer:
        for _ in range(mebibytes):
            producer.append(pa.array([os.urandom(VALUE) for _ in range(BATCH)], pa.binary()))
    return mebibytes * VALUE * BATCH


def log_files(node: Path) -> list[Path]:
    """The data files of a node, oldest first."""
    return sorted(path for path in (node / "data").iterdir() if path.is_file())


def copy(files: list[Path], into: Path) -> int:
    """Read all that is written of these files, hash it and write it, piece by piece."""
    into.mkdir()
    buffer, count = memoryview(bytearray(PIECE)), 0
    for path in files:
        for begin, end in written(path):
            with path.open("rb", buffering=0) as file:
                file.seek(begin)
                while begin < end and (size := file.readinto(buffer[: end - begin])):
                    hashlib.sha256(buffer[:size]).hexdigest()
                    (into / str(count)).write_bytes(buffer[:size])
                    begin, count = begin + size, count + 1
    return count


def written(path: Path) -> Iterator[tuple[int, int]]:
    """The parts of a file that are no holes: it is as long as it may become."""
    with path.open("rb") as file:
        size, at = os.fstat(file.fileno()).st_size, 0
        while at < size:
            try:
                begin = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:  # nothing but a hole is left
                return
            at = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            yield begin, at


def bytes_in(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def seconds(run: Callable[[], object]) -> float:
    """How long it takes, when all that was written before is on the disk."""
    os.sync()
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def look(report: Report, place: Path, directory: Path) -> None:
    """Verify and restore what is there, and remove it."""
    repository = Repository(open_target(str(place)))
    manifests, _ = repository.manifests()
    size = sum(manifests[-1].chunks.values())

    def verify() -> None:
        assert not list(verify_backups(repository.target, manifests[-1:]))

    def restore() -> None:
        plan = plan_restore(repository, manifests[-1], manifests[-1].index, manifests)
        RestoreJob(repository.target, plan).to_directories("bench", {NodeId("n0"): directory})

    report.add(BACKUPS, VERIFY, "MB/s", size / 1e6 / seconds(verify))
    report.add(BACKUPS, RESTORE, "MB/s", size / 1e6 / seconds(restore))
    shutil.rmtree(directory)
    shutil.rmtree(place)
