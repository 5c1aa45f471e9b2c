"""After the faults: every record from every node, and every byte of every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dledger.client import AsyncClient
from dledger.client.protocol.reading.fetching import Fetcher
from dledger.client.protocol.reading.reading import records, take
from dledger.protocol.messages.fetched import FetchResponse
from dledger.storage.offline.dump import dump_store
from dledger.storage.offline.verify import verify_store
from dledger.testing.checkers.history import OperationKind, Recorder
from dledger.testing.checkers.values import decode_value
from verification.chaos.nodes import Nodes
from verification.chaos.process import Node

STEP_S: Final = 60.0
"""So long all nodes may take to have the same log."""
FETCH_BYTES: Final = 1 << 20
ANSWER_S: Final = 20.0
COMPARED: Final = 1 << 20


async def read_back(
    nodes: Nodes, client: AsyncClient, recorder: Recorder, topics: dict[str, int]
) -> list[str]:
    """Read everything as any client would, and again from each node itself. The first read goes
    into the history; a node that gives other records is a problem.

    Returns:
        the problems, in words.
    """
    problems: list[str] = []
    for topic, count in topics.items():
        for partition in range(count):
            call = recorder.begin(
                OperationKind.READ, "reader at the end", topic, partition, start=0
            )
            values: list[int] = []
            async for batch in client.read(topic, partition, 0):
                values += map(decode_value, batch.column("value").to_pylist())
            call.ok(values=tuple(values), to_end=True)
            topic_id = (await client.known_topic(topic)).topic_id
            for node in nodes:
                found = await read_from(node, topic_id, partition, len(values))
                if found != values:
                    at = next(
                        (n for n, (a, b) in enumerate(zip(found, values, strict=False)) if a != b),
                        len(found),
                    )
                    where = f"{topic}/{partition} offset {at}"
                    problems.append(
                        f"{node.name} has another record than clients are told at {where}"
                    )
    return problems


async def read_from(node: Node, topic_id: int, partition: int, end: int) -> list[int]:
    """The values of [0, end) as this one node has them.

    Raises:
        DLedgerError: it does not serve them.
    """
    fetcher = Fetcher(
        topic_id, partition, 0, end, FETCH_BYTES, f"read topic {topic_id} from {node.name}"
    )
    values: list[int] = []
    async with node.asked(ANSWER_S) as rpc:
        while not fetcher.done:
            start = fetcher.position
            answer, payload = await rpc.ask(fetcher.request(), (), ANSWER_S)
            assert isinstance(answer, FetchResponse)
            for found, _ in records(take(fetcher, answer, payload), start, end):
                values += map(decode_value, found.column("value").to_pylist())
    return values


def compare_stores(directories: list[Path], committed: int) -> tuple[int, list[str]]:
    """Verify every byte of these stopped stores, and compare their logs up to the entry
    ``committed`` byte for byte.

    Returns:
        the bytes that were compared in each, and the problems, in words.
    """
    problems: list[str] = []
    ends: list[int] = []
    for directory in directories:
        name, report = directory.parent.parent.name, verify_store(directory)
        if not report["ok"]:
            problems.append(f"{name}: dledger verify finds {report['problems'][:3]}")
        if report["end_index"] < committed:
            problems.append(f"{name}: ends at {report['end_index']}, {committed} was committed")
        ends.append(_end_pos(directory, committed))
    if len(set(ends)) > 1:
        problems.append(f"entry {committed} ends at different places: {ends}")
    size = min(ends)
    first, *others = [_data(directory, size) for directory in directories]
    for at, blocks in enumerate(zip(first, *others, strict=True)):
        if len(set(blocks)) > 1:
            problems.append(
                f"the committed logs differ within {COMPARED} bytes of byte {at * COMPARED}"
            )
            break
    return size, problems


def _end_pos(directory: Path, index: int) -> int:
    """Where the entry ``index``, or the last one before it, ends."""
    end = 0
    for entry in dump_store(directory):
        if entry["index"] > index:
            break
        if entry["size"] is not None:
            end = entry["pos"] + entry["size"]
    return end


def _data(directory: Path, size: int) -> Iterator[bytes]:
    """The first ``size`` bytes of the log, in blocks."""
    for path in sorted((directory / "data").iterdir()):
        start = int(path.name) if path.name.isdecimal() else size
        with path.open("rb") as file:
            while start < size and (block := file.read(min(COMPARED, size - start))):
                yield block
                start += len(block)
