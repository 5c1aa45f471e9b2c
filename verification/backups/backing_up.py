"""Steps of the campaign: backups that are killed, that fail, and two at once."""

from __future__ import annotations

from typing import Final

from verification.backups import judge, places
from verification.backups.restoring import restore_harmed
from verification.backups.world import COMPLETE, KILLED, Command, Told, World

IN_A_ROW: Final = 6


def back_up(world: World) -> None:
    """Some that are killed, or one that fails; then one that goes on where they were."""
    dice, before = world.dice, set(judge.manifests(world.place))
    fault = "" if dice.random() < 0.5 else dice.choice(places.OF_BACKUPS)
    if fault:
        url = f"{places.SCHEME}://{world.place}"
        told = world.backup(url, fault=fault, calls=dice.choice([1, 2, 3, 5, 8, 13]))
    else:
        for _ in range(dice.randint(1, IN_A_ROW)):
            running = Command(world, *world.backup_words())
            running.kill(dice.uniform(0, world.took["backup"]))
            told = running.end()
            world.faults["backup killed"] += told.code == KILLED
            _no_partial(world, told)
    harmed = fault in (places.LOSES, places.FLIPS) and told.bit
    if told.code not in (COMPLETE, KILLED):
        holds = told.bit and told.code == 2 and "Traceback" not in told.err
        world.expect(holds, f"a backup with the fault {fault!r}: {told}")
    elif told.code == COMPLETE and fault != places.FLIPS:
        made = judge.manifests(world.place).get(told.json["name"], "not there")
        world.expect(made == judge.WHOLE, f"a backup that is {made}: {told}")
    if not harmed:
        _no_partial(world, told)
    world.look()
    if harmed:
        restore_harmed(world, fault)
        judge.remove_damaged(world.place)
    _resume(world, before)


def _no_partial(world: World, *told: Told) -> None:
    """What there is is whole; only a program that is killed may leave half a manifest, which is
    none."""
    allowed = {judge.WHOLE, judge.DAMAGED} if KILLED in [t.code for t in told] else {judge.WHOLE}
    for name, what in judge.manifests(world.place).items():
        world.expect(what in allowed, f"backup {name} is {what}: {', '.join(map(str, told))}")


def _resume(world: World, before: set[str]) -> None:
    """The next backup is whole, and writes no chunk again that is there."""
    there = _chunks(world)
    told = world.backup()
    again = {name for name, at in _chunks(world).items() if there.get(name, at) != at}
    world.expect(not again, f"a backup wrote chunks again: {again}: {told}")
    judge.remove_incomplete(world.place)
    world.expect(bool(set(judge.manifests(world.place)) - before), f"no new backup: {told}")
    world.figures["resumed backups"] += 1
    world.look()


def _chunks(world: World) -> dict[str, tuple[int, int]]:
    """File and time of each chunk that is there and sound."""
    paths = [world.place / "chunks" / n[:2] / n for n in judge.sound_chunks(world.place)]
    return {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in paths}


def back_up_twice(world: World) -> None:
    """At once, to one place; one may be killed, and each may drop older ones."""
    both = [Command(world, *world.backup_words()) for _ in range(2)]
    killed = world.dice.random() < 0.5
    if killed:
        both[0].kill(world.dice.uniform(0, world.took["backup"]))
    told = [one.end() for one in both]
    world.faults["one of two backups killed"] += told[0].code == KILLED
    for one in told[1 if told[0].code == KILLED else 0 :]:
        world.expect(one.code == COMPLETE, f"one of two backups: {one}")
    _no_partial(world, *told)
    world.figures["pairs of backups"] += 1
    world.look()
