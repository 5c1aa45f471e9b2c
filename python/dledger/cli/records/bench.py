"""``dledger bench``: how fast this group takes records."""

from __future__ import annotations

import os
import time
import uuid
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from dledger.cli.common import group_options, json_option, open_client, print_json, print_table
from dledger.errors import ConfigError

if TYPE_CHECKING:
    from dledger.client import Client

_RECORD_BYTES: Final = 100


@click.command()
@click.option(
    "--sizes",
    default="1024,65536,1048576",
    show_default=True,
    help="Bytes of one append, by commas.",
)
@click.option(
    "--in-flight", default="1,64", show_default=True, help="Unanswered appends, by commas."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1),
    default=3.0,
    show_default=True,
    help="Length of each run.",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Runs of each kind, in turn.",
)
@group_options
@json_option
def bench(
    sizes: str,
    in_flight: str,
    seconds: float,
    repeat: int,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Append to a topic of its own, which it deletes again, and print rates and latencies.

    An append is answered when a quorum has it on disk, so the disk's fdatasync is part of every
    latency. Each line is the median run of --repeat, with the slowest and fastest rate beside it.
    """
    kinds = [
        (size, window)
        for size in numbers("--sizes", sizes)
        for window in numbers("--in-flight", in_flight)
    ]
    runs: dict[tuple[int, int], list[dict[str, float]]] = {kind: [] for kind in kinds}
    topic = f"bench-{uuid.uuid4().hex[:12]}"
    with open_client(bootstrap, timeout, create=True, linger_ms=0, idempotent=True) as client:
        client.create_topic(topic)
        try:
            # interleaved, so that a slow minute of the machine hits all kinds alike
            for _ in range(repeat):
                for size, window in kinds:
                    runs[size, window].append(_run(client, topic, size, window, seconds))
        finally:
            client.delete_topic(topic)
    rows = [_summary(size, window, runs[size, window]) for size, window in kinds]
    if as_json:
        print_json(rows)
        return
    print_table(
        ("bytes", "in flight", "appends/s", "MB/s", "MB/s min..max", "p50 ms", "p99 ms", "max ms"),
        [
            (
                row["bytes"],
                row["in_flight"],
                round(row["appends_per_s"]),
                round(row["mb_per_s"], 1),
                f"{row['mb_per_s_min']:.1f}..{row['mb_per_s_max']:.1f}",
                round(row["p50_ms"], 2),
                round(row["p99_ms"], 2),
                round(row["max_ms"], 2),
            )
            for row in rows
        ],
    )


def numbers(option: str, text: str) -> list[int]:
    """Comma-separated positive numbers. Raises `ConfigError` for anything else."""
    parts = [part.strip().replace("_", "") for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ConfigError(
            f"{option} {text!r}: write positive whole numbers with commas between them"
        )
    return [int(part) for part in parts]


def _run(client: Client, topic: str, size: int, window: int, seconds: float) -> dict[str, float]:
    """Append batches of about ``size`` bytes for so long, ``window`` of them unanswered."""
    import pyarrow as pa

    records = max(1, size // _RECORD_BYTES)
    value = os.urandom(size // records)
    batch = pa.record_batch({"value": pa.array([value] * records, pa.binary())})
    latencies: list[float] = []
    waiting: deque[Future[Any]] = deque()
    with client.producer(topic) as producer:
        began = time.perf_counter()
        while time.perf_counter() < began + seconds:
            while len(waiting) >= window:
                waiting.popleft().result()
            sent = time.perf_counter()
            future = producer.append_batch(0, batch)
            future.add_done_callback(partial(_note, latencies, sent))
            waiting.append(future)
        producer.flush()
        for future in waiting:
            future.result()
        took = time.perf_counter() - began
    latencies.sort()
    return {
        "appends_per_s": len(latencies) / took,
        "mb_per_s": len(latencies) * len(value) * records / took / 1e6,
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[min(len(latencies) - 1, len(latencies) * 99 // 100)] * 1000,
        "max_ms": latencies[-1] * 1000,
    }


def _note(latencies: list[float], sent: float, _: Future[Any]) -> None:
    latencies.append(time.perf_counter() - sent)


def _summary(size: int, window: int, runs: list[dict[str, float]]) -> dict[str, Any]:
    """The median run by rate."""
    ordered = sorted(runs, key=lambda run: run["mb_per_s"])
    return {
        "bytes": size,
        "in_flight": window,
        "runs": len(runs),
        **ordered[len(ordered) // 2],
        "mb_per_s_min": ordered[0]["mb_per_s"],
        "mb_per_s_max": ordered[-1]["mb_per_s"],
    }
