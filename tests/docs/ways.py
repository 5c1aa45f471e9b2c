"""The ways in which people run a snippet: as a script, typed into python or pyspark, in a
notebook, and in a shell. Each gets the snippets of a page and runs them one after the other."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import nbformat

from tests.docs.snippets import PYTHON, SHELL, Snippet, before

BIN: Final = Path(sys.executable).parent
PROMPTS: Final = re.compile(r"^(>>> |\.\.\. )+", re.MULTILINE)
TELL: Final = """\
import sys
sys.excepthook = lambda kind, error, trace: print("# failed:", kind.__name__, error)
"""
"""What an interpreter that goes on after an error says of one; Spark's own processes print theirs
to the same place as it does."""
SPARK_SETTINGS: Final = (
    "-Dspark.master=local[2] -Dspark.ui.enabled=false -Dspark.sql.shuffle.partitions=2 "
    "-Dspark.python.unix.domain.socket.enabled=true"
)
"""Of a machine that does other things, too; a directory of settings would be on the JVM's class
path, with which it does not use the archive of `spark_jvm`."""


def scripts(folder: Path, page: Sequence[Snippet]) -> str:
    """Each one in a process of its own."""
    printed = []
    for number, one in enumerate(page):
        script = folder / f"snippet{number}.py"
        script.write_text(placed(folder, before(one, session=False) + one.text))
        printed.append(run(folder, one.place, [sys.executable, str(script)]))
    return "\n".join(printed)


def typed_python(folder: Path, page: Sequence[Snippet]) -> str:
    """Into ``python``, line by line."""
    return typed(folder, page, [sys.executable, "-i"], session=False)


def typed_pyspark(folder: Path, page: Sequence[Snippet]) -> str:
    """Into ``pyspark``, which has made ``spark``."""
    command = [str(BIN / "pyspark"), "--conf", "spark.log.level=ERROR"]
    return typed(folder, page, command, session=True)


def typed(folder: Path, page: Sequence[Snippet], command: list[str], *, session: bool) -> str:
    """Into an interpreter that goes on after an error. The empty line behind a snippet ends its
    last block."""
    lines = [TELL]
    for one in page:
        given = before(one, session=session)
        lines += [given, one.text, "\n", f"print('#', 'past {one.place}')\n"]
    text = placed(folder, "".join(lines))
    printed = PROMPTS.sub("", run(folder, page[0].page, command, text))
    assert "# failed:" not in printed, printed
    for one in page:
        assert printed.count(f"# past {one.place}\n") == page.count(one), f"{one.place}\n{printed}"
    return printed


def notebook(folder: Path, page: Sequence[Snippet]) -> str:
    """As the cells of one."""
    cells = [
        nbformat.v4.new_code_cell(placed(folder, before(one, session=False) + one.text))
        for one in page
    ]
    path = folder / "page.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    command = [str(BIN / "jupyter-execute"), "--inplace", "--kernel_name=python3", str(path)]
    printed = run(folder, page[0].page, command)
    outputs = [out for cell in json.loads(path.read_text())["cells"] for out in cell["outputs"]]
    shown = ["".join(out.get("text", out.get("data", {}).get("text/plain", ""))) for out in outputs]
    return "\n".join([printed, *shown])


def shell(folder: Path, page: Sequence[Snippet]) -> str:
    """Each one in a shell of its own."""
    return "\n".join(
        run(folder, one.place, ["bash", "-euo", "pipefail"], placed(folder, one.commands))
        for one in page
    )


WAYS: Final[dict[str, tuple[Callable[[Path, Sequence[Snippet]], str], tuple[str, ...]]]] = {
    "script": (scripts, (PYTHON,)),
    "python": (typed_python, (PYTHON,)),
    "pyspark": (typed_pyspark, (PYTHON,)),
    "notebook": (notebook, (PYTHON,)),
    "shell": (shell, SHELL),
}
"""Name -> how it is done, and the languages of its snippets."""


def placed(folder: Path, text: str) -> str:
    """With directories of the test's own."""
    return text.replace("/data/", f"{folder}/data/")


def run(folder: Path, what: str, command: list[str], typed: str | None = None) -> str:
    """What a command prints; it fails when the command does."""
    environ = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON_OPTS": "-i",  # as at a terminal, though there is none
        "SPARK_SUBMIT_OPTS": f"{os.environ['SPARK_SUBMIT_OPTS']} {SPARK_SETTINGS}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(folder / "jupyter"),
    }
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=600, env=environ, check=False,
        **({"input": typed} if typed is not None else {"stdin": subprocess.DEVNULL}),
    )  # fmt: skip
    assert done.returncode == 0, f"{what}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    return done.stdout
