"""``dledger acl``: rules are added, listed, tested and removed; a denial says what to run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
import trustme

from dledger.cli.main import main
from dledger.testing import InProcessGroup
from tests.cli.commands import out, refusal, run

Act = Callable[[str], None]


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def group(authority: trustme.CA, issue: Callable[..., dict[str, str]]) -> Iterator[InProcessGroup]:
    """One node under TLS."""
    with InProcessGroup(1, **issue(authority=authority)) as group:
        yield group


@pytest.fixture
def act(
    group: InProcessGroup,
    authority: trustme.CA,
    issue: Callable[..., dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> Act:
    """``act(user)``: from here on commands are that user's; those of root at first."""
    monkeypatch.setenv("DLEDGER_BOOTSTRAP", group.bootstrap_servers)

    def become(user: str) -> None:
        own = issue(f"dledger://client/{user}", authority=authority, nodes=())
        for name, path in own.items():
            monkeypatch.setenv(f"DLEDGER_{name.upper()}", path)

    become("root")
    return become


def test_rules_are_added_listed_tested_and_removed(act: Act) -> None:
    assert "everybody who is admitted may do everything" in out("acl list")
    assert "allowed, there are no rules" in out("acl test User:alice read topic orders")
    first = refusal("acl add allow User:alice read topic orders")
    assert "the first rules must name who may change them" in first
    assert "dledger acl add allow User:NAME admin cluster" in first
    assert "holds from now on" in out("acl add allow User:root admin cluster")
    out("acl add allow User:alice read topic orders-*")
    out("acl add deny User:* read topic orders-secret")
    assert "was a rule already" in out("acl add deny User:* read topic orders-secret")

    listed = json.loads(out("acl list --json"))
    assert [" ".join(row.values()).strip() for row in listed] == [
        "deny User:* read topic orders-secret",
        "allow User:alice read topic orders-*",
        "allow User:root admin cluster",
    ]
    own = out("acl list User:alice").split()
    assert own[-5:] == ["allow", "User:alice", "read", "topic", "orders-*"]

    assert (
        out("acl test User:alice read topic orders-eu")
        == "allowed, by the rule: allow User:alice read topic orders-*\n"
    )
    denied = run("acl test User:alice read topic orders-secret")
    assert denied.exit_code == 1
    assert denied.stdout == "denied, by the rule: deny User:* read topic orders-secret\n"
    told = json.loads(run("acl test User:bob read topic orders --json").stdout)
    assert told == {"allowed": False, "rule": None, "reason": "no rule allows it"}
    assert "may do everything" in out("acl test Owner delete topic orders")

    out("acl remove deny User:* read topic orders-secret")
    assert run("acl test User:alice read topic orders-secret").exit_code == 0
    assert "dledger acl list has all" in refusal("acl remove deny User:* read topic orders-secret")
    assert "nobody could change the rules" in refusal("acl remove allow User:root admin cluster")
    out("acl remove allow User:root admin cluster --force")
    assert "may not describe cluster" in refusal("acl list")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("acl add alow User:a read topic t", "'alow' is not one of 'allow', 'deny'"),
        ("acl add allow a read topic t", "write User:NAME"),
        ("acl add allow User:a raed topic t", "did you mean 'read'"),
        ("acl add allow User:a read topci t", "did you mean 'topic'"),
        ("acl add allow User:a read topic", "names no topic"),
        ("acl test User:a write group g", "no operation on a group"),
        ("acl lst", "did you mean 'list'"),
    ],
)
def test_wrong_words_are_refused_with_the_right_ones(act: Act, words: str, said: str) -> None:
    assert said in refusal(words)


def test_denial_names_the_command_that_would_allow_it(act: Act) -> None:
    out("topics create orders")
    out("append orders --value x")
    out("acl add allow User:root admin cluster")
    act("alice")
    said = refusal("tail orders")
    command = "acl add allow User:alice describe topic orders"
    assert f"'dledger {command}'" in said
    assert said == refusal("tail nothing").replace("nothing", "orders")
    assert json.loads(out("topics list --json")) == []
    act("root")
    out("acl add allow User:alice read topic orders")
    act("alice")
    assert out("tail orders --limit 1").strip().endswith("x")
    assert "may not write topic NAME" in refusal("append orders --value y")


def test_denial_says_nothing_of_contexts(
    act: Act, group: InProcessGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group is the right one."""
    out("acl add allow User:root admin cluster")
    act("alice")
    monkeypatch.delenv("DLEDGER_BOOTSTRAP")
    out(f"context add prod -b {group.bootstrap_servers}")
    assert "context" not in refusal("topics create t")


def test_operations_and_resources_are_completed() -> None:
    from click.shell_completion import ShellComplete

    def completed(*words: str, begun: str = "") -> list[str]:
        shell = ShellComplete(main, {}, "dledger", "_DLEDGER_COMPLETE")
        return [item.value for item in shell.get_completions(list(words), begun)]

    assert completed("acl", begun="") == ["add", "remove", "list", "test"]
    assert completed("acl", "add", begun="a") == ["allow"]
    assert completed("acl", "add", "allow", "User:a", begun="de") == ["delete", "describe"]
    assert completed("acl", "test", "User:a", "admin") == ["cluster"]
    assert completed("acl", "add", "deny", "User:a", "read") == ["topic", "group"]
