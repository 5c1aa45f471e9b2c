"""Users, rules and quotas on the pages of a console, and its own rights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import unescape

import pytest

from dledger.client import AclRule, Client
from dledger.config import Tls
from dledger.console.views.access import quota_rows, quota_value, rule_id
from dledger.console.views.certificates import CertificateRow
from dledger.console.watch import watched_group
from dledger.testing import InProcessGroup
from tests.console.conftest import Page
from tests.console.test_console_pages import LIVE, cells

ADMIN = "allow User:ANONYMOUS admin cluster"
EVIL = "<script>alert(1)</script>'\"&"
PASSWORD = "down the rabbit hole"


@pytest.fixture(scope="module")
def log() -> Iterator[InProcessGroup]:
    """Whoever comes without a name is the administrator."""
    with InProcessGroup(1) as group, group.client() as client:
        client.add_acls([ADMIN])
        yield group


@pytest.fixture
def denied() -> Iterator[InProcessGroup]:
    """Whoever comes without a name may see topics, and nothing else."""
    with InProcessGroup(1) as group, group.client() as client:
        client.add_acls([ADMIN, "allow User:root admin cluster"])
        client.add_acls(["allow User:ANONYMOUS describe topic *"])
        client.set_quotas("User:alice", {"requests": 7})
        yield group


@pytest.fixture
def alice(client: Client) -> Iterator[str]:
    """A user; its token."""
    client.add_user("alice", PASSWORD)
    yield client.issue_token("alice", 3600)
    if client.users():
        client.remove_user("alice")


def links(text: str, word: str) -> list[str]:
    """Addresses of the links of a page's tables."""
    return [unescape(one) for one in re.findall(rf'href="([^"]*)"[^>]*>{word}</a>', text)]


def test_users_have_ids_and_ends_of_tokens_and_no_secret(
    page: Page, client: Client, alice: str
) -> None:
    (user,) = client.users()
    (token,) = user.tokens
    text = page.get("/users").text
    first, second = cells(text)[1:]
    assert first == ["alice", "–", f"{user.changed:%Y-%m-%d %H:%M:%S.%f}"[:-3] + "Z", "–"]
    assert second[:2] == ["alice", token.token_id]
    assert second[3] == f"{token.expires:%Y-%m-%d %H:%M:%S.%f}"[:-3] + "Z"
    assert alice.split("-", 2)[2] not in text
    assert "password" not in re.sub(r"no password and no token", "", text)
    assert not links(text, "Revoke") + links(text, "Remove")  # this console only reads


def test_user_is_removed_by_its_name_typed(writer: Page, client: Client, alice: str) -> None:
    (path,) = links(writer.get("/users").text, "Remove")
    shown = writer.get(path).text
    assert "User alice and its tokens will be removed" in shown
    assert shown.count('name="csrf"') == 2  # of logging out, and of this
    assert "Nothing was changed: type alice" in writer.form(path, confirm="Alice").text
    assert [user.name for user in client.users()] == ["alice"]
    answer = writer.form(path, confirm="alice")
    assert answer.headers["location"] == "/users?done=removed"
    assert client.users() == []
    after = writer.get(answer.headers["location"]).text
    assert "There are no users." in after  # at once
    assert "The user is removed, with its tokens." in after
    assert writer.form(path, confirm="alice").status_code == 400


def test_token_is_revoked_and_its_user_stays(writer: Page, client: Client, alice: str) -> None:
    (path,) = links(writer.get("/users").text, "Revoke")
    assert client.users()[0].tokens[0].token_id in writer.get(path).text
    assert client.users()[0].tokens  # to look at it changes nothing
    assert writer.form(path).headers["location"] == "/users?done=revoked"
    assert client.users()[0].tokens == ()
    assert len(cells(writer.get("/users").text)) == 2


@pytest.mark.parametrize(
    "path", ["/users/alice/remove", "/users/alice/tokens/t/revoke", "/quotas/remove?quota=requests"]
)
def test_console_that_reads_asks_for_no_confirmation(page: Page, path: str) -> None:
    answer = page.get(path)
    assert answer.status_code == 403
    assert "Start it with --write" in answer.text


