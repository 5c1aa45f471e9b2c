"""Two revisions of this checkout, or directories with one, measured in pairs: ``python -m
benchmarks.compare A B [--only append,read] [--pairs 10] [--rounds 3]``.

A revision is cloned to a temporary directory. Each of the two gets its ``make setup``. Then
`benchmarks.pairs` measures requests and connections, and `benchmarks.section_pairs` the sections
that are named. Ratios are A's figures over B's, with 95 % intervals; of sections, above one is
worse.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).resolve().parent.parent
SHOWN: Final = 30
"""Last lines of a set-up that failed."""
NAMED: Final = 5
"""Changed files that are told by name."""
OUTER: Final = ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", "VENV")
"""Variables by which the make that called this would choose another one's environment."""


@dataclass(frozen=True)
class Side:
    """One of the two. ``commit``: to be cloned; None: the directory is measured as it is."""

    directory: Path
    commit: str | None
    title: str


def git(directory: Path, *words: str) -> str | None:
    """What git says; None where it fails."""
    done = subprocess.run(
        ["git", "-C", directory, *words], capture_output=True, text=True, check=False
    )
    return None if done.returncode else done.stdout.rstrip()


def side(name: str, top: Path = TOP) -> Side:
    """What a name stands for: a directory that is there, else a revision.

    Raises:
        SystemExit: neither, or a directory without benchmarks; the message says which.
    """
    path = Path(name)
    if path.is_dir():
        if not (path / "Makefile").is_file() or not (path / "benchmarks").is_dir():
            raise SystemExit(f"{name} is a directory without a Makefile and benchmarks/ to run")
        return Side(path.resolve(), None, f"{name}, {state_of(path)}")
    commit = git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", name + "^{commit}")
    if commit is None:
        raise SystemExit(f"{name!r} is neither a directory nor a revision of {top}")
    if git(top, "cat-file", "-e", f"{commit}:benchmarks/groups.py") is None:
        raise SystemExit(f"{name!r} is before benchmarks/groups.py, so nothing can be measured")
    return Side(top, commit, f"{name}, {git(top, 'log', '-1', '--format=%h %s', commit)}")


def state_of(directory: Path) -> str:
    """Its commit, and the files that differ from it."""
    commit = git(directory, "log", "-1", "--format=%h %s")
    if commit is None:
        return "no git checkout"
    changed = changes(directory)
    return f"{commit}, with changes that are not committed: {changed}" if changed else commit


def changes(directory: Path) -> str:
    """The first files that differ from the commit that is checked out; "" where none does."""
    names = [line[3:] for line in (git(directory, "status", "--porcelain") or "").splitlines()]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


@contextmanager
def ready(sides: Sequence[Side]) -> Iterator[list[Path]]:
    """The directories of checkouts that can be measured; clones are gone afterwards.

    Raises:
        SystemExit: a set-up failed; the message has its last lines.
    """
    with tempfile.TemporaryDirectory(prefix="dledger-compare-") as scratch:
        found = []
        for number, one in enumerate(sides):
            directory = one.directory
            if one.commit is not None:
                directory = Path(scratch) / "AB"[number]
                clone = ["clone", "--quiet", "--shared", "--no-checkout", str(one.directory)]
                checkout = ["checkout", "--quiet", "--detach", one.commit]
                if git(Path(scratch), *clone, str(directory)) is None or (
                    git(directory, *checkout) is None
                ):
                    raise SystemExit(f"{one.directory} cannot be cloned to {directory}")
            set_up(directory, one.title)
            found.append(directory)
        yield found


def set_up(directory: Path, title: str) -> None:
    """``make setup`` with the Python of this process."""
    print(f"make setup of {title}", file=sys.stderr, flush=True)
    environment = {name: value for name, value in os.environ.items() if name not in OUTER}
    done = subprocess.run(
        ["make", "setup", f"PYTHON={sys.executable}"],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-SHOWN:])
        raise SystemExit(f"make setup of {title} ended with {done.returncode}:\n{last}")


def main(argv: Sequence[str]) -> int:
    """1 when a section is worse than `benchmarks.section_pairs` allows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("a", metavar="A", help="revision or directory")
    parser.add_argument("b", metavar="B", help="the one that it is compared with")
    parser.add_argument("--only", default="", help="sections of make bench too")
    parser.add_argument("--pairs", type=int, default=10, help="of requests; 0: none")
    parser.add_argument("--rounds", type=int, default=3, help="of sections")
    parser.add_argument("--repetitions", type=int, default=1, help="of a section in each round")
    asked = parser.parse_args(argv)
    sides = [side(asked.a), side(asked.b)]
    for letter, one in zip("AB", sides, strict=True):
        named = ", below: other" if letter == "B" else ""
        print(f"{letter} is {one.title}{named}", flush=True)
    if any(one.commit for one in sides) and (changed := changes(TOP)):
        print(f"changes that are not committed are in no revision: {changed}", flush=True)
    with ready(sides) as (here, other):
        both, code = ["--here", str(here), "--other", str(other)], 0
        if asked.pairs:
            code = measure("pairs", *both, "--pairs", str(asked.pairs))
        if asked.only and not code:
            repetitions = ["--rounds", str(asked.rounds), "--repetitions", str(asked.repetitions)]
            code = measure("section_pairs", *both, "--only", asked.only, *repetitions)
    return code


def measure(module: str, *words: str) -> int:
    """Run a module of benchmarks; its exit code."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *words]
    return subprocess.run(command, cwd=TOP, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
