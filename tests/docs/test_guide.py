"""The operator's guide: its commands are run against real nodes, in its order, and print what it
shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dledger.embedded.ports import free_ports
from tests.docs.guide import ANY, fits, session, shape, typed_commands
from tests.docs.ways import BIN

PAGE = "docs/guides/changing-a-group.md"
PORTS = range(7001, 7006)


@pytest.mark.cluster
def test_the_commands_of_the_guide_print_what_it_shows(tmp_path: Path) -> None:
    commands = list(typed_commands(PAGE))
    small = {"DLEDGER_SERVE_SEGMENT_BYTES": 16 << 20, "DLEDGER_SERVE_INDEX_FILE_BYTES": 1 << 20}
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("DLEDGER_")},
        **{name: str(value) for name, value in small.items()},
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "DLEDGER_USER_DIRECTORY": str(tmp_path / "user"),
        "COLUMNS": "200",
    }
    ports = dict(zip(PORTS, free_ports("127.0.0.1", len(PORTS)), strict=True))
    printed = session(commands, tmp_path, ports, environ)
    wrong = [
        f"{PAGE}:{one.line}: {one.command}\n" + "\n".join(found)
        for one, found in zip(commands, printed, strict=True)
        if not fits(one.shown, found)
    ]
    assert not wrong, "\n\n".join(wrong)
    assert len(commands) > 40


def test_shapes_forget_what_differs_from_run_to_run() -> None:
    assert shape("n0  LEADER    1  00af00000000e1") == shape("n0 FOLLOWER 12 beef4711beef4711")
    assert shape("n0 is a voter") != shape("n0 is a learner")
    assert fits(("a 1", ANY, "z"), ["a 7", "b", "z"])
    assert not fits(("a 1", ANY, "z"), ["a 7", "b"])
    assert not fits((), ["said"])
