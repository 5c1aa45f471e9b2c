"""The files of deploy/, as the programs that read them see them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "dledger@.service"
EXPOSURE = 2.0


def needs(tool: str, way: str) -> str:
    """The path of a program, else the test is skipped with the way to get it."""
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"{tool} is not there: {way}")
    return found


def test_unit_exposes_little() -> None:
    analyze = needs("systemd-analyze", "it is in Debian's package systemd")
    done = subprocess.run(
        [analyze, "security", "--offline=true", "--no-pager", str(UNIT)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) <= EXPOSURE


def test_unit_has_no_unknown_line(tmp_path: Path) -> None:
    """All that is missed on this machine is the program, where it is installed."""
    analyze = needs("systemd-analyze", "it is in Debian's package systemd")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/dledger/bin/dledger", "/bin/true"))
    done = subprocess.run(
        [analyze, "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert str(unit.name) not in done.stderr, done.stderr


def test_unit_gives_a_hung_node_up_and_leaves_wrong_settings_to_people() -> None:
    lines = UNIT.read_text().splitlines()
    assert {"Type=notify", "WatchdogSec=30", "Restart=on-failure"} <= set(lines)
    assert "RestartPreventExitStatus=2" in lines