def test_rules_are_tested_with_the_rule_that_decides(
    page: Page, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = ["allow User:bob read topic orders-*", "deny User:* read topic orders-secret"]
    client.add_acls(rules)
    try:
        for name, said in (
            ("orders-eu", "Allowed, by the rule: allow User:bob read topic orders-*"),
            ("orders-secret", "Denied, by the rule: deny User:* read topic orders-secret"),
            ("other", "Denied: no rule allows it"),
        ):
            asked = {"operation": "read", "resource_type": "topic", "resource": name}
            text = page.get("/acls", params={"principal": "User:bob", **asked}).text
            assert said in re.sub("<[^>]*>", "", unescape(text))
        wrong = {"principal": "User:bob", "operation": "admin", "resource_type": "topic"}
        answer = page.get("/acls", params=wrong)
        assert answer.status_code == 200
        assert re.search(r'role="alert">[^<]*admin', answer.text)
        monkeypatch.setattr(Client, "acl_decision", None)  # the group is not asked once a second
        assert page.get("/acls", params=wrong, headers=LIVE).status_code == 200
    finally:
        client.remove_acls(rules)


def test_rule_is_added_and_removed(writer: Page, client: Client) -> None:
    rule = AclRule(
        effect="allow",
        principal="User:bob",
        operation="write",
        resource_type="producer",
        resource=EVIL + "漢" * 900,  # longer than an address may be
    )
    fields = {
        "effect": "allow",
        "principal": "User:bob",
        "operation": "write",
        "resource_type": "producer",
        "resource": rule.resource,
    }
    assert writer.form("/acls", **fields).headers["location"] == "/acls?done=holds"
    assert rule in client.acls()
    assert writer.form("/acls", **fields).headers["location"] == "/acls?done=known"
    text = writer.get("/acls").text
    assert "<script>" not in text
    row = next(row for row in cells(text) if row[1] == "User:bob")
    assert row[4].startswith(EVIL)
    assert len(row[4]) < 302
    path = next(one for one in links(text, "Remove") if rule_id(rule) in one)
    shown = writer.get(path).text
    assert f"This rule will hold no longer: {rule}" in unescape(shown)
    assert "<script>" not in shown
    assert rule in client.acls()
    assert writer.form("/acls/remove", rule=rule_id(rule)).headers["location"] == "/acls?done=over"
    assert rule not in client.acls()
    assert "User:bob" not in writer.get("/acls").text
    assert writer.form("/acls/remove", rule=rule_id(rule)).status_code == 404


def test_rule_that_locks_everybody_out_takes_a_check_mark(writer: Page, client: Client) -> None:
    (rule,) = client.acls()
    fields = {"rule": rule_id(rule)}
    answer = writer.form("/acls/remove", **fields)
    assert answer.status_code == 400
    assert "nobody could change the rules any more" in answer.text
    assert 'type="checkbox" name="force"' in writer.get("/acls/remove", params=fields).text
    try:
        assert writer.form("/acls/remove", **fields, force="on").status_code == 303
        assert client.acls() == []
        assert "There are no rules" in writer.get("/acls").text
    finally:
        client.add_acls([ADMIN])


@pytest.mark.parametrize(
    "fields", [{}, {"effect": "permit"}, {"principal": EVIL}, {"resource": "a b"}]
)
def test_rule_that_cannot_be_is_told(writer: Page, client: Client, fields: dict[str, str]) -> None:
    whole = {"effect": "allow", "principal": "User:x", "operation": "read"}
    answer = writer.form("/acls", **whole | {"resource_type": "topic"} | fields)
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text
    assert "<script>" not in answer.text
    assert [str(rule) for rule in client.acls()] == [ADMIN]


def test_thousand_rules_are_paged_by_the_server(page: Page, client: Client) -> None:
    rules = [f"allow User:many write producer {at:03}{'<' * 1000}" for at in range(1000)]
    client.add_acls(rules)
    try:
        answer = page.get("/acls", params={"find": "MANY"})
        assert len(cells(answer.text)) == 1 + 100
        assert len(answer.content) < 150 << 10
        last = page.get("/acls", params={"find": "many", "page": "10"}).text
        assert cells(last)[1][4].startswith("900<")
        assert "1,000 in all, page 10 of 10" in last
    finally:
        client.remove_acls(rules)


def test_quota_is_set_and_removed(writer: Page, client: Client) -> None:
    for entity, quota, value in (
        ("User:alice", "bytes_in", "10MiB"),
        ("User:*", "requests", "500"),
        ("whoever", "topics", "2000"),  # a limit of the group has no principal
    ):
        answer = writer.form("/quotas", entity=entity, quota=quota, value=value)
        assert answer.headers["location"] == "/quotas?done=set"
    assert client.quotas() == {
        "Group": {"topics": 2000},
        "User:*": {"requests": 500},
        "User:alice": {"bytes_in": 10 << 20},
    }
    text = writer.get("/quotas").text
    assert [row[:3] for row in cells(text)[1:]] == [
        ["the group", "topics in the group", "2,000"],
        ["each user without its own", "requests a second", "500"],
        ["User:alice", "bytes in, a second", "10,485,760 (10.0 MiB)"],
    ]
    for path in links(text, "Remove"):
        shown = writer.get(path).text
        hidden = dict(re.findall(r'type="hidden" name="(entity|quota)" value="([^"]*)"', shown))
        assert client.quotas()[hidden["entity"]]
        answer = writer.form("/quotas/remove", **hidden)
        assert answer.headers["location"] == "/quotas?done=unset"
    assert client.quotas() == {}
    assert "There are no quotas." in writer.get("/quotas").text


@pytest.mark.parametrize(
    "fields",
    [
        {"entity": "User:alice", "quota": "bytes_in", "value": "much"},
        {"entity": "User:alice", "quota": "bytes_in", "value": "0"},
        {"entity": "User:alice", "quota": EVIL, "value": "1"},
        {"entity": EVIL, "quota": "requests", "value": "1"},
    ],
)
def test_quota_that_cannot_be_is_told(writer: Page, client: Client, fields: dict[str, str]) -> None:
    answer = writer.form("/quotas", **fields)
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text
    assert "<script>" not in answer.text
    assert client.quotas() == {}


def test_removing_a_quota_without_a_name_removes_none(writer: Page, client: Client) -> None:
    client.set_quotas("User:alice", {"requests": 1, "connections": 2})
    try:
        assert writer.form("/quotas/remove", entity="User:alice").status_code == 400
        assert len(client.quotas()["User:alice"]) == 2
        writer.form("/quotas/remove", entity="User:alice", quota="requests")
        assert client.quotas()["User:alice"] == {"connections": 2}
    finally:
        client.remove_quotas("User:alice")


def test_quotas_of_all_come_before_those_of_one() -> None:
    rows = quota_rows({"Owner": {"requests": 1}, "User:*": {"requests": 2}, "Group": {"topics": 3}})
    assert [row.value for row in rows] == [3, 2, 1]
    values = [quota_value(text) for text in ("500", " 10MiB ", "1 kib", "1.5", "-1", "1TB", "²")]
    assert values == [500, 10 << 20, 1024, None, None, None, None]


DENIED = {
    "/users": "list users: User:ANONYMOUS may not describe cluster",
    "/acls": "list access rules: User:ANONYMOUS may not describe cluster",
    "/quotas": "quotas: User:ANONYMOUS may not describe cluster",
}


class TestWithoutTheRight:
    """The console's own principal may see topics, and no more."""

    @pytest.fixture
    def log(self, denied: InProcessGroup) -> InProcessGroup:
        return denied

    @pytest.fixture
    def client(self, denied: InProcessGroup) -> Client:
        return denied.client()

    def test_sections_say_what_is_missing_and_show_nothing(
        self, open_console: Callable[..., Page], client: Client
    ) -> None:
        writer = open_console(write=True)
        for path in DENIED:
            assert writer.get(path).status_code == 200
        assert "User:alice" in writer.get("/quotas").text
        client.remove_acls([ADMIN])
        writer.app.state.console.group.changed()
        for path, said in DENIED.items():
            for headers in ({}, LIVE):
                answer = writer.get(path, headers=headers)
                assert answer.status_code == 200
                assert said in unescape(answer.text)
                assert "<tbody>" not in answer.text
                assert "There are no" not in answer.text
                assert "As of" not in answer.text
        asked = {"principal": "User:x", "operation": "read", "resource_type": "topic"}
        text = unescape(writer.get("/acls", params=asked).text)
        assert "test access rules: User:ANONYMOUS may not describe cluster" in text

    def test_rule_that_denies_everybody_takes_a_check_mark(
        self, open_console: Callable[..., Page], client: Client
    ) -> None:
        writer = open_console(write=True)
        rule = {"effect": "deny", "principal": "User:*", "operation": "admin"}
        rule |= {"resource_type": "cluster", "resource": ""}
        assert writer.form("/acls", **rule).status_code == 400
        assert len(client.acls()) == 3
        assert writer.form("/acls", **rule, force="on").status_code == 303
        assert len(client.acls()) == 4

    def test_changes_are_refused_in_one_line(
        self, open_console: Callable[..., Page], client: Client
    ) -> None:
        writer = open_console(write=True)
        before = client.acls(), client.quotas()
        client.remove_acls([ADMIN])
        rule = {"effect": "allow", "principal": "User:ANONYMOUS", "operation": "admin"}
        for path, fields in (
            ("/users/alice/remove", {"confirm": "alice"}),
            ("/users/alice/tokens/abc/revoke", {}),
            ("/acls", {**rule, "resource_type": "cluster", "resource": "", "force": "on"}),
            ("/acls/remove", {"rule": rule_id(before[0][0]), "force": "on"}),
            ("/quotas", {"entity": "User:alice", "quota": "requests", "value": "1"}),
            ("/quotas/remove", {"entity": "User:alice", "quota": "requests"}),
        ):
            answer = writer.form(path, **fields)
            assert answer.status_code == 403, path
            assert re.search(r'role="alert">[^<]*User:ANONYMOUS may not', answer.text), path

    def test_nodes_and_settings_leave_out_what_is_not_told(
        self,
        open_console: Callable[..., Page],
        client: Client,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        page = open_console()
        client.remove_acls([ADMIN])
        (row,) = cells(page.get("/").text)[1:]
        assert row == ["n0", "LEADER", "0", "–", "–", "–", "–", "–", "–", row[-1]]
        assert row[-1] == "the rest takes the right to describe cluster"
        assert [row[0] for row in cells(page.get("/settings").text)[1:]] == ["group", "members"]
        group = page.app.state.console.group
        group.tls = Tls("ca.pem", "", "")
        monkeypatch.setattr(
            watched_group, "certificates", lambda _, found: [CertificateRow(one) for one in found]
        )
        # of the address that this console was given; nodes tell none
        assert cells(page.get("/certificates").text)[1][0] == group.looking.bootstrap_servers
