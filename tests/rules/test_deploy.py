"""The files of deploy/, as the programs that read them see them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dledger import Client
from dledger.config.layers import Layers
from dledger.embedded.ports import free_ports
from tests.cli.commands import program

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "dledger@.service"
EXPOSURE = 2.0
CONTAINER = DEPLOY / "container"
SCHEMA = Path(sys.prefix) / "compose-spec.json"


def needs(tool: str, way: str) -> str:
    """The path of a program, else the test is skipped with the way to get it."""
    found = shutil.which(tool) or shutil.which(tool, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{tool} is not there: {way}")
    return found


def compose() -> dict[str, Any]:
    """The compose file, with the parts that services share put in."""
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with mkdocs")
    found: dict[str, Any] = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
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


def test_image_file_pleases_the_linter() -> None:
    hadolint = needs("hadolint", "make deploy-check fetches it")
    line = [hadolint, str(CONTAINER / "Containerfile")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_image_runs_as_a_user_and_has_a_health_check() -> None:
    lines = (CONTAINER / "Containerfile").read_text().splitlines()
    last = len(lines) - next(n for n, line in enumerate(reversed(lines)) if line.startswith("FROM"))
    words = [line.split()[0] for line in lines[last:] if line and line[0].isupper()]
    assert "USER 10001:10001" in lines[last:]
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert "HEALTHCHECK" in words


def test_compose_file_is_one_by_its_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="make deploy-check fetches it")
    if not SCHEMA.exists():
        pytest.skip(f"{SCHEMA} is not there: make deploy-check fetches it (needs Go)")
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft7Validator(schema).validate(compose())
    wrong = compose()
    wrong["services"]["n0"]["read_onyl"] = True
    with pytest.raises(jsonschema.ValidationError, match="read_onyl"):
        jsonschema.Draft7Validator(schema).validate(wrong)


def test_composed_nodes_have_all_settings_and_nothing_to_write_but_volumes() -> None:
    services = compose()["services"]
    nodes = {name: one for name, one in services.items() if name != "certificates"}
    for name, service in nodes.items():
        layers = Layers()
        layers.add_environment(service["environment"] | {"DLEDGER_SERVE_DIRECTORY": "/x"})
        _, node, addresses = layers.configs()
        assert node.node_id == service["hostname"] == name
        assert list(addresses) == list(nodes) == ["n0", "n1", "n2"]
        assert node.tls is not None
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]


def test_certificates_of_the_script_are_taken_by_nodes_and_health_check(tmp_path: Path) -> None:
    needs("openssl", "it is in Debian's package openssl")
    (port,) = free_ports("127.0.0.1", 1)
    script = [str(CONTAINER / "certificates.sh"), str(tmp_path), "n0=localhost", "n1=n1"]
    subprocess.run(script, check=True, capture_output=True)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {"ca.pem", "n0.pem", "n0.key", "n1.pem", "client.pem", "client.key"} <= set(made)
    subprocess.run(script, check=True, capture_output=True)
    assert {name: (tmp_path / name).read_bytes() for name in made} == made
    environment = os.environ | {
        "DLEDGER_SERVE_PEERS": f"n0-localhost:{port}",
        "DLEDGER_SERVE_SELF_ID": "n0",
        "DLEDGER_SERVE_DIRECTORY": str(tmp_path / "node"),
        "DLEDGER_SERVE_TLS_CA": str(tmp_path / "ca.pem"),
        "DLEDGER_SERVE_TLS_CERTIFICATE": str(tmp_path / "n0.pem"),
        "DLEDGER_SERVE_TLS_KEY": str(tmp_path / "n0.key"),
    }
    check = [sys.executable, str(CONTAINER / "healthcheck.py")]
    assert subprocess.run(check, env=environment, capture_output=True, check=False).returncode
    files = {
        f"tls_{name}": str(tmp_path / file)
        for name, file in (("ca", "ca.pem"), ("certificate", "client.pem"), ("key", "client.key"))
    }
    with subprocess.Popen(program("serve"), env=environment, stderr=subprocess.PIPE) as node:
        try:
            with Client(f"localhost:{port}", **files) as client:
                client.create_topic("t")
            subprocess.run(check, env=environment, check=True)
        finally:
            node.terminate()
            _, said = node.communicate(timeout=30)
    assert b"handshake failed" not in said
