"""The notebooks of examples/ run from top to bottom; what they promise is asserted in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((TOP / "examples" / "notebooks").glob("*.ipynb"))
ALL = bool(os.environ.get("DLEDGER_NOTEBOOKS"))
"""`make notebooks` runs all of them, the suite those that take seconds."""


def needs_spark(path: Path) -> bool:
    return "SparkSession" in path.read_text()


def marks(path: Path) -> list[pytest.MarkDecorator]:
    if not needs_spark(path):
        return []
    return [pytest.mark.spark, pytest.mark.skipif(not ALL, reason="make notebooks runs it")]


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=marks(path), id=path.stem) for path in NOTEBOOKS]
)
def test_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place).execute()
    assert not list(tmp_path.glob("log*"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_is_kept_without_what_it_printed(path: Path) -> None:
    """So that a change shows in a diff, and no machine's output is in the checkout."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)
    assert any("assert" in cell.source for cell in cells)
    assert notebook.metadata.kernelspec.name == "python3"


def test_page_of_the_notebooks_names_each() -> None:
    page = (TOP / "docs" / "first-steps" / "notebook.md").read_text()
    assert len(NOTEBOOKS) == 3
    assert all(f"examples/notebooks/{path.name}" in page for path in NOTEBOOKS)
