"""Faults of what lies on a disk: bytes that change, and a directory that is gone. The group must
mend them by itself, or with the one command that an operator has for it."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger.protocol.messages.entry import HEADER, MAGIC_BLANK, MIN_BLANK_SIZE
from verification.chaos.command import command
from verification.chaos.faults.fault import fault
from verification.chaos.process import Node
from verification.chaos.scene import BACK_S, Scene

CLOSE: Final = 64
"""Entries at the end of the log that are left alone: they may not be everywhere yet."""
MENDED_S: Final = 60.0
"""So long it may take to find and mend damage: the scrub reads no faster than it is told, and
rests."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an entry stands."""

    index: int
    file: Path
    at: int
    size: int


def entries_of(directory: Path, last: int) -> list[Place]:
    """All entries up to ``last`` in the data files of a store, whether a node runs on it or not."""
    found: list[Place] = []
    for path in sorted(path for path in (directory / "data").iterdir() if path.name.isdecimal()):
        data, at = path.read_bytes(), 0
        while at + HEADER.size <= len(data):
            magic, size, index, *_ = HEADER.unpack_from(data, at)
            if magic in {0, MAGIC_BLANK} or size < MIN_BLANK_SIZE or index > last:
                break
            found.append(Place(index, path, at, size))
            at += size
    return found


def flip(place: Place, at: int) -> None:
    """Change one byte of an entry."""
    with place.file.open("r+b") as file:
        file.seek(place.at + at)
        old = file.read(1)[0]
        file.seek(place.at + at)
        file.write(bytes([old ^ 0x40]))


async def _committed_everywhere(scene: Scene) -> int:
    """The last entry that surely stands on every node, or a number below 0."""
    found = [status.get("durable_index", -1) for status in (await scene.nodes.statuses()).values()]
    committed = [
        status.get("committed_index", -1) for status in (await scene.nodes.statuses()).values()
    ]
    return int(min(*found, *committed)) - CLOSE


def _damage(scene: Scene, node: Node, last: int) -> int:
    """Flip one byte in each of a few entries; their number."""
    entries = entries_of(node.directory, last)
    chosen = scene.dice.sample(entries, min(len(entries), scene.dice.randint(1, 3)))
    for place in chosen:
        flip(place, scene.dice.randrange(place.size))
    return len(chosen)


@fault("bytes of committed entries change on a node that is down", "entries repaired")
async def flip_stopped(scene: Scene) -> int:
    """While it is down; it must find that when it starts or later, and get the entries from the
    others."""
    last = await _committed_everywhere(scene)
    node = scene.any_node()
    if last < 0:
        return 0
    node.signal(signal.SIGKILL)
    node.reap()
    damaged = _damage(scene, node, last)
    await scene.restart(node)
    return await _mended(scene, node, damaged, 0)


@fault("bytes of committed entries change under a node that runs", "entries repaired")
async def flip_running(scene: Scene) -> int:
    """While it runs; a read or the scrub must find that."""
    last = await _committed_everywhere(scene)
    node = scene.any_node()
    if last < 0:
        return 0
    before = int((await node.status()).get("repair", {}).get("repaired", 0))
    return await _mended(scene, node, _damage(scene, node, last), before)


async def _mended(scene: Scene, node: Node, damaged: int, before: int) -> int:
    """Wait until all is repaired; how much was."""

    async def mended() -> bool:
        repair = (await node.status()).get("repair", {})
        return not repair.get("faulty", True) and repair.get("repaired", 0) - before >= damaged

    if not await scene.nodes.until(mended, MENDED_S):
        repair = (await node.status()).get("repair")
        scene.problem(
            f"{node.name}: {damaged} damaged entries are not repaired: {repair}\n"
            f"{node.last_words()}"
        )
        return 0
    return damaged


@fault("a node comes back with an empty directory, and is admitted", "nodes noticed and admitted")
async def wipe(scene: Scene) -> int:
    """The node that comes back has forgotten its votes and records: it must be noticed, and does
    not count before it is admitted by the command that an operator has for it."""
    node = scene.any_node()
    if not await scene.nodes.until(lambda: _is_admitted(node, True), BACK_S):
        return 0
    node.signal(signal.SIGKILL)
    node.reap()
    node.exchange_disk()
    await scene.restart(node)
    if not await scene.nodes.until(lambda: _is_admitted(node, False), BACK_S):
        admission = (await node.status()).get("admission")
        scene.problem(f"{node.name} lost its disk, and counts as if it had not: {admission}")
        return 0
    await asyncio.sleep(scene.seconds(0.0, 2.0))
    said: list[str] = []

    async def admitted() -> bool:
        where = "-b", scene.nodes.bootstrap_servers, "--timeout", "5"
        said[:] = [(await command("admit", node.name, *where))[1]]
        return await _is_admitted(node, True)

    if not await scene.nodes.until(admitted, MENDED_S):
        scene.problem(f"{node.name} is not admitted: {said}\n{node.last_words()}")
        return 0
    return 1


async def _is_admitted(node: Node, wanted: bool) -> bool:
    return (await node.status()).get("admission", {}).get("admitted") is wanted


DAMAGE_FAULTS: Final = (flip_stopped, flip_running, wipe)
