"""The result that every campaign writes with ``--json``: one form, so that the page of evidence can
be made from all of them."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final


def result(
    campaign: str,
    *,
    command: str,
    ok: bool,
    figures: Mapping[str, float],
    faults: Mapping[str, int],
    **more: Any,
) -> dict[str, Any]:
    """A campaign's result as JSON values.

    Args:
        campaign: its name, as in ``verification.evidence.promises``.
        command: the command line that runs it again.
        ok: whether everything held.
        figures: how much was done, each figure under its unit in the plural: ``{"seeds": 2000}``.
        faults: how often each kind of fault really bit.
        more: further values of the campaign; ``table`` is shown on the page: a list of rows, the
            first one the headings.
    """
    return {
        "campaign": campaign,
        "command": command,
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "ok": ok,
        "figures": dict(figures),
        "faults": dict(faults),
        **more,
    }


def save(found: Mapping[str, Any], path: Path) -> None:
    """Write a result."""
    path.write_text(json.dumps(found, indent=1) + "\n")


def end(
    found: Mapping[str, Any], folder: Path, json_file: Path | None, say: Callable[[str], None]
) -> int:
    """Tell a result's figures and problems, and write it; the exit code. ``folder`` stays only
    where it is red."""
    for name, value in found["figures"].items():
        say(f"{value:,} {name}")
    if json_file:
        save(found, json_file)
    for problem in found["problems"]:
        say(f"RED: {problem}")
    if found["ok"]:
        shutil.rmtree(folder)
        say("green")
    else:
        say(f"logs and stores are left in {folder}")
    return 0 if found["ok"] else 1


def command(
    name: str,
    about: str | None,
    unit: str,
    most: int,
    seeds: str,
    run: Callable[..., dict[str, Any]],
    argv: Sequence[str] | None,
) -> int:
    """The command of a campaign that is asked for by a number and a seed; its exit code.

    Args:
        name: the module's, below ``verification``, and the option's: ``--forks``.
        about: its docstring.
        unit: of the count, in words.
        most: so many, unless it is said.
        seeds: the choices that the seed decides, in words.
        run: gets a folder, the number, the seed, and a function that tells a line.
    """
    parser = argparse.ArgumentParser(prog=f"python -m verification.{name}", description=about)
    parser.add_argument(
        f"--{name}", dest="number", type=int, default=most, help=f"{unit} (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help=f"of {seeds} (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    wanted = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix=f"dledger-{name}-"))
    found = run(folder, wanted.number, wanted.seed, say)
    for fault, count in found["faults"].items():
        say(f"{count:>9} {fault}")
    return end(found, folder, wanted.json, say)


def say(text: str) -> None:
    """Print a line now, though the output may be a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


_BEGUN_AT: Final = _commit()
"""Taken when a campaign's process begins: the checkout may be another one when it ends."""


def commit() -> str:
    """The checkout's commit, with ``+`` when there are changes; empty where this is no checkout."""
    return _BEGUN_AT
