"""One group under load, the commands that are run for it, and what they said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from dledger.embedded import EmbeddedGroup
from dledger.errors import DLedgerError
from verification.backups import judge
from verification.backups.load import History
from verification.backups.program import Order

PROGRAM: Final = [sys.executable, "-m", "verification.backups.program"]
PATIENCE_S: Final = 60.0
"""For a command; one that takes longer hangs."""
SMALL: Final[dict[str, Any]] = {
    "segment_bytes": 1 << 20,
    "max_body_bytes": 64 << 10,
    "index_file_bytes": 64 << 10,
}
COMPLETE, KILLED = 0, -signal.SIGKILL


@dataclass(slots=True)
class Told:
    """What a command has said."""

    code: int
    out: str
    err: str
    seconds: float
    bit: bool
    """Its fault has bitten."""

    @property
    def json(self) -> dict[str, Any]:
        """Of a command that was complete."""
        value: dict[str, Any] = json.loads(self.out[self.out.index("{") :])
        return value

    def __str__(self) -> str:
        return f"code {self.code}, {self.out[-300:]!r} {self.err[-1500:]!r}"


class Programs:
    """Programs that run commands, one each at a time."""

    def __init__(self) -> None:
        self._idle: list[subprocess.Popen[str]] = []
        self._all: list[subprocess.Popen[str]] = []

    def take(self) -> subprocess.Popen[str]:
        """One that runs nothing."""
        if self._idle:
            return self._idle.pop()
        made = subprocess.Popen(PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._all.append(made)
        return made

    def give(self, program: subprocess.Popen[str]) -> None:
        self._idle.append(program)

    def end(self) -> None:
        """All of them end."""
        for one in self._all:
            one.communicate()


class Command:
    """One that runs."""

    def __init__(self, world: World, *words: str, fault: str = "", calls: int = 0) -> None:
        self._programs = world.programs
        self._program = world.programs.take()
        world.commands += 1
        self._output = world.folder / f"command-{world.commands}"
        self._tell(json.dumps(Order(list(words), fault, calls, str(self._output))))
        self._pid = int(self._answer())
        self._began = time.monotonic()

    def _tell(self, line: str) -> None:
        assert self._program.stdin is not None
        self._program.stdin.write(line + "\n")
        self._program.stdin.flush()

    def _answer(self) -> str:
        assert self._program.stdout is not None
        return self._program.stdout.readline()

    def kill(self, after_s: float) -> None:
        """SIGKILL after a time, unless it has ended."""
        time.sleep(after_s)
        os.kill(self._pid, signal.SIGKILL)  # what has ended is kept until `end`

    def end(self) -> Told:
        """What it has said, when it has ended."""
        hangs = threading.Timer(PATIENCE_S, self.kill, (0,))
        hangs.start()
        code = int(self._answer())
        took = time.monotonic() - self._began
        hangs.cancel()
        hangs.join()
        self._tell("")
        self._programs.give(self._program)
        out, err = (_text(self._output.with_suffix(suffix)) for suffix in (".out", ".err"))
        if took > PATIENCE_S:
            err += f"\nit took more than {PATIENCE_S:g} s"
        return Told(code, out, err, took, self._output.with_suffix(".bit").exists())


def _text(path: Path) -> str:
    """Nothing where the command was killed before it had its output."""
    return path.read_text() if path.exists() else ""


@dataclass(slots=True)
class World:
    """One group under load, its place of backups, and what was found."""

    folder: Path
    group: EmbeddedGroup
    history: History
    dice: Random
    faults: Counter[str]
    figures: Counter[str]
    problems: list[str] = field(default_factory=list)
    took: dict[str, float] = field(default_factory=lambda: {"backup": 1.0, "restore": 1.0})
    made: int = 0
    commands: int = 0
    programs: Programs = field(default_factory=Programs)

    @property
    def place(self) -> Path:
        return self.folder / "place"

    def run(self, *words: str, fault: str = "", calls: int = 0) -> Told:
        """A command to its end."""
        told = Command(self, *words, fault=fault, calls=calls).end()
        if fault and told.bit:
            self.faults[f"{words[0]}: {fault}"] += 1
        return told

    def backup(self, place: str = "", **fault: Any) -> Told:
        """One backup; without a fault it has to be complete."""
        told = self.run(*self.backup_words(place), **fault)
        if not fault:
            self.took["backup"] = told.seconds
            self.expect(told.code == COMPLETE, f"a backup without a fault: {told}")
        return told

    def backup_words(self, place: str = "") -> list[str]:
        """A backup's command line."""
        keep = ["--keep", str(self.dice.randint(1, 4))] if self.dice.random() < 0.4 else []
        at = place or self.dice.choice([str(self.place), f"faulty://{self.place}"])
        return ["backup", "create", at, "-b", self.group.bootstrap_servers, *keep, "--json"]

    def expect(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)

    def look(self) -> None:
        """Only whole backups are called so: by ``verify``, and by a restore."""
        told = self.run("backup", "verify", str(self.place), "--json")
        self.figures["verified places"] += 1
        sound = judge.all_whole(self.place)
        self.expect(
            (told.code == COMPLETE) == sound and told.code in (0, 1),
            f"verify says {told} of {judge.manifests(self.place)}",
        )


def kill_nodes(world: World) -> threading.Thread:
    """SIGKILL one node or all of them a little later, and start them again."""
    group, chance = world.group, world.dice.random()
    one, after_s = world.dice.choice(list(group.nodes)), world.dice.uniform(0.2, 1.2)

    def kill() -> None:
        time.sleep(after_s)
        try:
            nodes = [group.leader] if chance < 0.4 else [one] if chance < 0.8 else [*group.nodes]
            for node in nodes:
                group.kill(node)
            for node in nodes:
                group.restart(node)
            world.faults["nodes: all killed" if len(nodes) > 1 else "node killed"] += 1
        except DLedgerError as error:
            world.problems.append(f"nodes: {error!r}")

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread
