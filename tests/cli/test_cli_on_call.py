"""The table of whoever is on call: each command in it is run as it stands there, but for its
addresses and directories, against a group of three."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger.testing import InProcessGroup
from tests.cli.commands import out
from tests.rules.markdown import table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
HOW = [how for _, how in table(PAGE.read_text(), "question or task | how")]
COMMANDS = [words for how in HOW for words in re.findall(r"`dledger (\w[^`]+)`", how)]
ELSEWHERE = {
    "console -b a:7001": "it serves until it is ended: tests/console",
    "recover /data/n2 --dry-run": "a majority has to be gone: tests/cli/test_cli_recover.py",
}


@pytest.fixture(scope="module")
def three() -> Iterator[InProcessGroup]:
    with InProcessGroup(3) as group, group.client() as client:
        client.create_topic("orders")
        client.append("orders", [b"one"])
        yield group


@pytest.mark.parametrize("words", [one for one in COMMANDS if one not in ELSEWHERE])
def test_commands_of_the_table_do_what_they_shall(
    words: str, three: InProcessGroup, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if "/data/n0" in words:
        words = words.replace("/data/n0", str(request.getfixturevalue("stopped_node")))
    for there, here in {
        "a:7001,b:7001,c:7001": three.bootstrap_servers,
        "a:7001": three.bootstrap_servers,
        "s3://bucket/orders": str(tmp_path / "backups"),
    }.items():
        words = words.replace(there, here)
    said = out(words)
    if "--json" in words:
        (of_the_row,) = (how for how in HOW if "`repair`" in how)
        fields = {"principals", *re.findall(r"`([a-z]+)`", of_the_row)}
        assert all(fields <= node.keys() for node in json.loads(said).values())


def test_commands_that_are_run_elsewhere_are_in_the_table() -> None:
    assert ELSEWHERE.keys() <= set(COMMANDS)
    assert len(COMMANDS) > 15
