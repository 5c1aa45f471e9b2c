"""What this release writes is read by an earlier one: ``python both_ways.py COMMIT``.

Installs that commit in a directory of its own, and lets it read a log, frames and a query's
checkpoint that the present release has written.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TOP = HERE.parents[1]


def run(python: Path, script: str, *arguments: str) -> str:
    """What a script prints under that interpreter; its environment is that interpreter's."""
    environment = os.environ | {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": str(python),
    }
    command = [python, HERE / script, *arguments]
    done = subprocess.run(
        command, env=environment, cwd=python.parent, check=True, capture_output=True, text=True
    )
    return done.stdout


def last(printed: str) -> object:
    return json.loads(printed.splitlines()[-1])


def check(before: Path, root: Path) -> None:
    """Raises where the release ``before`` reads other things than this one wrote."""
    now = Path(sys.executable)
    written = last(run(now, "log_story.py", "write", str(root)))
    assert last(run(before, "log_story.py", "read", str(root))) == written
    print("log: read alike")  # noqa: T201
    run(now, "wire_story.py", "write", str(root / "frames"))
    run(before, "wire_story.py", "read", str(root / "frames"))
    print("frames: decoded and encoded alike")  # noqa: T201
    (root / "query").mkdir()
    copied = last(run(now, "spark_story.py", "write", str(root / "query")))
    assert last(run(before, "spark_story.py", "go-on", str(root / "query"))) == copied
    print("query: its batch is known, and none is written twice")  # noqa: T201


def main(commit: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        tree, venv = root / "tree", root / "venv"
        subprocess.run(["git", "clone", "--quiet", TOP, tree], check=True)
        subprocess.run(["git", "-C", tree, "checkout", "--quiet", commit], check=True)
        setup = ["make", "-C", tree, "setup", f"VENV={venv}"]
        subprocess.run(setup, check=True, stdout=subprocess.DEVNULL)
        check(venv / "bin" / "python", root)


if __name__ == "__main__":
    main(*sys.argv[1:])
