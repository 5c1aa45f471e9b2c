"""The rules of the source that a machine can check."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).resolve().parents[2]
FOLDERS = ("python", "datasource", "streaming", "verification", "examples", "benchmarks")
SOURCES = sorted(p for folder in FOLDERS for p in (TOP / folder).rglob("*.py"))
PRODUCT = [path for path in SOURCES if path.relative_to(TOP).parts[0] in FOLDERS[:3]]
POSITIONAL = {"OffsetOutOfRange", "Lost", "EmbeddedNode"}
"""Classes whose arguments have had places since the first release, and errors, which are pickled by
the places of theirs."""
TESTS = sorted((TOP / "tests").rglob("*.py"))
WORDS = sorted(
    {
        p
        for pattern in (
            *("*.py", "*.md", "*.toml", "Makefile", ".ci/run", "examples/**/*", "docs/*"),
            *("docs/**/*.md", "docs/site/*.py"),
            *(f"{folder}/**/*.py" for folder in (*FOLDERS, "tests")),
        )
        for p in TOP.glob(pattern)
        if p.is_file() and p.suffix in {".py", ".md", ".toml", ".json", ""}
    }
)
ALLOWED = {
    "LICENSE", "python", "datasource", "streaming", "examples", "tests", "setup.py",
    "pyproject.toml", "mkdocs.yml", "README.md", "Makefile", "docs", "benchmarks", "verification",
    "CHANGELOG.md", ".ci", "deploy",
    ".gitignore", ".git", "CONTRIBUTING.md", ".editorconfig", ".pre-commit-config.yaml",
}  # fmt: skip


def relative(path: Path) -> str:
    return path.relative_to(TOP).as_posix()


def nodes(path: Path, *kinds: type[ast.AST]) -> list[Any]:
    """Those of these kinds in the syntax tree of a module."""
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]


def functions(path: Path) -> list[Any]:
    return nodes(path, ast.FunctionDef, ast.AsyncFunctionDef)


def test_the_rules_see_the_sources() -> None:
    """A rule that looks at nothing holds for ever; so they must have something to look at."""
    assert len(SOURCES) > 30
    assert len(TESTS) > 10


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_module_fits_in_the_head(path: Path) -> None:
    """At most 400 lines a module, 60 a function. Split the code, do not raise the number."""
    assert len(path.read_text().splitlines()) <= 400
    sizes = {f"{f.name}, line {f.lineno}": f.end_lineno - f.lineno + 1 for f in functions(path)}
    assert not {name: size for name, size in sizes.items() if size > 60}


@pytest.mark.parametrize("path", TESTS, ids=relative)
def test_names_of_tests_are_short(path: Path) -> None:
    """At most 70 characters say what is shown; the docstring has the details."""
    names = [f.name for f in functions(path)]
    assert [name for name in names if name.startswith("test_") and len(name) > 70] == []


def hand_written_inits(path: Path) -> dict[str, ast.arguments]:
    """Each class of a module with the arguments of its own ``__init__``, without ``self``."""
    found = {
        node.name: made.args
        for node in nodes(path, ast.ClassDef)
        for made in node.body
        if isinstance(made, ast.FunctionDef) and made.name == "__init__"
    }
    for arguments in found.values():
        del arguments.args[0]
    return found


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_no_init_takes_more_than_six_arguments(path: Path) -> None:
    """A part with more has more than one job, or what it is given belongs together: a context, a
    dataclass of settings. Written by hand, that is; a dataclass may have as many fields as it
    needs."""
    many = {
        name: size
        for name, made in hand_written_inits(path).items()
        if (size := len([*made.posonlyargs, *made.args, *made.kwonlyargs])) > 6
    }
    assert not many


@pytest.mark.parametrize("path", PRODUCT, ids=relative)
def test_arguments_of_an_init_have_names_from_the_third_on(path: Path) -> None:
    many = {name for name, made in hand_written_inits(path).items() if len(made.args) > 2}
    assert many <= POSITIONAL


def test_class_names_of_the_product_are_unique() -> None:
    """A name that stands for two things is read as the wrong one."""
    places = [(node.name, relative(path)) for path in PRODUCT for node in nodes(path, ast.ClassDef)]
    often = Counter(name for name, _ in places)
    assert not [(name, place) for name, place in places if often[name] > 1]


@pytest.mark.parametrize("path", TESTS, ids=relative)
def test_tests_wait_for_conditions_and_never_sleep(path: Path) -> None:
    """A sleep is too short on a slow machine and too long on a fast one. ``Event.wait`` and its
    kind are fine, and so are ``sleep(0)``, which lets other tasks run, and the one poll inside a
    conftest's wait-for-a-condition."""
    sleeps = [
        node.lineno
        for node in nodes(path, ast.Call)
        if ast.unparse(node.func).split(".")[-1] == "sleep"
        and [ast.unparse(a) for a in node.args] != ["0"]
    ]
    assert len(sleeps) <= (path.name == "conftest.py"), f"lines {sleeps} sleep"


def test_test_modules_have_names_of_their_own() -> None:
    """pytest imports them by path, but a reader finds them by name."""
    names = [p.name for p in TESTS if p.name.startswith("test_")]
    assert sorted(set(names)) == sorted(names)
    assert not list((TOP / "tests").rglob("__init__.py"))


@pytest.mark.parametrize("path", WORDS, ids=relative)
def test_file_knows_no_machine(path: Path) -> None:
    """No absolute path of somebody's machine, and no word that marks unfinished work."""
    text = path.read_text()
    if path == Path(__file__).resolve():
        return
    assert not re.findall(r"(?m)(?:^|[\s\"'=(`])(/(?:work|farm|root|Users|home/\w+)/\S*)", text)
    assert not re.findall(r"\b(?:TODO|FIXME|XXX|HACK)\b", text)


def test_top_level_holds_only_what_it_should() -> None:
    """Ten things at first sight. Whatever tools leave behind (ignored by git) does not count."""
    ignored = {line.strip("/") for line in (TOP / ".gitignore").read_text().split()}
    here = {p.name for p in TOP.iterdir()}
    left = {
        n
        for n in here - ALLOWED - ignored
        if not n.endswith(".egg-info") and not n.startswith(".venv")
    }
    assert not left
