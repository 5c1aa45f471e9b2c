"""``dledger settings``: get, set, reset, history, and what is wrong said by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from dledger.cli.main import main
from dledger.testing import InProcessGroup
from tests.cli.commands import out, refusal

pytestmark = pytest.mark.usefixtures("named_log")


def told() -> Any:
    return json.loads(out("settings get --json"))


def test_settings_are_set_shown_reset_and_remembered(named_log: InProcessGroup) -> None:
    before = told()
    assert before["version"] == 0
    assert before["settings"]["retention_ms"] == {"value": "0", "source": "node"}
    assert out("settings set retention_ms=7d pending_bytes=96MiB max_topics=12_000") == (
        "retention_ms is 604800000, pending_bytes is 100663296, max_topics is 12000; version 1\n"
    )
    after = told()
    assert (after["version"], after["settings"]["retention_ms"]) == (
        1,
        {"value": "604800000", "source": "set"},
    )
    assert after["settings"]["max_partitions"] == {"value": "100000", "source": "founding"}
    shown = out("settings get retention_ms delete_when")
    assert [line.split() for line in shown.splitlines()] == [
        ["setting", "value", "from"],
        ["─" * 29],
        ["retention_ms", "604800000", "set"],
        ["delete_when", "node"],
        ["version", "1"],
    ]
    assert out("settings set 'delete_when=04;16' --expect 1").endswith("; version 2\n")
    assert out("settings reset retention_ms delete_when") == (
        "retention_ms is 0, delete_when is (empty); version 3\n"
    )
    rows = json.loads(out("settings history --json"))
    assert [(row["version"], row["setting"], row["before"], row["after"]) for row in rows] == [
        (1, "max_topics", "10000", "12000"),
        (1, "pending_bytes", "67108864", "100663296"),
        (1, "retention_ms", None, "604800000"),
        (2, "delete_when", None, "04;16"),
        (3, "delete_when", "04;16", None),
        (3, "retention_ms", "604800000", None),
    ]
    assert {row["principal"] for row in rows} == {"User:ANONYMOUS"}
    assert "604800000" in out("settings history")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("settings set retention_m=5", "did you mean 'retention_ms'"),
        ("settings set retention_ms", "write retention_ms=VALUE"),
        ("settings set retention_ms=soon", "is no duration: write as 1500ms"),
        ("settings set pending_bytes=much", "is no size"),
        ("settings set max_topics=0", "no whole number from 1"),
        ("settings set max_topics=1 max_topics=2", "named twice"),
        ("settings set segment_bytes=1GiB", "does not change at run time"),
        ("settings set cache_bytes=1GiB", "each node's own"),
        ("settings set preferred_leaders=n5", "'n5' is no member"),
        ("settings set max_topics=5 --expect 999", "not 999: look at them"),
        ("settings reset max_topic", "did you mean 'max_topics'"),
        ("settings get max_topic", "did you mean 'max_topics'"),
        ("settings sett max_topics=5", "did you mean 'set'"),
    ],
)
def test_what_is_wrong_is_said_by_name(words: str, said: str) -> None:
    version = told()["version"]
    assert said in refusal(words)
    assert told()["version"] == version


def test_names_are_completed() -> None:
    complete = ShellComplete(main, {}, "dledger", "_DLEDGER_COMPLETE")
    names = [one.value for one in complete.get_completions(["settings", "set"], "max_to")]
    assert names == ["max_topics="]
    names = [one.value for one in complete.get_completions(["settings", "reset"], "max_to")]
    assert names == ["max_topics"]


def test_a_topic_has_settings_of_its_own(named_log: InProcessGroup) -> None:
    with named_log.client() as client:
        client.create_topic("orders")

    def shown() -> Any:
        return json.loads(out("topics show orders --json"))["retention"]

    out("settings set retention_ms=7d")
    assert shown()["retention_ms"] == {"value": "604800000", "from": "group"}
    assert out("topics set orders retention_ms=1d retention_bytes=1MiB").startswith(
        "orders/retention_ms is 86400000, orders/retention_bytes is 1048576; version "
    )
    assert shown() == {
        "retention_ms": {"value": "86400000", "from": "topic"},
        "retention_bytes": {"value": "1048576", "from": "topic"},
    }
    assert "86400000 (topic)" in out("topics show orders")
    assert "'retention_ms'" in refusal("topics set orders retention_m=1d")

    assert "there is no topic 'others'" in refusal("topics set others retention_ms=1d")
    assert "settings have version" in refusal("topics reset orders retention_ms --expect 1")
    assert out("topics reset orders retention_ms").startswith("retention_ms of topic orders")
    assert shown()["retention_ms"]["from"] == "group"
    assert "orders/retention_bytes" in out("settings get")
    rows = json.loads(out("settings history --json"))
    assert [row["setting"] for row in rows if row["setting"].startswith("orders/")] == [
        "orders/retention_bytes",
        "orders/retention_ms",
        "orders/retention_ms",
    ]
