"""The architecture, executed: who may import whom, and what the deterministic core may not call."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PURE = (
    "raft",
    "catalog",
    "protocol",
    "rocketmq/format",
    "rocketmq/columns",
    "rocketmq/ha_protocol",
)
MODULES = sorted(
    p for package in PURE for p in (TOP / "python" / "dledger" / package).rglob("*.py")
)
FORBIDDEN_MODULES = {
    "time", "random", "uuid", "secrets", "threading", "asyncio", "socket", "weakref", "datetime",
    "os", "tempfile", "subprocess", "selectors",
}  # fmt: skip
FORBIDDEN_CALLS = {"id", "open", "input", "print", "hash"}


def offences(source: str) -> list[str]:
    """What in this text could make two runs with the same inputs differ."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                for name in names:
                    if is_forbidden(name.name):
                        found.append(f"line {node.lineno}: import {name.name}")
            case ast.ImportFrom(module=str(module), level=0) if is_forbidden(module):
                found.append(f"line {node.lineno}: from {module}")
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
                found.append(f"line {node.lineno}: {name}()")
            case ast.FunctionDef(name="__del__"):
                found.append(f"line {node.lineno}: __del__")
            case ast.For(iter=over) | ast.AsyncFor(iter=over) | ast.comprehension(iter=over):
                if is_set(over):
                    found.append(f"line {over.lineno}: iteration over a set")
    return found


def is_forbidden(module: str) -> bool:
    return module.split(".")[0] in FORBIDDEN_MODULES


def is_set(node: ast.expr) -> bool:
    """Whether an expression is plainly a set: a display, a comprehension, set(...), or set algebra
    over one."""
    match node:
        case ast.Set() | ast.SetComp() | ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.BinOp(left, ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right):
            return is_set(left) or is_set(right)
    return False


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.relative_to(TOP).as_posix())
def test_core_has_no_source_of_chance(path: Path) -> None:
    """The same inputs give the same outputs, on every machine and at any hash seed: no clock, dice,
    thread, file."""
    assert offences(path.read_text()) == []


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "from random import choice",
        "def f():\n    import threading",
        "def f(x):\n    return id(x)",
        "def f(x):\n    return hash(x)",
        "def f(x):\n    for y in set(x):\n        pass",
        "def f(x):\n    return [y for y in {1, 2} | x]",
        "class A:\n    def __del__(self):\n        pass",
        "def f():\n    return open('x')",
    ],
)
def test_the_search_for_chance_finds_it(text: str) -> None:
    """Each kind of leak, planted: a lint that finds nothing is no proof."""
    assert offences(text)


def test_layers_hold() -> None:
    """Every contract of pyproject.toml, by import-linter, over the installed packages."""
    script = (
        "import sys; from importlinter.cli import lint_imports_command; "
        "sys.exit(lint_imports_command())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "--no-cache"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout
