"""The documentation says what the code does, as far as a machine can tell."""

from __future__ import annotations

import ast
import re
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

import dledger
import verification.invariants
from dledger.cli.main import main
from dledger.config import ClientConfig, GroupConfig, NodeConfig
from dledger.datasource.options.kafka_options import ADVICE
from dledger.datasource.options.option_table import OPTIONS
from dledger.datasource.options.options import parse_options
from dledger.datasource.options.settings import spark_name
from dledger.node.monitoring.families import FAMILIES
from tests.rules.markdown import table
from verification.mutants.registry import MUTANTS

TOP = Path(__file__).resolve().parents[2]
DOCS = [TOP / "README.md", TOP / "examples" / "README.md", *sorted((TOP / "docs").rglob("*.md"))]
PROMISES = [f"P{n}" for n in range(1, 17)]
KAFKA_OPTIONS = {
    "assign", "endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp", "failondataloss",
    "fetchoffset.numretries", "fetchoffset.retryintervalms", "groupidprefix", "includeheaders",
    "kafka.bootstrap.servers", "kafka.group.id", "kafkaconsumer.polltimeoutms",
    "maxoffsetspertrigger", "maxrecordsperpartition", "maxtriggerdelay", "minoffsetspertrigger",
    "minpartitions", "startingoffsets", "startingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy", "startingtimestamp", "subscribe", "subscribepattern",
    "topic",
}  # fmt: skip
"""What the code of Spark's Kafka connector 4.2 looks for, in lower case."""


def doc(name: str) -> str:
    return (TOP / "docs" / name).read_text()


