"""``python -m verification.twins``: any number of random inputs to each function that has a
compiled twin, in both; and what the compiled one does with arguments that lie.

Both must give the same answer, or refuse an input with the same words where it can come from a
connection. With ``--sanitize`` the extension is built with the address and undefined behaviour
sanitizers first. With ``--planted`` bugs are planted in its source, one after the other, and each
must be found.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import dledger.catalog.topics.batch_rows
import dledger.client.protocol.reading.fetched
import dledger.protocol.wire
import dledger.records.body.header
import dledger.records.body.one_records
import dledger.records.columns.partitioner
import dledger.storage.log.index
import dledger.storage.meta.tables  # noqa: F401 - the functions in Python register themselves
from dledger.compiled import native, python
from dledger.protocol.wire import Frame
from verification.twins.inputs import MAKERS, lying
from verification.twins.planted import PLANTED

SOURCE = Path(__file__).resolve().parent.parent.parent / "python/dledger/_compiled.c"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1", "-g")
TOLD_FROM_OUTSIDE = {"split_runs"}
"""Functions whose refusals other programs cause: they say the same."""


class Different(AssertionError):
    """The twins do not agree."""


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def is_shared(one: Any, other: Any) -> bool:
    """Whether two frames have one header, by which their reader takes them for alike."""
    return isinstance(one, Frame) and one.header is other.header


def answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, str]:
    """What it gives, lists and memory that it was given to fill, and which neighbours in a list are
    alike; or the words of its refusal."""
    given = tuple(
        list(one) if one == [] else bytearray(one) if isinstance(one, bytearray) else one
        for one in arguments
    )
    filled = [one for one in given if isinstance(one, list | bytearray)]
    try:
        result = function(*given)
        lists = [one for one in filled if isinstance(one, list)]
        shared = [is_shared(*two) for one in lists for two in pairwise(one)]
        return (result, filled, shared), ""
    except (ValueError, OverflowError, TypeError, IndexError) as error:
        return None, str(error) or type(error).__name__
    except Exception as error:
        if type(error).__module__ == "struct" or type(error).__name__ == "error":
            return None, str(error)
        raise


def compare(name: str, twin: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Ask both.

    Raises:
        Different: they do not agree.
    """
    expected, refused = answer(python[name], arguments)
    found, words = answer(twin, arguments)
    if (found, bool(words)) != (expected, bool(refused)) or (
        name in TOLD_FROM_OUTSIDE and words != refused
    ):
        raise Different(f"{name}{arguments!r}: {found or words!r}, not {expected or refused!r}")


def run(twins: ModuleType, inputs: int, seed: int) -> int:
    """Compare every function with so many inputs, and give it as many that lie."""
    for name, make in MAKERS.items():
        dice, twin = random.Random(f"{seed} {name}"), getattr(twins, name)
        for _ in range(inputs):
            arguments = make(dice)
            compare(name, twin, arguments)
            answer(twin, lying(dice, arguments))  # refused or not: it reads nothing else
    return inputs * len(MAKERS)


def build(source: str, directory: Path, *flags: str) -> Path:
    """The extension that this source makes."""
    code, built = directory / "_compiled.c", directory / "_compiled.abi3.so"
    code.write_text(source)
    include = sysconfig.get_path("include")
    command = ("cc", "-shared", "-fPIC", "-O2", "-DPy_LIMITED_API=0x030B0000", f"-I{include}")
    subprocess.run([*command, *flags, "-o", built, code], check=True)
    return built


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("dledger._compiled", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sanitized(inputs: int, seed: int) -> int:
    """Run all of it in a process whose extension has the sanitizers."""
    with tempfile.TemporaryDirectory() as directory:
        built = build(SOURCE.read_text(), Path(directory), *SANITIZERS)
        runtime = [
            subprocess.check_output(["cc", f"-print-file-name={name}"], text=True).strip()
            for name in ("libasan.so", "libubsan.so")
        ]
        options = {"LD_PRELOAD": " ".join(runtime), "ASAN_OPTIONS": "detect_leaks=0"}
        command = [sys.executable, "-m", "verification.twins", "--library", str(built)]
        numbers = ["--inputs", str(inputs), "--seed", str(seed)]
        return subprocess.call([*command, *numbers], env={**os.environ, **options})


def planted(inputs: int, seed: int) -> list[str]:
    """The planted bugs that no input finds."""
    missed, source = [], SOURCE.read_text()
    for name, (good, bad) in PLANTED.items():
        if source.count(good) != 1:
            raise SystemExit(f"{name}: {good!r} stands {source.count(good)} times in {SOURCE.name}")
        with tempfile.TemporaryDirectory() as directory:
            twins = load(build(source.replace(good, bad), Path(directory)))
            try:
                run(twins, inputs, seed)
            except Different as error:
                tell(f"{name}: {str(error).partition('(')[0]}")
            else:
                missed.append(name)
                tell(f"{name}: NOT FOUND")
    return missed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m verification.twins", description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000, help="for each function")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--library", type=Path, help="another build of the extension")
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--planted", action="store_true")
    asked = parser.parse_args(arguments)
    if asked.sanitize:
        return sanitized(asked.inputs, asked.seed)
    if asked.planted:
        return 1 if planted(asked.inputs, asked.seed) else 0
    twins = load(asked.library) if asked.library else native
    if twins is None:
        raise SystemExit("the extension could not be built here, or DLEDGER_COMPILED says no")
    tell(f"{run(twins, asked.inputs, asked.seed):,} inputs, equal answers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
