"""Steps of the campaign: restores that are killed or fail, and the judgement over those that are
accepted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

from dledger.backup.restore_mark import MARK
from dledger.client import Client
from dledger.config import GroupConfig, NodeConfig
from dledger.embedded import EmbeddedGroup
from dledger.errors import DLedgerError, PathError
from dledger.storage.opening import open_store
from dledger.testing import InProcessGroup
from dledger.types import NodeId
from verification.backups import judge, places
from verification.backups.program import ENDS
from verification.backups.world import COMPLETE, KILLED, SMALL, Command, Told, World

IN_A_ROW: Final = 6
PEERS: Final = "n0-127.0.0.1:7001;n1-127.0.0.1:7002;n2-127.0.0.1:7003"


def restore(world: World) -> None:
    """Some that are killed or fail; then one that is not, to the same place."""
    world.made += 1
    base = world.folder / f"restored-{world.made}"
    words, directories = _restore_words(world, base)
    is_there = False
    for _ in range(world.dice.randint(1, IN_A_ROW)):
        is_there = is_there or _accepted(world, directories, _harmed(world, words))
    if not is_there:
        told = world.run(*words)
        world.took["restore"] = told.seconds
        world.expect(told.code == COMPLETE, f"a restore behind one that was not: {told}")
        world.expect(_accepted(world, directories, told), f"a restore that is none: {told}")
    shutil.rmtree(base, ignore_errors=True)


def _harmed(world: World, words: list[str]) -> Told:
    """One that is killed or fails, or comes to its end before that."""
    dice = world.dice
    chance = dice.random()
    if chance < 0.4:
        running = Command(world, *words)
        running.kill(dice.uniform(0, world.took["restore"]))
        told = running.end()
        world.faults["restore killed"] += told.code == KILLED
    elif chance < 0.85:
        told = world.run(*words, fault=ENDS, calls=dice.randrange(1, 60))
    else:
        fault = dice.choice(places.OF_RESTORES)
        there = [words[0], f"{places.SCHEME}://{world.place}", *words[2:]]
        told = world.run(*there, fault=fault, calls=dice.choice([1, 2, 4, 8, 16]))
        world.expect(told.code in (COMPLETE, 2), f"a restore whose place {fault}: {told}")
    return told


def _accepted(world: World, directories: list[Path], told: Told) -> bool:
    """Whether there is a group now: then it is the one at its index. Else no node starts."""
    named = [one for one in directories if one.exists()]
    open_ = [one for one in named if not (one / MARK).exists() or one.name == "group"]
    if len(open_) == len(directories):
        _judge(world, directories)
        return True
    world.expect(told.code != COMPLETE, f"a complete restore without its directories: {told}")
    if open_:
        # killed between the marks of several directories: all are complete, and the same command
        # brings that to its end
        world.expect(named == directories, f"of {directories} only {open_} may be used: {told}")
        world.figures["killed between two marks"] += 1
        return False
    for one in named:
        try:
            open_store(
                GroupConfig(members=(NodeId("n0"),)),
                NodeConfig(node_id=NodeId("n0"), directory=one),
            )
            world.expect(False, f"a node starts in {one} of a killed restore: {told}")
        except PathError:
            world.figures["directories of killed restores, refused"] += 1
    return False


def _restore_words(world: World, base: Path) -> tuple[list[str], list[Path]]:
    """A command line, and the directories that it makes."""
    dice = world.dice
    words = ["restore", str(world.place)]
    if dice.random() < 0.3:
        directories = [base / "group"]
        more = ["--nodes", dice.choice(["1", "3"])]
    else:
        directories = [base / f"n{number}" for number in range(3)]
        more = ["--peers", PEERS, "--group", "test"]
    if dice.random() < 0.3:
        newest = max(judge.manifests(world.place))
        more += ["--until-index", str(dice.randint(0, int(newest.partition("-")[0])))]
    return [*words, *map(str, directories), *more, "--json"], directories


def restore_harmed(world: World, fault: str) -> None:
    """A restore of a place that was harmed: refused, or right."""
    base = world.folder / "harmed"
    directories = [base / "group"]
    words = ["restore", str(world.place), str(directories[0]), "--nodes", "1", "--json"]
    told = world.run(*words)
    if told.code == COMPLETE:
        _judge(world, directories)
    else:
        holds = told.code == 2 and not any(base.glob("*"))
        world.expect(holds, f"a refused restore of a place that {fault}: {told}")
        world.expect(not judge.all_whole(world.place), f"refused: {told}")
        world.figures["refused restores of harmed places"] += 1
    shutil.rmtree(base, ignore_errors=True)


def _judge(world: World, directories: list[Path]) -> None:
    """Whether a restore that was accepted is the group at the index that it names."""
    world.figures["judged restores"] += 1
    try:
        _compare(world, directories)
    except DLedgerError as error:
        world.problems.append(f"{directories}: {error!r}")


def _compare(world: World, directories: list[Path]) -> None:
    embedded = directories[0].name == "group"
    made: Any = (
        EmbeddedGroup(directories[0])
        if embedded
        else InProcessGroup(3, directories[0].parent, **SMALL)
    )
    with made as group, Client(group.bootstrap_servers) as client:
        ancestors = client.lineage().ancestors
        if not ancestors:
            world.problems.append(f"{directories}: a group that no restore has made")
            return
        index = ancestors[-1][1]
        for text in judge.differences(client, world.history, index):
            world.problems.append(f"{directories} at entry {index}: {text}")
