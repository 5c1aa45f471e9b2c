"""What must hold of places and of restored groups, looked at without the code that made them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dledger.client import Client
from verification.backups.load import History, State, repeat

WHOLE, PARTIAL, DAMAGED = "whole", "partial", "damaged"
"""All has the bytes of its name; only the manifest has; not even that."""


def sound_chunks(place: Path) -> dict[str, int]:
    """The chunks at a place that have the bytes of their names, with their sizes."""
    found: dict[str, int] = {}
    for path in (place / "chunks").glob("*/*"):
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() == path.name:
            found[path.name] = len(data)
    return found


def manifests(place: Path) -> dict[str, str]:
    """The manifests at a place by name, and what each is."""
    known = sound_chunks(place)
    found: dict[str, str] = {}
    for path in (place / "manifests").glob("*.json"):
        data = path.read_bytes()
        if not hashlib.sha256(data).hexdigest().startswith(path.stem.rpartition("-")[2]):
            found[path.stem] = DAMAGED
        elif all(known.get(chunk) == size for chunk, size in _chunks(data)):
            found[path.stem] = WHOLE
        else:
            found[path.stem] = PARTIAL
    return found


def all_whole(place: Path) -> bool:
    """Whether no manifest is anything else."""
    return set(manifests(place).values()) <= {WHOLE}


def _chunks(manifest: bytes) -> list[tuple[str, int]]:
    value = json.loads(manifest)
    return [(one[0], one[1]) for part in ("log", "front", "rows") for one in value[part]]


def remove_damaged(place: Path) -> None:
    """What the operator does about files that ``backup verify`` names."""
    for path in (place / "chunks").glob("*/*"):
        if hashlib.sha256(path.read_bytes()).hexdigest() != path.name:
            path.unlink()
    for name, what in manifests(place).items():
        if what == DAMAGED:
            (place / "manifests" / f"{name}.json").unlink()


def remove_incomplete(place: Path) -> None:
    """Old backups with chunks that the group cannot give again, as its catalog of that time."""
    for name, what in manifests(place).items():
        if what != WHOLE:
            (place / "manifests" / f"{name}.json").unlink()


def differences(client: Client, history: History, index: int) -> list[str]:
    """How a restored group differs from the group at this entry, in words."""
    history.read()
    found: list[str] = []
    due = history.entries[: index + 1]
    there = client.entries(0, index + 1)
    for one, other in zip(due, there, strict=False):
        # offsets of staged records, and names of topics that are deleted, come later
        if _plain(one) != _plain(other):
            found.append(f"entry {one.index} is {other}, not {one}")
            break
    if len(there) != len(due):
        found.append(f"{len(there)} entries up to {index}")
    for name, state in history.at(index).items():
        found += [f"{name}: {text}" for text in _of_writer(client, name, state)]
    return found


def _plain(entry: Any) -> tuple[Any, ...]:
    return entry.index, entry.term, entry.pos, entry.size, entry.kind, entry.command, entry.fields


def _of_writer(client: Client, name: str, state: State) -> Iterable[str]:
    topics = {info.name for info in client.topics()}
    extra = {topic for topic in topics if topic.startswith(f"{name}-")}
    if extra != state.topics:
        yield f"topics {extra}, not {state.topics}"
    if name not in topics:
        if any(state.values.values()):
            yield "its topic is not there"
        return
    for partition, values in state.values.items():
        batches = client.read(name, partition, 0)
        there = [value for batch in batches for value in batch["value"].to_pylist()]
        if there != values:
            yield f"{len(there)} records in partition {partition}, not {len(values)}, or others"
    positions = client.group(name).offsets.get(name, {}) if name in client.groups() else {}
    if positions != state.progress:
        yield f"positions {positions}, not {state.progress}"
    yield from _exactly_once(client, name, state)


def _exactly_once(client: Client, name: str, state: State) -> Iterable[str]:
    """Calls that were acknowledged before are known, and new ones are not."""
    ends = client.end_offsets(name)
    for call, start in state.last_append.values():
        if call.session is not None:
            told = repeat(client, name, call)
            if told != (start, start + len(call.values[call.partition])):
                yield f"a repeated append of {start} in partition {call.partition} is told {told}"
    done = state.transaction
    if done >= 0 and not client.commit_transaction(name, done, ()).repeated:
        yield f"transaction {done} is committed twice"
    if client.end_offsets(name) != ends:
        yield f"repeats have added records: {client.end_offsets(name)}, not {ends}"
    with client.transaction(name, done + 1) as transaction:
        transaction.append(name, b"new", partition=0)
    if client.end_offsets(name)[0] != ends[0] + 1:
        yield "a new transaction is not taken"
