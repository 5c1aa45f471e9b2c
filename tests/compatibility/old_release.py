"""A release before this one, from git's history: its wheel, in a virtual environment of its own."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

TOP = Path(__file__).parents[2]
COMMIT = "402ba72c"
"""The last one without group versions: its nodes announce none, which is version 0."""


class NotThere(Exception):
    """The release cannot be made here; the text says why."""


def install(root: Path, commit: str = COMMIT) -> Path:
    """The interpreter of a new environment below ``root`` with the wheel of that commit. What the
    wheel needs comes from the environment of this interpreter, so nothing is fetched.

    Raises:
        NotThere: git's history or a build is not available.
    """
    tree, dist, venv = root / "tree", root / "dist", root / "venv"
    _run("git", "clone", "--quiet", "--shared", "--no-checkout", str(TOP), str(tree))
    _run("git", "-C", str(tree), "checkout", "--quiet", commit)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    build = ("wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(dist))
    _run(*pip, *build, str(tree))
    _run(sys.executable, "-m", "venv", "--without-pip", str(venv))
    packages = next(venv.glob("lib/python3*/site-packages"))
    (wheel,) = dist.glob("dledger-*.whl")
    _run(*pip, "install", "--no-deps", "--no-index", "--target", str(packages), str(wheel))
    # read behind the wheel's own modules, and without the link to this checkout that is in it
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = venv / "bin" / "python"
    there = _run(str(python), "-c", "import dledger; print(dledger.__file__)")
    if not Path(there.strip()).is_relative_to(packages):
        raise NotThere(f"the environment of {commit} finds another dledger: {there}")
    return python


def tree_of(python: Path) -> Path:
    """The checkout behind an interpreter that `install` has made."""
    return python.parents[2] / "tree"


def _run(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=TOP.anchor, timeout=300
        )
    except FileNotFoundError as error:
        raise NotThere(f"there is no {command[0]}") from error
    except subprocess.CalledProcessError as error:
        raise NotThere(f"{' '.join(command)}: {error.stderr.strip()[-500:]}") from error
    return done.stdout
