"""Rules of access: what they decide, held against a plain reference; how they change; snapshots."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.catalog.access.acls import MAX_DECISIONS, MAX_RULES, OPERATIONS, Acls, key_of
from dledger.catalog.snapshot import PREFIX
from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.client.protocol.operations.access import parse_rule
from dledger.config import AUDIT_TOPIC
from dledger.protocol.messages.acl_rules import AclRule
from dledger.protocol.messages.catalog_commands import AddAcls, RemoveAcls
from dledger.protocol.messages.codes import Code

ADMIN = "allow User:root admin cluster"


def rules(*texts: str) -> tuple[AclRule, ...]:
    return tuple(map(parse_rule, texts))


def acls(*texts: str) -> Acls:
    return Acls(rules(*texts))


def add(*texts: str, force: bool = False) -> AddAcls:
    return AddAcls(rules=rules(*texts), force=force)


def remove(*texts: str, force: bool = False) -> RemoveAcls:
    return RemoveAcls(rules=rules(*texts), force=force)


# ---- decisions

USERS = ("User:a", "User:b", "User:*")
NAMES = ("a", "ab", "abc", "b")
PATTERNS = ("*", "a*", "ab*", "abc*", *NAMES)
KINDS = tuple(OPERATIONS)
RULE = st.builds(
    lambda effect, principal, kind, operation, pattern: AclRule(
        effect=effect,
        principal=principal,
        operation=(*OPERATIONS[kind], "all")[operation % (len(OPERATIONS[kind]) + 1)],
        resource_type=kind,
        resource="" if kind == "cluster" else pattern,
    ),
    st.sampled_from(("allow", "deny")),
    st.sampled_from(USERS),
    st.sampled_from(KINDS),
    st.integers(0, 6),
    st.sampled_from(PATTERNS),
)


def fits(rule: AclRule, principal: str, kind: str, name: str) -> bool:
    if rule.principal not in (principal, "User:*") or rule.resource_type != kind:
        return False
    pattern = rule.resource
    return pattern == name or (pattern.endswith("*") and name.startswith(pattern[:-1]))


def reference(known: list[AclRule], principal: str, operation: str, kind: str, name: str) -> bool:
    """Rule by rule, as the documentation says it."""
    here = [rule for rule in known if fits(rule, principal, kind, name)]
    if any(r.effect == "deny" and r.operation in (operation, "all") for r in here):
        return False
    allowing = {operation, "all"}
    if operation == "describe":
        allowing |= {"read", "write", "alter", "delete", "admin"}
    return any(rule.effect == "allow" and rule.operation in allowing for rule in here)


def test_a_rule_for_all_topics_allows_nothing_on_the_audit_logs() -> None:
    known = acls(
        "allow User:all all topic *",
        "allow User:near read topic __aud*",
        "allow User:more read topic __audit*",
        "allow User:one read topic __audit",
        "allow User:not read topic __audit",
        "deny User:not read topic *",
    )

    def who(operation: str) -> set[str]:
        asked = [f"User:{name}" for name in ("all", "near", "more", "one", "not")]
        return {one for one in asked if known.decide(one, operation, "topic", AUDIT_TOPIC).allowed}

    assert who("read") == {"User:more", "User:one"}
    assert who("describe") == {"User:more", "User:one", "User:not"}
    assert known.decide("User:all", "read", "topic", "__audits").allowed
    assert known.decide("User:near", "read", "topic", "__audi").allowed


@given(st.lists(RULE, max_size=6), st.sampled_from(("User:a", "User:b", "User:c")))
def test_decisions_are_those_of_a_plain_reference(known: list[AclRule], principal: str) -> None:
    found = Acls(known)
    for kind, operations in OPERATIONS.items():
        for name in ("",) if kind == "cluster" else NAMES:
            for operation in operations:
                decision = found.decide(principal, operation, kind, name)
                assert decision.allowed == reference(known, principal, operation, kind, name)
                if decision.rule is None:
                    assert not decision.allowed
                else:
                    assert decision.rule in known
                    assert fits(decision.rule, principal, kind, name)
                    assert decision.rule.effect == ("allow" if decision.allowed else "deny")
                assert found.decide(principal, operation, kind, name) is decision


@given(st.lists(RULE, max_size=6), st.sampled_from(("User:a", "User:b")))
def test_every_and_some_are_no_more_than_the_names_allow(
    known: list[AclRule], principal: str
) -> None:
    """What is allowed on every name is so on each; what is on one is on some."""
    found = Acls(known)
    for kind in ("topic", "group", "producer"):
        for operation in OPERATIONS[kind]:
            on_names = [found.decide(principal, operation, kind, n).allowed for n in (*NAMES, "z")]
            if found.decide(principal, operation, kind, "*").allowed:
                assert all(on_names)
            if any(on_names):
                assert found.decide(principal, operation, kind, "").allowed


def test_every_name_is_allowed_only_where_none_is_denied() -> None:
    some = acls("allow User:a read topic *", "deny User:a read topic secret-*")
    assert not some.decide("User:a", "read", "topic", "*").allowed
    assert some.decide("User:b", "read", "topic", "").rule is None
    assert some.decide("User:a", "describe", "topic", "*").allowed


def test_nearest_rule_decides_and_is_told() -> None:
    found = acls(
        "allow User:* read topic *", "allow User:a read topic or*", "allow User:a read topic orders"
    )
    told = [str(found.decide("User:a", "read", "topic", name).rule) for name in ("orders", "org")]
    assert told == ["allow User:a read topic orders", "allow User:a read topic or*"]


def test_remembered_decisions_end_with_a_change() -> None:
    found = acls(ADMIN)
    assert not found.decide("User:a", "read", "topic", "t").allowed
    assert found.change(add("allow User:a read topic t")).result == {"changed": 1}
    assert found.decide("User:a", "read", "topic", "t").allowed
    assert found.change(remove("allow User:a read topic t")).result == {"changed": 1}
    assert not found.decide("User:a", "read", "topic", "t").allowed


def test_what_is_remembered_has_an_end() -> None:
    """Names come from whoever asks."""
    found = acls("allow User:a read topic *")
    for number in range(2 * MAX_DECISIONS):
        assert found.decide("User:a", "read", "topic", f"t{number}").allowed
    assert len(found._decisions) <= MAX_DECISIONS
    known = len(found._decisions)
    assert found.decide("User:a", "read", "topic", "t" * 100_000).allowed
    assert len(found._decisions) == known


# ---- changes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("permit User:a read topic t", "neither 'allow' nor 'deny'"),
        ("allow alice read topic t", "write User:NAME"),
        ("allow Node:n1 read topic t", "write User:NAME"),
        ("allow User:a* read topic t", "write User:NAME"),
        ("allow User: read topic t", "write User:NAME"),
        ("allow User:\x1b[0m read topic t", "write User:NAME"),
        ("allow User:a raed topic t", "did you mean 'read'"),
        ("allow User:a admin topic t", "no operation on a topic"),
        ("allow User:a read cluster", "no operation on a cluster"),
        ("allow User:a read topics t", "did you mean 'topic'"),
        ("allow User:a admin cluster c", "the cluster has no name"),
        ("allow User:a read topic", "names no topic"),
        ("allow User:a read topic a*b", "names no topic"),
        ("allow User:a read topic a b", "names no topic"),
        ("allow User:a read group a/b", "names no group"),
        ("allow User:a write producer \u202eid", "names no producer"),
        ("allow User:a write producer i\x7fd", "names no producer"),
        ("allow User:é read topic t", "write User:NAME"),
        (f"allow User:a read topic {'t' * 300}", "names no topic"),
    ],
)
def test_rule_that_cannot_be_is_refused_with_the_reason(log: Any, text: str, said: str) -> None:
    result = log.run(add(ADMIN, text))
    assert result.code is Code.MALFORMED
    assert said in result.message
    assert not log.catalog.acls.rules


@pytest.mark.parametrize("name", ["orders", "orders-*", "*", ".*", "%RETRY%g|x"])
def test_names_and_beginnings_of_topics_are_taken(log: Any, name: str) -> None:
    assert log.run(add(ADMIN, f"deny User:* all topic {name}")).code is Code.SUCCESS


@pytest.mark.parametrize("name", ["query é 7", "spark/0-1/orders", "txn/*", "*", "日本"])
def test_producers_of_any_visible_name_are_taken(log: Any, name: str) -> None:
    """Every node comes to the same, whichever Python it runs."""
    assert log.run(add(ADMIN, f"allow User:a.b-c_1 write producer {name}")).code is Code.SUCCESS


def test_first_rules_must_name_an_admin(log: Any) -> None:
    refused = log.run(add("allow User:a read topic t"))
    assert refused.code is Code.UNEXPECTED_ARGUMENT
    assert "dledger acl add allow User:NAME admin cluster" in refused.message
    assert not log.catalog.access_is_checked
    assert log.run(add("allow User:a read topic t", ADMIN)).result == {"changed": 2}
    assert log.catalog.access_is_checked


@pytest.mark.parametrize(
    "command",
    [
        add("deny User:root admin cluster"),
        add("deny User:* admin cluster"),
        add("deny User:* all cluster"),
        remove(ADMIN),
        remove(ADMIN, "allow User:a read topic t"),
    ],
)
def test_rules_that_lock_everybody_out_want_force(log: Any, command: Any) -> None:
    log.run(add(ADMIN, "allow User:a read topic t"))
    before = log.catalog.digest()
    refused = log.run(command)
    assert refused.code is Code.UNEXPECTED_ARGUMENT
    assert "--force" in refused.message
    assert "nobody could change the rules any more" in refused.message
    assert list(log.catalog.acls.rules) == list(
        map(key_of, rules(ADMIN, "allow User:a read topic t"))
    )
    forced = type(command)(rules=command.rules, force=True)
    assert log.run(forced).code is Code.SUCCESS
    assert log.catalog.digest() != before
    assert not log.catalog.acls.has_admin()


def test_admin_by_all_or_for_everybody_is_one() -> None:
    assert acls("allow User:a all cluster").has_admin()
    assert acls("allow User:* admin cluster").has_admin()
    assert acls("allow User:* admin cluster", "deny User:a admin cluster").has_admin()
    assert not acls("allow User:a describe cluster").has_admin()


def test_rules_are_added_and_removed_all_or_none(log: Any) -> None:
    log.run(add(ADMIN))
    gone = log.run(remove(ADMIN, "allow User:b read topic t"))
    assert gone.code is Code.UNEXPECTED_ARGUMENT
    assert "allow User:b read topic t" in gone.message
    assert log.run(add(ADMIN)).result == {"changed": 0}
    many = [f"allow User:{n} read topic t" for n in range(MAX_RULES)]
    assert log.run(add(*many)).code is Code.LIMIT_REACHED
    assert len(log.catalog.acls.rules) == 1
    assert log.run(add(*many[:-1])).result == {"changed": MAX_RULES - 1}


# ---- snapshots


def test_snapshot_has_the_rules_and_none_where_there_are_none(log: Any) -> None:
    def fields() -> dict[str, Any]:
        data = log.catalog.snapshot()
        text = data[PREFIX.size : PREFIX.size + PREFIX.unpack_from(data)[1]]
        found: dict[str, Any] = json.loads(text)
        return found

    assert "acls" not in fields()
    log.run(add(ADMIN, "deny User:* read topic a*"))
    log.restart()
    assert not log.catalog.acls.decide("User:b", "read", "topic", "ab").allowed
    assert log.catalog.acls.decide("User:root", "admin", "cluster").allowed
    log.run(remove(*map(str, log.catalog.acls.sorted()), force=True))
    assert "acls" not in fields()


def test_state_is_the_same_in_whichever_order_rules_came() -> None:
    first, second = Catalog(MemoryTables()), Catalog(MemoryTables())
    for catalog, texts in ((first, [ADMIN, "allow User:a read topic t"]), (second, [])):
        for text in texts or ["allow User:a read topic t", ADMIN]:
            catalog.apply_command(catalog.applied_index + 1, add(text, force=True))
    assert first.digest() == second.digest()
