"""Who may see the metrics of a node, by the rules of its group."""

from __future__ import annotations

from dledger.catalog.access.acls import CLUSTER, DESCRIBE, Acls, is_trusted
from dledger.catalog.state import CatalogState
from dledger.net.connections.tls import Shown
from dledger.node.access.authorizer import denial
from dledger.node.access.operations import Need
from dledger.node.peers.certified import certified, not_one_user
from dledger.types import OWNER, Principal

NEED = Need(DESCRIBE, CLUSTER)


class ScrapeRules:
    """The rules by which a thread decides that does not wait for the node's loop: a node whose loop
    hangs is seen in its metrics. So the loop gives it a copy of those on the cluster."""

    def __init__(self) -> None:
        self._acls: Acls | None = None
        """None: no rule holds, or none is known yet."""

    def use(self, catalog: CatalogState) -> None:
        """These hold from now on. Called on the loop."""
        rules = catalog.acls.rules.values()
        on_cluster = (rule for rule in rules if rule.resource_type == CLUSTER)
        self._acls = Acls(on_cluster) if catalog.access_is_checked else None

    def refusal(self, principal: Principal, shown: Shown | None) -> str:
        """Why ``principal``, who has shown that, may not see metrics; empty where it may."""
        acls = self._acls
        if acls is None or is_trusted(principal):
            return ""
        if shown is not None and (text := not_one_user(shown)):
            return text
        return "" if acls.decide(principal, *NEED[:3]).allowed else denial(principal, NEED)


def scraper(shown: Shown | None, *, has_token: bool) -> Principal:
    """Who asks, as `Gate.principal` has it for the other port: by the group's secret, from which
    the token follows, or by what a certificate has shown."""
    return OWNER if has_token else certified(shown)
