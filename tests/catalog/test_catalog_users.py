"""The group's users as the log says that they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.catalog.access import users as users_module
from dledger.catalog.admission import malformed
from dledger.catalog.admission import refused as catalog_refusal
from dledger.catalog.results import CommandResult
from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.config.names import NAME
from dledger.protocol.messages.acl_rules import AclRule
from dledger.protocol.messages.catalog_commands import AddAcls, Expire, RemoveAcls
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.user_commands import (
    PASSWORD_ITERATIONS,
    IssueToken,
    RemoveUser,
    ScramVerifier,
    SetUser,
)
from dledger.protocol.wire import decode_command, encode_command

KEY = ScramVerifier(salt=b"s" * 16, iterations=4096, stored_key=b"k" * 32, server_key=b"v" * 32)
NEW = replace(KEY, stored_key=b"n" * 32)
OTHER_SALT = replace(NEW, salt=b"o" * 16)
ALICE = SetUser(name="alice", verifier=KEY, is_new=True, decoy=b"d" * 32, time_ms=1000)
ADMIN = AclRule(effect="allow", principal="User:root", operation="admin", resource_type="cluster")
TOKEN = IssueToken(token_id="t1", user="alice", verifier=KEY, lifetime_ms=500, time_ms=2000)


class Log:
    """A catalog, and commands that are committed one after the other."""

    def __init__(self) -> None:
        self.catalog = Catalog(MemoryTables())
        self(AddAcls(rules=(ADMIN,)))

    def __call__(self, command: Any) -> CommandResult:
        known = decode_command(encode_command(command))
        return self.catalog.apply_command(self.catalog.applied_index + 1, known)

    def keys(self, name: str, now_ms: int = 0, is_token: bool = False) -> list[bytes]:
        users = self.catalog.users
        return [one.stored_key for one in users.verifiers(name, is_token, now_ms)]


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_user_is_added_once_and_a_repeat_is_no_error(log: Log) -> None:
    assert log(ALICE).code is Code.SUCCESS
    assert log(ALICE).code is Code.SUCCESS
    again = log(replace(ALICE, verifier=NEW))
    assert (again.code, "rotate it" in again.message) == (Code.UNEXPECTED_ARGUMENT, True)
    assert log.keys("alice") == [KEY.stored_key]


def test_a_new_password_takes_the_place_of_the_former_one(log: Log) -> None:
    rotate = SetUser(name="alice", verifier=OTHER_SALT, is_new=False, time_ms=2000)
    assert log(rotate).code is Code.UNEXPECTED_ARGUMENT
    log(ALICE)
    assert log(rotate).code is Code.SUCCESS
    assert log.keys("alice") == [NEW.stored_key]


def test_a_former_password_that_is_kept_is_good_for_its_time(log: Log) -> None:
    log(ALICE)
    kept = SetUser(name="alice", verifier=NEW, is_new=False, keep_ms=700, time_ms=2000)
    assert log(replace(kept, verifier=OTHER_SALT)).code is Code.UNEXPECTED_ARGUMENT
    assert log(kept).code is Code.SUCCESS
    assert log(kept).code is Code.SUCCESS
    assert log.keys("alice", 2699) == [NEW.stored_key, KEY.stored_key]
    assert log.keys("alice", 2700) == [NEW.stored_key]


def test_a_token_ends_with_its_time_with_its_user_and_by_name(log: Log) -> None:
    assert log(TOKEN).code is Code.UNEXPECTED_ARGUMENT
    log(ALICE)
    assert log(TOKEN).result == {"expires_ms": 2500}
    assert log.keys("t1", 2499, is_token=True) == [KEY.stored_key]
    assert log.keys("t1", 2500, is_token=True) != [KEY.stored_key]
    assert log.keys("t1") != [KEY.stored_key]  # a token is no user
    assert log.catalog.next_expiry_ms() == 2500
    log(Expire(time_ms=2499))
    assert log.catalog.users.owner("t1", is_token=True) == "alice"
    log(Expire(time_ms=2500))
    assert log.catalog.users.owner("t1", is_token=True) == ""
    for end in (RemoveUser(token_id="t1"), RemoveUser(name="alice", token_id="t1")):
        log(TOKEN)
        assert log(RemoveUser(name="bob", token_id="t1")).code is Code.UNEXPECTED_ARGUMENT
        assert log(end).code is Code.SUCCESS
        assert log(end).code is Code.UNEXPECTED_ARGUMENT
        assert not log.catalog.users.tokens
    log(TOKEN)
    assert log(RemoveUser(name="alice")).code is Code.SUCCESS
    assert log(RemoveUser(name="alice")).code is Code.UNEXPECTED_ARGUMENT
    assert not log.catalog.users.tokens
    assert log.keys("alice") != [KEY.stored_key]


def test_who_is_not_there_looks_like_a_user_and_always_the_same(log: Log) -> None:
    log(ALICE)
    users = log.catalog.users
    (bob,), (again,) = users.verifiers("bob", False, 0), users.verifiers("bob", False, 9)
    assert bob == again
    assert len(bob.salt) == len(KEY.salt)
    assert bob.iterations == PASSWORD_ITERATIONS
    assert users.verifiers("carol", False, 0)[0].salt != bob.salt
    other = Log()
    other(replace(ALICE, decoy=b"e" * 32))
    assert other.catalog.users.verifiers("bob", False, 0)[0].salt != bob.salt


def test_users_and_tokens_outlive_a_snapshot(log: Log) -> None:
    log(ALICE)
    log(SetUser(name="alice", verifier=NEW, is_new=False, keep_ms=700, time_ms=2000))
    log(TOKEN)
    restored = Catalog.restore(log.catalog.snapshot(), MemoryTables())
    assert restored.digest() == log.catalog.digest()
    assert restored.users.by_name == log.catalog.users.by_name
    assert restored.users.tokens == log.catalog.users.tokens
    bob = [one.users.verifiers("bob", False, 0) for one in (restored, log.catalog)]
    assert bob[0] == bob[1]


def test_a_group_without_users_has_the_snapshot_that_it_had(log: Log) -> None:
    log(RemoveUser(name="alice"))
    assert b"users" not in log.catalog.snapshot()
    assert not Catalog.restore(log.catalog.snapshot(), MemoryTables()).users


def test_each_change_is_told_and_nothing_else_is(log: Log) -> None:
    told: list[int] = []
    log.catalog.users.on_change = lambda: told.append(log.catalog.applied_index)
    for command in (ALICE, ALICE, TOKEN, Expire(time_ms=0), Expire(time_ms=9000), RemoveUser()):
        log(command)
    assert told == [1, 3, 5]


def test_there_are_not_more_users_and_tokens_than_a_node_can_hold(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users_module, "MAX_USERS", 1)
    monkeypatch.setattr(users_module, "MAX_TOKENS", 1)
    log(ALICE)
    assert log(replace(ALICE, name="bob")).code is Code.LIMIT_REACHED
    log(TOKEN)
    assert log(replace(TOKEN, token_id="t2")).code is Code.LIMIT_REACHED
    assert log(TOKEN).code is Code.SUCCESS


WRONG = {
    "a name": replace(ALICE, name="../alice"),
    "a token's name": replace(TOKEN, token_id="a b"),
    "a token's user": replace(TOKEN, user=""),
    "nobody removed": RemoveUser(),
    "few iterations": replace(ALICE, verifier=replace(KEY, iterations=4095)),
    "many iterations": replace(ALICE, verifier=replace(KEY, iterations=1_000_001)),
    "a short salt": replace(ALICE, verifier=replace(KEY, salt=b"s")),
    "a long salt": replace(ALICE, verifier=replace(KEY, salt=b"s" * 65)),
    "a short key": replace(ALICE, verifier=replace(KEY, stored_key=b"")),
    "a long key": replace(TOKEN, verifier=replace(KEY, server_key=b"k" * 33)),
    "no decoy": replace(ALICE, decoy=b""),
    "no lifetime": replace(TOKEN, lifetime_ms=0),
    "a long lifetime": replace(TOKEN, lifetime_ms=367 * 86_400_000),
    "kept before": replace(ALICE, keep_ms=-1),
    "kept for long": replace(ALICE, keep_ms=367 * 86_400_000),
}


@pytest.mark.parametrize("command", WRONG.values(), ids=WRONG)
def test_a_command_that_no_state_could_take_changes_nothing(log: Log, command: Any) -> None:
    log(ALICE)
    before = log.catalog.users.encode()
    found = malformed(command)
    assert found is not None
    assert log(command).code is Code.MALFORMED
    assert log.catalog.users.encode() == before


@given(st.one_of(st.text(max_size=140), st.from_regex(NAME, fullmatch=True)))
def test_a_user_has_a_plain_name(name: str) -> None:
    is_plain = bool(NAME.fullmatch(name)) and name not in {".", ".."}
    assert (malformed(replace(ALICE, name=name)) is None) == is_plain


def test_the_first_user_comes_behind_a_rule_on_who_may_change_rules() -> None:
    catalog = Catalog(MemoryTables())
    refused = catalog.apply_command(0, ALICE)
    assert refused.code is Code.UNEXPECTED_ARGUMENT
    assert "dledger acl add allow User:NAME admin cluster" in refused.message
    assert not catalog.users
    assert refused == catalog_refusal(catalog, ALICE)  # the leader says so before it is written
    assert not catalog.access_is_checked


def test_what_no_rule_allows_is_denied_as_long_as_there_are_users(log: Log) -> None:
    log(ALICE)
    log(RemoveAcls(rules=(ADMIN,), force=True))
    assert log.catalog.access_is_checked
    before = log.catalog.access_version
    log(RemoveUser(name="alice"))
    assert not log.catalog.access_is_checked
    assert log.catalog.access_version != before
