"""Who may see the metrics of a node once there are rules, and what is told of those who may not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from dledger.catalog.access.users import KnownUser
from dledger.catalog.state_machine import Catalog
from dledger.catalog.topics.table import MemoryTables
from dledger.client.protocol.operations.access import parse_rule
from dledger.net.connections.tls import Shown
from dledger.node.monitoring.scrapers import ScrapeRules, scraper
from dledger.protocol.messages.catalog_commands import AddAcls
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest
from dledger.types import ANONYMOUS, OWNER, Principal
from tests.node.as_principals import ADMIN, rule
from tests.node.conftest import BareClient, Play
from tests.node.elections import QUICK
from tests.node.scraping import ask, context_of, fetch
from tests.node.test_node_access import VERIFIER

pytestmark = pytest.mark.group(1, metrics_port=0, **QUICK)

ALLOW_PROM = "allow User:prom describe cluster"


def refusals(node: Any) -> list[dict[str, Any]]:
    """Of the audit log."""
    path = Path(node.node.directory) / "audit.log"
    told = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [line for line in told if line["result"] == "refused"]


class Town:
    """A node under TLS, and certificates of its authority."""

    def __init__(self, group: Any, issue: Any, authority: Any) -> None:
        self.group, self.node = group, group.nodes["n0"]
        self.contexts = {
            name: context_of(issue(authority=authority, nodes=nodes, users=users))
            for name, (nodes, users) in {
                "root": ((), ("root",)),
                "prom": ((), ("prom",)),
                "two": ((), ("prom", "root")),
                "node": (("n0",), ()),
                "nobody": ((), ()),
            }.items()
        }

    async def rules(self, *texts: str) -> None:
        client = await BareClient.dial(self.node.port, tls=self.contexts["root"])
        assert (await client.ask(HelloRequest())).code is Code.SUCCESS
        answer = await client.execute(AddAcls(rules=tuple(map(parse_rule, texts))))
        assert answer.code is Code.SUCCESS, answer
        client.close()

    async def asks(self, who: str, path: str = "/metrics") -> tuple[int, str]:
        status, _, text = await ask(self.node, path, tls=self.contexts[who])
        return status, text

    def asks_at_once(self, who: str) -> tuple[int, str]:
        """The loop does nothing meanwhile."""
        status, _, text = fetch(self.node.metrics_port, "/metrics", tls=self.contexts[who])
        return status, text


@asynccontextmanager
async def town_of(play: Play, issue: Any) -> AsyncIterator[Town]:
    authority = trustme.CA()
    files = issue(authority=authority, nodes=("n0",))
    async with play(1, metrics_port=0, **QUICK, **files) as group:
        await group.leader()
        yield Town(group, issue, authority)


@pytest.fixture
def town(play: Play, issue: Any) -> Any:
    return town_of(play, issue)


async def test_metrics_are_for_those_who_may_describe_the_cluster(town: Town) -> None:
    for who in town.contexts:
        assert (await town.asks(who))[0] == 200, who  # no rule yet
    await town.rules("allow User:root admin cluster")
    status, text = await town.asks("prom")
    assert (status, "'dledger acl add allow User:prom describe cluster'" in text) == (403, True)
    status, text = await town.asks("nobody")
    assert (status, "allow User:ANONYMOUS describe cluster" in text) == (403, True)
    assert (await town.asks("two"))[0] == 403
    for who in ("root", "node"):
        assert (await town.asks(who))[0] == 200, who
    for path in ("/livez", "/readyz"):
        assert await town.asks("nobody", path) == (200, "ok\n")
    await town.rules(ALLOW_PROM)
    assert (await town.asks("prom"))[0] == 200
    status, text = await town.asks("two")
    assert (status, "a client is one user" in text) == (403, True)
    await town.rules("deny User:* describe cluster")
    assert (await town.asks("prom"))[0] == 403


async def test_loop_that_does_not_run_keeps_no_scraper_waiting(town: Town) -> None:
    await town.rules("allow User:root admin cluster")
    assert town.asks_at_once("root")[0] == 200
    assert town.asks_at_once("prom")[0] == 403


async def test_refused_scraper_is_in_the_audit_log(town: Town) -> None:
    await town.rules("allow User:root admin cluster")
    for _ in range(5):
        await town.asks("prom")
    await town.group.until(lambda: refusals(town.node))
    (line,) = refusals(town.node)
    assert (line["event"], line["principal"]) == ("authorize", "User:prom")
    assert line["address"].startswith("127.0.0.1:")
    assert line["details"] == {"port": "metrics", "operation": "describe", "resource": "cluster"}
    assert "dledger acl add" in line["reason"]


async def test_rules_hold_while_a_node_starts_again_on_other_files(town: Town) -> None:
    await town.rules("allow User:root admin cluster")
    seen: list[Any] = []
    town.node.parts.events.restart(
        lambda: seen.extend(town.asks_at_once(who)[0] for who in ("prom", "root"))
    )
    await town.node._restarting
    assert seen == [403, 200]
    assert (await town.asks("prom"))[0] == 403


async def test_rules_hold_while_the_catalog_is_lost(town: Town) -> None:
    await town.rules("allow User:root admin cluster")
    monitor, parts = town.node._monitor, town.node.parts
    empty = replace(parts.context, catalog_lost=True, catalog=Catalog(MemoryTables()))
    monitor.rests("it starts again on other files")
    monitor.watches(SimpleNamespace(context=empty, events=parts.events, gate=parts.gate))
    assert town.asks_at_once("prom")[0] == 403
    monitor.rests("the former parts are back")
    monitor.watches(parts)


async def test_node_without_tls_asks_the_rules_for_anybody(group: Any) -> None:
    node = await group.leader()
    await rule(node, ADMIN)
    status, _, text = await ask(node, "/metrics")
    assert (status, "allow User:ANONYMOUS describe cluster" in text) == (403, True)
    await rule(node, "allow User:ANONYMOUS describe cluster")
    assert (await ask(node, "/metrics"))[0] == 200


ALICE = Shown(True, users=frozenset({"alice"}))


@pytest.mark.parametrize(
    ("shown", "has_token", "principal", "may"),
    [
        (None, False, ANONYMOUS, False),
        (None, True, OWNER, True),
        (ALICE, True, OWNER, True),
        (ALICE, False, Principal("User:alice"), False),
        (Shown(True), False, ANONYMOUS, False),
        (Shown(True, nodes=frozenset({"n1"})), False, Principal("Node:n1"), True),
        (replace(ALICE, nodes=frozenset({"n1"})), False, Principal("User:alice"), False),
    ],
)
def test_scraper_is_who_it_would_be_on_the_other_port(
    shown: Shown | None, has_token: bool, principal: Principal, may: bool
) -> None:
    assert scraper(shown, has_token=has_token) == principal
    rules, catalog = ScrapeRules(), Catalog(MemoryTables())
    rules.use(catalog)
    assert rules.refusal(principal, shown) == ""
    catalog.acls.change(AddAcls(rules=(parse_rule("allow User:root admin cluster"),)))
    rules.use(catalog)
    assert (rules.refusal(principal, shown) == "") is may
    catalog.acls.restore(())  # the last rule was removed by force
    catalog.users.by_name["alice"] = KnownUser(VERIFIER, changed_ms=0)
    rules.use(catalog)
    assert (rules.refusal(principal, shown) == "") is may
