"""``dledger quotas``: set, list, remove, and what is wrong said by name."""

from __future__ import annotations

import json

import pytest
from click.shell_completion import ShellComplete

from dledger.cli.main import main
from dledger.testing import InProcessGroup
from tests.cli.commands import out, refusal

pytestmark = pytest.mark.usefixtures("named_log")


def test_quotas_are_set_listed_and_removed(named_log: InProcessGroup) -> None:
    assert out("quotas set User:alice --bytes-in 10MiB --requests 500") == (
        "User:alice has bytes in 10MiB, requests 500\n"
    )
    assert "connections 3" in out("quotas set User:alice --connections 3")
    assert out("quotas set --default --bytes-out 1500KB") == "each user has bytes out 1500000\n"
    assert out("quotas set --group-limit topics=2000 --group-limit consumer-groups=9") == (
        "the group has topics 2000, consumer groups 9\n"
    )
    assert json.loads(out("quotas list --json")) == {
        "Group": {"topics": 2000, "consumer_groups": 9},
        "User:*": {"bytes_out": 1_500_000},
        "User:alice": {"bytes_in": 10 << 20, "requests": 500, "connections": 3},
    }
    listed = out("quotas list")
    assert "User:alice" in listed
    assert "10MiB" in listed
    assert "at most 2000 topics in the group" in listed
    assert out("quotas remove User:alice --quota bytes-in") == (
        "User:alice has requests 500, connections 3\n"
    )
    assert out("quotas remove User:alice") == "User:alice has no quotas any more\n"
    assert out("quotas remove --default") == "each user has no quotas any more\n"
    assert out("quotas remove --group-limit topics --group-limit consumer_groups") == (
        "the group has no quotas any more\n"
    )
    assert json.loads(out("quotas list --json")) == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("set", "whose quotas? Name the principal, as User:alice, or --default"),
        ("set User:alice", "which quota of User:alice?"),
        ("set --bytes-in 1", "whose quotas?"),
        ("set User:alice --default --requests 1", "name one of them"),
        ("set alice --requests 1", "did you mean 'User:alice'"),
        ("set Node:n1 --requests 1", "is a member"),
        ("set User:alice --requests 0", "0 is not within"),
        ("set User:alice --bytes-in 10Mbit", "'10Mbit' is no size"),
        ("set User:alice --bytes-in -1", "is no size"),
        ("set User:alice --request 1", "--requests"),
        ("set --group-limit topic=1", "did you mean 'topics'"),
        ("set --group-limit topics=many", "write topics=NUMBER"),
        ("set --group-limit producers=100001", "1 to 100000"),
        ("remove", "whose quotas?"),
        ("remove User:bbo", "did you mean 'User:bob'"),
        ("remove User:bob --quota bytes", "'bytes-in'"),
        ("lst", "did you mean 'list'"),
    ],
)
def test_wrong_words_are_answered_with_the_right_ones(words: str, said: str) -> None:
    out("quotas set User:bob --requests 7")
    assert said in refusal(f"quotas {words}")
    assert json.loads(out("quotas list --json")) == {"User:bob": {"requests": 7}}


def test_names_of_limits_are_completed() -> None:
    complete = ShellComplete(main, {}, "dledger", "_DLEDGER_COMPLETE")
    words = ["quotas", "set", "--group-limit"]
    found = [one.value for one in complete.get_completions(words, "p")]
    assert found == ["partitions=", "producers="]
