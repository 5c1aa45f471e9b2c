"""The pages of reference have what the code has, and the site is built of them."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import dledger
import dledger.client
from dledger import errors
from dledger.cli.main import main
from dledger.client.protocol.outcome import error_for
from dledger.protocol.messages.codes import Code
from tests.rules.markdown import table

TOP = Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"
DIAGRAMS = sorted((DOCS / "diagrams").glob("*.txt"))


def error_classes() -> list[type[errors.DLedgerError]]:
    """In the order of the module, without the root."""
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    source = inspect.getsource(errors)
    own = [kind for kind in found if kind.__module__ == errors.__name__]
    own.sort(key=lambda kind: source.index(f"\nclass {kind.__name__}("))
    return [kind for kind in own if kind is not errors.DLedgerError]


def test_every_error_has_its_cause_and_its_remedy() -> None:
    """docs/errors.md: each class in order, with its bases, and what it says of itself."""
    rows = table((DOCS / "errors.md").read_text(), "error | below | is | cause | what to do")
    shown = [tuple(row[:3]) for row in rows]
    assert shown == [
        (
            f"`{kind.__name__}`",
            " ".join(f"`{base.__name__}`" for base in kind.__bases__),
            ("definite" if kind.definite else "indefinite")
            + (", retriable" if kind.retriable else ""),
        )
        for kind in error_classes()
    ]
    assert all(len(cause) > 20 and len(remedy) > 20 for *_, cause, remedy in rows)


def test_every_public_name_is_on_a_page_of_the_api() -> None:
    """Of `dledger` and `dledger.client`; errors have a page of their own."""
    pages = "".join(path.read_text() for path in (DOCS / "api").glob("*.md"))
    shown = {path.rpartition(".")[2] for path in re.findall(r"(?m)^::: (dledger\.\S+)$", pages)}
    public = {*dledger.__all__, *dledger.client.__all__} - {"__version__", "DLedgerError"}
    assert public <= shown, sorted(public - shown)


def parameters(command: click.Command) -> Iterator[str]:
    """Names of all options of a command and of those below it."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            yield from parameter.opts
    if isinstance(command, click.Group):
        for part in command.commands.values():
            yield from parameters(part)


@pytest.fixture
def site_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules of docs/site can be imported, as mkdocs imports them."""
    monkeypatch.syspath_prepend(str(DOCS / "site"))


@pytest.mark.usefixtures("site_code")
def test_every_command_and_option_is_on_the_page_of_commands() -> None:
    from commands_page import commands_page  # type: ignore[import-not-found]

    sections = re.split(r"(?m)^## `dledger ([\w-]+)`$", commands_page())[1:]
    assert sections[::2] == list(main.commands)
    for name, text in zip(sections[::2], sections[1::2], strict=True):
        command = main.commands[name]
        for option in parameters(command):
            assert re.search(rf"(?m)^\| `[^`]*{option}\b", text), f"{name} {option}"
        for part in getattr(command, "commands", ()):
            assert f"### `dledger {name} {part}`" in text


@pytest.mark.usefixtures("site_code")
@pytest.mark.parametrize("path", DIAGRAMS, ids=lambda p: p.stem)
def test_diagram_is_drawn_from_its_description(path: Path) -> None:
    """Else: python docs/site/diagrams.py."""
    from diagrams import drawing  # type: ignore[import-not-found]

    assert path.with_suffix(".svg").read_text() == drawing(path.read_text())
    assert f"](diagrams/{path.stem}.svg)" in (DOCS / "how-it-works.md").read_text()


@pytest.mark.usefixtures("site_code")
def test_diagram_of_another_lane_or_line_is_refused() -> None:
    from diagrams import drawing  # type: ignore[import-not-found]

    for line in ("> a c text", "? a text"):
        with pytest.raises(ValueError, match=r"not in list|begins so"):
            drawing(f"lane a\nlane b\n{line}\n")


def test_metrics_are_fields_of_the_status() -> None:
    """docs/metrics.md names no figure that there is not."""
    operations = (DOCS / "operations.md").read_text()
    rows = table(operations, "field | meaning") + table(operations, "setting | default | meaning")
    known = set(re.findall(r"`(\w+)`", str(rows))) | {"groups", "metadata"}
    metrics = table((DOCS / "metrics.md").read_text(), "question | figure | look closer when")
    for _, figure, _ in metrics:
        assert set(re.findall(r"`(\w+)`", figure)) <= known, figure


def test_site_is_built_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    """All that its pages load lies in the site; operations of the clients are on their page."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=TOP,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # of mkdocs-material, about itself
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = {path: path.read_text() for path in (tmp_path / "site").rglob("*.html")}
    assert len(pages) > 30
    loads = r'(?:<script[^>]*src|<link[^>]*href|<img[^>]*src)="((?:https?:)?//[^"]*)"'
    for path, text in pages.items():
        assert not re.findall(loads, text), path
    clients = pages[tmp_path / "site" / "api" / "clients.html"]
    for name in ("Client.append", "Client.lag", "AsyncClient.lag", "Producer.append"):
        assert re.search(rf'id="dledger\.client\.{name}"', clients), name


def test_page_of_errors_tells_which_error_each_code_is() -> None:
    """A code is all that metrics and their alert say of a refused request."""
    rows = table((DOCS / "errors.md").read_text(), "error | codes of a node's answers")
    told = {
        code: error.strip("`") for error, codes in rows for code in re.findall(r"`(\w+)`", codes)
    }
    assert told == {
        code.name: type(error_for(code, "", "ask")).__name__
        for code in Code
        if code is not Code.SUCCESS
    }
