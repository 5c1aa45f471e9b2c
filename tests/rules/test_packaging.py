"""What pip installs: the wheel, and what Spark sees of it."""

from __future__ import annotations

import pkgutil
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
SHIPPED = (
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
    "python",
    "datasource",
    "streaming",
    "verification",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy, so that nothing that lies about in the checkout gets into it."""
    copy = tmp_path_factory.mktemp("copy")
    for name in SHIPPED:
        if (TOP / name).is_dir():
            shutil.copytree(
                TOP / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
            )
        else:
            shutil.copy(TOP / name, copy / name)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(copy / "dist"),
        str(copy),
    ]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next((copy / "dist").glob("*.whl")))


def test_wheel_holds_every_module_of_the_checkout(wheel: zipfile.ZipFile) -> None:
    """``datasource`` and ``streaming`` lie beside ``python`` in the checkout and inside ``dledger``
    in the wheel."""
    expected = {p.relative_to(TOP / "python").as_posix() for p in (TOP / "python").rglob("*.py")}
    for folder in ("datasource", "streaming"):
        expected |= {
            f"dledger/{p.relative_to(TOP).as_posix()}" for p in (TOP / folder).rglob("*.py")
        }
    packed = {n for n in wheel.namelist() if n.endswith(".py")}
    assert packed == expected
    assert {"dledger/py.typed", "pyspark_dledger/py.typed"} <= set(wheel.namelist())


def test_wheel_has_nothing_that_only_verifies_the_product(wheel: zipfile.ZipFile) -> None:
    """It is there when the wheel is built, and stays outside."""
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dledger", "pyspark_dledger"}
    used = {name.split("/")[2] for name in wheel.namelist() if name.startswith("dledger/testing/")}
    modules = {"__init__.py", "in_process_group.py", "pytest_plugin.py", "unsynced_disk.py"}
    assert used == {*modules, "checkers"}


def test_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    metadata = next(n for n in wheel.namelist() if n.endswith("/METADATA"))
    text = wheel.read(metadata).decode()
    assert "Name: dledger" in text
    assert "License-Expression: Apache-2.0" in text
    scripts = next(n for n in wheel.namelist() if n.endswith("/entry_points.txt"))
    assert "dledger = dledger.cli.main:main" in wheel.read(scripts).decode()
    assert any(n.endswith("licenses/LICENSE") for n in wheel.namelist())


def test_spark_can_find_the_format_by_itself() -> None:
    """Spark looks for top-level packages named ``pyspark_*``; an editable install with import hooks
    hides them."""
    assert "pyspark_dledger" in {m.name for m in pkgutil.iter_modules()}
    import dledger

    assert {"datasource", "streaming"} <= {m.name for m in pkgutil.walk_packages(dledger.__path__)}


def test_importing_the_hook_loads_nothing_heavy() -> None:
    """Spark imports it to look for formats; an import that fails there would disable every Python
    data source."""
    script = (
        "import sys, pyspark_dledger; print(*sorted(m for m in sys.modules if "
        "m.startswith('dledger')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_importing_dledger_is_light() -> None:
    """Every Spark worker and every command pays for it: no Arrow, no Spark, no event loop before
    they are used."""
    script = "import sys, dledger; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert not {"pyarrow", "pyspark", "uvloop", "pandas", "numpy", "rich", "click"} & set(
        done.stdout.split()
    )


def test_an_executor_never_loads_a_server() -> None:
    """What runs inside Spark's workers is the edge and the client."""
    script = (
        "import sys, pkgutil, importlib, dledger.client, dledger.datasource, dledger.streaming\n"
        "for package in (dledger.client, dledger.datasource, dledger.streaming):\n"
        "    for m in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(m.name)\n"
        "print(*sorted(m for m in sys.modules if m.startswith('dledger.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = {m.split(".")[1] for m in done.stdout.split()}
    assert not {"raft", "storage", "node", "cli"} & loaded


def test_command_is_installed() -> None:
    """``dledger`` is on the PATH of the environment, unless the sources are used without an
    install."""
    commands = {e.name: e.value for e in entry_points(group="console_scripts")}
    assert commands.get("dledger", "dledger.cli.main:main") == "dledger.cli.main:main"