@cache
def names_of_all_tests() -> set[str]:
    """``path::name`` of every function in a module of tests."""
    return {
        f"{path.relative_to(TOP).as_posix()}::{node.name}"
        for path in (TOP / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def named_tests(text: str) -> set[str]:
    """``path::name`` of each; all of them are there."""
    named = set(re.findall(r"`(tests/\S+?::test_\w+)`", text))
    assert named <= names_of_all_tests(), sorted(named - names_of_all_tests())
    return named


def test_options_are_documented_as_they_are() -> None:
    """docs/options.md has the options of the code, in order, each with its uses and a meaning."""
    rows = table(doc("options.md"), "option | default | for | meaning")
    assert [(name, where) for name, _, where, _ in rows] == [
        (f"`{name}`", where) for name, where in OPTIONS.items()
    ]
    assert all(meaning for *_, meaning in rows)


def settings_of(whose: str) -> list[list[str]]:
    """Rows of docs/operations.md."""
    section = doc("operations.md").split(f"## Settings of {whose}\n")[1]
    return table(section, "setting | default | meaning")


@pytest.mark.parametrize(
    ("config", "whose"),
    [(GroupConfig, "a group"), (NodeConfig, "a node"), (ClientConfig, "a client")],
)
def test_settings_are_documented_with_their_defaults(config: type[Any], whose: str) -> None:
    """docs/operations.md has every setting, each with its default and a word on what it is."""
    rows = settings_of(whose)
    shown = {}
    for one in fields(config):
        value = "" if one.default is MISSING else one.default
        shown[f"`{one.name}`"] = ", ".join(value) if isinstance(value, tuple) else str(value)
    assert {row[0]: row[1] for row in rows} == shown
    assert all(row[2] for row in rows if row[0] != "`node_id`")


def test_every_setting_of_the_client_is_documented_as_an_option() -> None:
    """docs/options.md has each by its name in Spark, which is an option, with the words of
    docs/operations.md."""
    of_client = settings_of("a client")
    # the one is an option without prefix, the other is no option
    own = {"`compression`", "`idempotent`"}
    expected = [
        [f"`{spark_name(row[0].strip('`'))}`", *row[1:]] for row in of_client if row[0] not in own
    ]
    assert table(doc("options.md"), "option | default | meaning") == expected
    for name, default, _ in expected:
        assert parse_options({name.strip("`"): default or "/a/file"}).settings.client


def test_every_command_is_documented() -> None:
    """docs/operations.md names each command, with options that it has."""
    rows = table(doc("operations.md"), "command | does")
    documented = {row[0].split()[1] for row in rows}
    assert documented == set(main.commands)
    for row in rows:
        words = row[0].strip("`").split()
        command = main.commands[words[1]]
        if isinstance(command, click.Group):
            command = command.commands[words[2]]
        known = {name for parameter in command.params for name in parameter.opts}
        assert {w for w in words if re.fullmatch(r"--?[a-z][a-z-]*", w)} <= known, row[0]


def test_status_fields_are_documented() -> None:
    """Every value that a node's status has stands in docs/operations.md."""
    text = doc("operations.md")
    documented = {
        name for row in table(text, "field | meaning") for name in re.findall(r"`(\w+)`", row[0])
    }
    source = (TOP / "python" / "dledger" / "node" / "handlers" / "metadata.py").read_text()
    function = next(
        n
        for n in ast.walk(ast.parse(source))
        if isinstance(n, ast.FunctionDef) and n.name == "status_values"
    )
    returned = next(n for n in ast.walk(function) if isinstance(n, ast.Return)).value
    assert isinstance(returned, ast.Dict)
    given = {key.value for key in returned.keys if isinstance(key, ast.Constant)}
    assert given <= documented


def test_metrics_are_documented_as_they_are() -> None:
    """docs/metrics.md has all of a node's, in order."""
    rows = table(doc("metrics.md"), "metric | kind | label | meaning | alerts")
    assert [row[:4] for row in rows] == [
        [f"`{one.name}`", one.kind, f"`{one.label}`" if one.label else "", one.help]
        for one in FAMILIES.values()
    ]


def test_every_promise_names_tests_that_exist() -> None:
    """docs/guarantees.md: P1 to P16, each with tests of this suite."""
    text = doc("guarantees.md")
    sections = re.split(r"^## (P\d+)\b", text, flags=re.MULTILINE)[1:]
    promises = dict(zip(sections[::2], sections[1::2], strict=True))
    assert list(promises) == PROMISES
    for promise, words in promises.items():
        assert named_tests(words) or promise == "P13", f"{promise} names no test"


def test_every_code_is_defined() -> None:
    """docs/glossary.md has each class of bugs, and says where the other codes are defined, from
    first to last."""
    glossary = doc("glossary.md")
    classes = [row[0] for row in table(glossary, "code | class | what must happen here")]
    assert classes == [f"B{n}" for n in range(1, 37)]
    letters = {"P": [int(name[1:]) for name in PROMISES]}
    invariants = verification.invariants.__doc__ or ""
    letters["D"] = [int(n) for n in re.findall(r"(?m)^\| D(\d+) \|", doc("guarantees.md"))]
    for letter in "IQWG":
        letters[letter] = [int(n) for n in re.findall(rf"(?m)^ ?{letter}(\d+) ", invariants)]
    letters["B"] = [int(name[1:]) for name in classes]
    for letter, numbers in letters.items():
        assert numbers == list(range(1, len(numbers) + 1))
        span = f"{letter}1 to {letter}{len(numbers)}" if len(numbers) > 1 else f"{letter}1"
        assert re.search(rf"\b{span}\b", glossary), span
    stood_for = {name for mutant in MUTANTS for name in mutant.stands_for.split()}
    assert stood_for <= {f"{letter}{n}" for letter, numbers in letters.items() for n in numbers}


@pytest.mark.parametrize("path", DOCS, ids=lambda p: p.relative_to(TOP).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (TOP / "Makefile").read_text()
    words = (TOP / "README.md").read_text() + (TOP / "examples/README.md").read_text()
    for name in re.findall(r"make ([a-z-]+)", words):
        assert f"\n{name}:" in makefile, name


def test_readme_uses_names_that_exist() -> None:
    """The imports, options and methods of its code blocks."""
    blocks = re.findall(r"```python\n(.*?)```", (TOP / "README.md").read_text(), re.DOTALL)
    for block in blocks:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module == "dledger":
                assert {alias.name for alias in node.names} <= set(dledger.__all__)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr == "option":
                    assert ast.literal_eval(node.args[0]) in OPTIONS
                if isinstance(node.func.value, ast.Name) and node.func.value.id == "client":
                    assert hasattr(dledger.Client, node.func.attr)


def test_changelog_has_the_form_that_it_names() -> None:
    text = (TOP / "CHANGELOG.md").read_text()
    assert "keepachangelog.com" in text
    assert text.index("## [Unreleased]") < text.index("### Added") < text.index("## [0.1.0] - ")


def test_kafka_option_is_taken_or_refused_with_what_to_do() -> None:
    """docs/from-kafka.md: those of version 4.2 of the connector, and those of Kafka's clients."""
    page = doc("from-kafka.md")
    taken = {row[0].strip("`") for row in table(page, "option | what differs")}
    assert taken <= OPTIONS.keys()
    refused = table(page, "Kafka's option | write | why")
    assert refused == [
        [f"`{name}`", f"`{advice.here}`" if advice.here else "drop it", advice.why]
        for name, advice in ADVICE.items()
    ]
    assert {name.lower() for name in taken | ADVICE.keys()} >= KAFKA_OPTIONS


def test_every_feature_of_the_kafka_connector_is_there_or_says_why_not() -> None:
    """docs/from-kafka.md: a *yes* names tests of this suite, anything else a reason."""
    text = doc("from-kafka.md")
    for section, least in (("Reading", 30), ("Writing", 14), ("Operations", 6)):
        rows = table(text.split(f"### {section}\n")[1], "feature | here | shown by, or why not")
        assert len(rows) >= least, section
        for feature, here, why in rows:
            named = named_tests(why)
            assert here in {"yes", "not in PySpark", "not yet"}, feature
            assert named if here == "yes" else why, feature
            assert here != "not yet" or why.startswith("missing: "), feature
    complaints = table(text, "complaint | here")
    assert len(complaints) == 5
    for complaint, here in complaints:
        assert named_tests(here), complaint


def test_terms_of_the_glossary_are_where_it_says() -> None:
    """Each path of docs/glossary.md is a module, and no term has two rows."""
    glossary = doc("glossary.md")
    rows = table(glossary, "term | meaning | whose term it is | where it is")
    assert len({row[0] for row in rows}) == len(rows) > 40
    for *_, places in rows:
        for place in re.findall(r"`([^`]+)`", places):
            top = place.startswith(("datasource/", "streaming/", "verification/"))
            assert (TOP / ("" if top else "python/dledger") / place).is_file(), place
