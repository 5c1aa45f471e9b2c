"""The proof, taken from the log itself and from the nodes' files, with no Spark in it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dledger import Client
from dledger.storage.offline.dump import dump_store
from flights.data import key_of, totals_of


@dataclass
class Finding:
    """One thing that was checked: what must hold, what was found, and whether it does."""

    claim: str
    found: str
    holds: bool


def read_log(servers: str, topic: str) -> list[tuple[str, str]]:
    """(key, value) of every record, in the order of their offsets."""
    with Client(servers) as client:
        end = client.end_offsets(topic)[0]
        records: list[tuple[str, str]] = []
        for batch in client.read(topic, 0, 0, end):
            keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
            records += [(k.decode(), v.decode()) for k, v in zip(keys, values, strict=True)]
    return records


def by_key(records: list[tuple[str, str]]) -> dict[str, list[str]]:
    """The lines of each key, in order."""
    lines: dict[str, list[str]] = defaultdict(list)
    for key, value in records:
        lines[key].append(value)
    return lines


def compare_log(records: list[tuple[str, str]], lines: list[str]) -> list[Finding]:
    """Every flight once; each key's flights in the CSV's order; the totals of the CSV."""
    missing, extra = len(set(lines) - {v for _, v in records}), len(records) - len(set(lines))
    ordered, expected = by_key(records), by_key([(key_of(line), line) for line in lines])
    wrong = sum(ordered.get(key) != value for key, value in expected.items())
    totals, truth = totals_of([value for _, value in records]), totals_of(lines)
    arrival = sum(t.arrival for t in totals.values())
    return [
        Finding(
            "every flight is in the log exactly once",
            f"{missing} missing, {max(extra, 0)} too many",
            not missing and not extra and len(records) == len(lines),
        ),
        Finding(
            "in order by key", f"{len(expected) - wrong:,} of {len(expected):,} keys", not wrong
        ),
        Finding(
            "the totals of the CSV",
            f"{arrival:,} min late over {len(totals)} carriers",
            totals == truth,
        ),
    ]


def compare_query(totals: dict[str, dict[str, Any]], lines: list[str]) -> Finding:
    """The table that the query computed is that of the CSV."""
    truth = {carrier: asdict(t) for carrier, t in totals_of(lines).items()}
    same = sum(totals.get(carrier) == row for carrier, row in truth.items())
    return Finding(
        "the query's table is the CSV's", f"{same} of {len(truth)} carriers", totals == truth
    )


def committed_prefix(directory: Path, committed: int) -> tuple[int, int, str]:
    """(entries, bytes, digest) of a stopped node's log up to and with the entry at that index, from
    its raw files."""
    digest, count, size = hashlib.sha256(), 0, 0
    names = sorted((directory / "data").iterdir(), key=lambda p: int(p.name))
    starts = [int(p.name) for p in names]
    files = [p.open("rb") for p in names]
    try:
        for entry in dump_store(directory):
            if entry["index"] > committed:
                break
            which = max(n for n, start in enumerate(starts) if start <= entry["pos"])
            files[which].seek(entry["pos"] - starts[which])
            digest.update(files[which].read(entry["size"]))
            count, size = count + 1, size + entry["size"]
    finally:
        for file in files:
            file.close()
    return count, size, digest.hexdigest()


def compare_replicas(directories: list[Path], committed: int) -> Finding:
    """All nodes hold the same bytes up to the commit index."""
    prefixes = [committed_prefix(directory, committed) for directory in directories]
    count, size, digest = prefixes[0]
    found = (
        f"{len(set(prefixes))} version(s) of {count:,} entries, {size / 1e6:.1f} MB, sha256 "
        f"{digest[:12]}"
    )
    return Finding(
        "replicas agree byte for byte", found, len(set(prefixes)) == 1 and count == committed + 1
    )
