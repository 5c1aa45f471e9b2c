"""No module is imported by what it imports itself, also not for its types alone."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
ROOTS = {
    "dledger": TOP / "python" / "dledger",
    "dledger.datasource": TOP / "datasource",
    "dledger.streaming": TOP / "streaming",
    "verification": TOP / "verification",
}


def modules() -> dict[str, Path]:
    """Each module by its dotted name; a package by its own."""
    return {
        ".".join([root, *path.relative_to(folder).with_suffix("").parts]).removesuffix(
            ".__init__"
        ): path
        for root, folder in ROOTS.items()
        for path in folder.rglob("*.py")
    }


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules among those known that a module names in any import statement of its own."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{name.name}" for name in node.names}
            found |= whole & known.keys() or {node.module}
    return found & known.keys()


def test_no_import_cycle_also_not_for_types() -> None:
    known = modules()
    graph = {name: imports(path, known) - {name} for name, path in known.items()}
    assert len(graph) > 400
    assert sum(map(len, graph.values())) > 2000
    TopologicalSorter(graph).prepare()  # CycleError names the modules of a cycle


def test_a_cycle_is_seen() -> None:
    with pytest.raises(ValueError, match="cycle"):
        TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()
