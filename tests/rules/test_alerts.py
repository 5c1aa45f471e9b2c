"""Alerts, runbooks and the dashboard: that they are about metrics and commands that there are."""

from __future__ import annotations

import ast
import inspect
import json
import re
from pathlib import Path

import click
import pytest

from dledger.cli.main import main
from dledger.node.monitoring.families import FAMILIES
from dledger.node.monitoring.health import Health
from tests.rules.markdown import table

TOP = Path(__file__).resolve().parents[2]
RULES = (TOP / "deploy" / "prometheus" / "rules.yml").read_text()
RUNBOOKS = sorted((TOP / "docs" / "runbooks").glob("*-*.md"))
OF_THE_PROCESS = {
    "process_cpu_seconds_total", "process_open_fds", "process_resident_memory_bytes",
}  # fmt: skip


def rules() -> dict[str, dict[str, str]]:
    """By alert, its fields."""
    found = {}
    for text in RULES.split("      - alert: ")[1:]:
        name, _, rest = text.partition("\n")
        found[name] = {
            key: value.strip("'") for key, value in re.findall(r"(?m)^ +(\w+): (.+)$", rest)
        }
    return found


def metrics_in(text: str) -> set[str]:
    """Names of metrics in expressions; each is there, and a histogram's part by its own name."""
    used = set(re.findall(r"\b(?:dledger|process)_\w+", text))
    parts = {
        name + end: name
        for name, one in FAMILIES.items()
        for end in ("_bucket", "_count", "_sum")
        if one.kind == "histogram"
    }
    strange = used - FAMILIES.keys() - parts.keys() - OF_THE_PROCESS
    assert not strange
    return {parts.get(name, name) for name in used}


def test_rules_are_about_metrics_that_there_are() -> None:
    for name, fields in rules().items():
        assert metrics_in(fields["expr"]) or "up{" in fields["expr"], name


def test_dashboard_is_about_metrics_that_there_are() -> None:
    board = json.loads((TOP / "deploy" / "grafana" / "dledger.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    assert len(queries) > 20
    for query in queries:
        assert metrics_in(query) or "up{" in query, query
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    pages = {name: fields["runbook"] for name, fields in rules().items()}
    assert sorted(pages.values()) == [path.relative_to(TOP).as_posix() for path in RUNBOOKS]
    rows = table(
        (TOP / "docs" / "runbooks" / "README.md").read_text(), "alert | severity | what is wrong"
    )
    assert {row[0]: row[1] for row in rows} == {
        f"[{name}]({Path(pages[name]).name})": fields["severity"]
        for name, fields in rules().items()
    }
    for name, fields in rules().items():
        text = (TOP / pages[name]).read_text()
        assert text.startswith(f"# {name}\n")
        assert f"    {fields['expr']}\n".replace("''", "'") in text, name
        sections = re.findall(r"(?m)^## (.+)$", text)
        assert sections == ["Symptom", "What it means", "What to do", "Over"], name


def test_metrics_page_names_the_runbook_of_each_metric_with_an_alert() -> None:
    rows = table(
        (TOP / "docs" / "metrics.md").read_text(), "metric | kind | label | meaning | alerts"
    )
    told = {row[0].strip("`"): row[4] for row in rows}
    wanted: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for name, fields in rules().items():
        for metric in metrics_in(fields["expr"]):
            page = Path(fields["runbook"]).name
            wanted[metric].append(f"[{name.removeprefix('Dledger')}](runbooks/{page})")
    assert told == {name: " ".join(sorted(links)) for name, links in wanted.items()}


def test_on_call_table_is_about_metrics_that_there_are() -> None:
    rows = table((TOP / "docs" / "operations.md").read_text(), "question or task | how")
    text = " ".join(cell for row in rows for cell in row)
    assert "dledger_requests_refused_total" in metrics_in(" ".join(re.findall(r"`[^`]+`", text)))


def command_of(words: list[str]) -> click.Command:
    """The command that some words name, which are taken away."""
    command: click.Command = main
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    return command


@pytest.mark.parametrize("path", RUNBOOKS, ids=lambda path: path.stem)
def test_runbook_gives_commands_that_there_are(path: Path) -> None:
    commands = re.findall(r"`dledger (\w[^`]+)`", path.read_text())
    assert commands or "curl -s localhost:9464/readyz" in path.read_text()
    for text in commands:
        words = text.split()
        command = command_of(words)
        assert not isinstance(command, click.Group), text
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        given = [word.partition("=")[0] for word in words]
        assert {word for word in given if re.fullmatch(r"--?[a-z][\w-]*", word)} <= known, text


def test_runbook_has_each_reason_why_a_node_is_not_ready() -> None:
    page = (TOP / "docs" / "runbooks" / "node-not-ready.md").read_text()
    told = re.findall(r"`([^`]+)`", page)
    reasons = [
        "".join(part.value for part in ast.walk(one.value) if isinstance(part, ast.Constant))
        for one in ast.walk(ast.parse(inspect.getsource(Health)))
        if isinstance(one, ast.Return) and isinstance(one.value, ast.Constant | ast.JoinedStr)
    ]
    assert len(reasons) > 4
    for reason in [Health().phase, *filter(None, reasons)]:
        assert any(words in reason for words in told), reason
