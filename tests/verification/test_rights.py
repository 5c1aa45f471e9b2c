"""Random frames of each principal: a share of the campaign, and that it sees what it looks for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.catalog.access.acls import OPERATIONS, Acls
from dledger.catalog.state_machine import Catalog
from dledger.client.protocol.operations.access import parse_rule
from dledger.node.access import operations
from dledger.node.access.authorizer import Authorizer
from dledger.node.access.operations import COMMANDS, Need
from dledger.protocol.messages.catalog_commands import DeleteTopic
from dledger.protocol.messages.client import ExecuteRequest
from verification.rights.campaign import PRINCIPALS, RULES, allows, run

SHARE = 500


def nobody(text: str) -> None:
    """Told what happens."""


def test_a_share_of_the_campaign_gains_no_right_and_crashes_nothing(tmp_path: Path) -> None:
    found = run(tmp_path, SHARE, 1, nobody)
    assert found["ok"], found["problems"]
    assert found["figures"] == {"principals": len(PRINCIPALS), "frames": SHARE * len(PRINCIPALS)}
    assert found["faults"]["denied"] > SHARE
    assert found["faults"]["done"] > 100
    assert found["faults"]["entries"] > 20


def test_command_without_a_check_is_seen_by_its_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = operations.REQUESTS[ExecuteRequest]
    monkeypatch.setitem(
        operations.REQUESTS,
        ExecuteRequest,
        lambda asked, catalog: (
            () if isinstance(asked.command, DeleteTopic) else row(asked, catalog)
        ),
    )
    problems = (  # about one in each
        problem
        for seed in range(1, 9)
        for problem in run(tmp_path / f"{seed}", 3 * SHARE, seed, nobody)["problems"]
    )
    assert any(" wrote DeleteTopic(" in problem for problem in problems)
    assert DeleteTopic in COMMANDS


def test_answer_that_is_not_due_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Authorizer, "is_on", False)
    found = run(tmp_path, SHARE, 1, nobody)
    assert any(" was answered with " in problem for problem in found["problems"])


def test_error_in_a_node_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(Catalog, "begin_offset", broken)
    assert not run(tmp_path, SHARE, 1, nobody)["ok"]


@given(
    st.sets(st.sampled_from((*RULES, "deny User:* all topic *", "allow User:* all group g*"))),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(("", "*", "t", "other", "new", "g", "w1")),
)
def test_campaign_judges_as_rules_decide(texts: set[str], principal: str, name: str) -> None:
    rules = [parse_rule(text) for text in texts]
    for kind, known in OPERATIONS.items():
        resource = "" if kind == "cluster" else name
        for operation in known:
            decision = Acls(rules).decide(principal, operation, kind, resource)
            need = Need(operation, kind, resource)
            assert allows(rules, principal, need) == decision.allowed, (rules, need)
