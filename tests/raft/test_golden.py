"""Raft as scripts that people can read: tests/raft/golden, each with what it prints.

``pytest tests/raft/test_golden.py --rewrite`` writes down what they print now.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.raft.interaction import Interaction

SCRIPTS = sorted((Path(__file__).parent / "golden").glob("*.txt"))
DASHES = "----"


def played(text: str) -> str:
    """A script with what its commands print."""
    interaction, blocks = Interaction(), []
    for block in text.strip("\n").split("\n\n"):
        commands = block.partition(f"\n{DASHES}")[0].splitlines()
        printed = [
            line
            for command in commands
            if command and not command.startswith("#")
            for line in interaction.run(command)
        ]
        blocks.append("\n".join([*commands, DASHES, *printed] if printed else commands))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_prints_what_it_did(script: Path, request: pytest.FixtureRequest) -> None:
    text = script.read_text()
    now = played(text)
    if request.config.getoption("--rewrite"):
        script.write_text(now)
    else:
        assert now == text


def test_a_change_of_what_a_script_prints_is_seen() -> None:
    text = next(path for path in SCRIPTS if path.stem == "election").read_text()
    other = text.replace("n0 is LEADER of term 0", "n1 is LEADER of term 0")
    assert other != text
    assert played(other) == text


def test_there_is_a_script_of_each_rule() -> None:
    assert len(SCRIPTS) >= 12
