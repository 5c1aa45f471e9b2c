"""The compiled functions beside those in Python, and a program without them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dledger.compiled import native, python
from verification.twins.__main__ import Different, build, load, main, run
from verification.twins.inputs import MAKERS
from verification.twins.planted import PLANTED

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
SOURCE = Path(__file__).resolve().parents[2] / "python/dledger/_compiled.c"


def printed(script: str, **environment: str) -> str:
    """What another interpreter prints; it must end well."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_each_function_with_a_twin_gets_inputs() -> None:
    assert set(MAKERS) == set(python)
    if native is not None:
        assert {name for name in dir(native) if not name.startswith("_")} == set(python)


def test_twins_give_equal_answers(capsys: pytest.CaptureFixture[str]) -> None:
    if native is None:
        pytest.skip("the extension could not be built here")
    assert main(["--inputs", "400", "--seed", "7"]) == 0
    assert f"{400 * len(MAKERS):,} inputs, equal answers" in capsys.readouterr().out


@needs_compiler
def test_sanitizers_see_nothing_where_arguments_lie() -> None:
    assert main(["--inputs", "60", "--sanitize"]) == 0


@needs_compiler
@pytest.mark.parametrize("name", ["stamp-over-the-end", "batches-of-a-producer", "rows-in-reverse"])
def test_planted_bug_in_c_is_found(name: str, tmp_path: Path) -> None:
    source, (good, bad) = SOURCE.read_text(), PLANTED[name]
    twins = load(build(source.replace(good, bad), tmp_path))
    with pytest.raises(Different):
        run(twins, 300, 1)


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_in_c_changes_one_place(name: str) -> None:
    good, bad = PLANTED[name]
    assert SOURCE.read_text().count(good) == 1
    assert good != bad


def test_a_program_runs_without_the_extension() -> None:
    told = "from dledger.compiled import native; print(native)"
    assert printed(told, DLEDGER_COMPILED="no") == "None\n"


def test_an_extension_for_another_machine_is_named_and_left_out(tmp_path: Path) -> None:
    """The loader of the system refuses it."""
    (tmp_path / "_compiled.abi3.so").write_bytes(b"\x7fELF of another machine")
    script = f"""
import logging, dledger
logging.basicConfig()
dledger.__path__.insert(0, {str(tmp_path)!r})
from dledger.compiled import native
print(native)
"""
    said = printed(script, DLEDGER_COMPILED="")
    assert "None" in said
    assert "dledger runs without its compiled functions" in said


def test_simulated_groups_are_the_same_with_and_without_it() -> None:
    """But for the word of its status that says whether it is there."""
    story = """
import dledger.node.parts
from verification.sim.run import run_seed
dledger.node.parts.native = None
print(run_seed(11).trace_hash)
"""
    assert printed(story, DLEDGER_COMPILED="no") == printed(story, DLEDGER_COMPILED="")
