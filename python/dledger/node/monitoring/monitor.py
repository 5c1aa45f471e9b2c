"""A node's metrics and health over HTTP: ``/metrics``, ``/livez``, ``/readyz``."""

from __future__ import annotations

import asyncio
import hmac
import os
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final

from dledger.config import NodeConfig
from dledger.environment import Environment
from dledger.errors import PathError
from dledger.net.connections.certificates import NodeCertificates, node_certificates
from dledger.net.reloaded import Reloaded
from dledger.net.secret import read_secret
from dledger.node.meters import Meters
from dledger.node.monitoring import values
from dledger.node.monitoring.exposition import Exposition
from dledger.node.monitoring.health import Health
from dledger.node.monitoring.http_server import HttpAnswer, HttpRequest, HttpServer
from dledger.node.monitoring.scrapers import NEED, ScrapeRules, scraper
from dledger.node.monitoring.topics import LagSeries, TopicSeries
from dledger.node.parts import NodeParts
from dledger.node.peers.membership_secret import check_metrics
from dledger.raft.state.ready import RoleChange
from dledger.types import ANONYMOUS, NodeId, Principal, Role, Term

BEAT_S: Final = 0.5
"""How often the node's loop says that it runs."""
FRESH_S: Final = 0.25
"""A page of metrics is given again for so long: many scrapes at once cost what one does."""
TOKEN_FILE: Final = "metrics.token"
TRIES: Final = 5


class Monitor:
    """Serves metrics and health of one node, from before its files are opened until its end.

    Raises:
        ConfigError: prometheus-client is missing, or the host is reached from other machines and
            the node has no TLS, and is not told to do without (``insecure``).
    """

    def __init__(self, node: NodeConfig, environment: Environment) -> None:
        check_metrics(node)
        self._node = node
        self._now_s = environment.now_s
        self.meters = Meters()
        self.health = Health()
        self._topics = TopicSeries()
        self._groups = LagSeries(lambda: environment.wall_us() / 1e6)
        self._certificates: Reloaded[NodeCertificates] | None = None
        """None: there is no TLS. Those of the gate, once there is one: it loads new ones."""
        if node.tls is not None:
            self._certificates = node_certificates(node.tls, node.node_id)
        self._exposition = Exposition(self._values)
        self._pages: dict[str, tuple[float, HttpAnswer]] = {}
        self._token = self._make_token() if node.clients_prove else ""
        self._server = HttpServer(self._answer, tls=self._context)
        self._rules = ScrapeRules()
        self._loop: asyncio.AbstractEventLoop
        """The node's, once it has parts."""
        self._timer: asyncio.TimerHandle | None = None
        self._leader: NodeId | None = None
        self._term = Term(-1)

    @property
    def port(self) -> int:
        return self._server.port

    def open(self) -> None:
        """Listen.

        Raises:
            PortInUse: another process listens there.
            ConfigError: the host is not an address of this machine.
        """
        self._server.open(self._node.metrics_host, self._node.metrics_port)

    def close(self) -> None:
        self.rests("it has ended")
        self._server.close()

    # --- on the node's loop -----------------------------------------------------------------------

    def rests(self, phase: str) -> None:
        """No part of the node works, since ``phase``."""
        self.health.phase, self.health.parts, self.health.has_caught_up = phase, None, False
        if self._timer is not None:
            self._timer.cancel()

    def watches(self, parts: NodeParts) -> None:
        """The node has these parts from now on."""
        parts.events.role.subscribe(self._role_changed)
        parts.context.status.add(lambda: {"metrics_port": self.port})
        self._term = parts.context.raft.term
        self._certificates = parts.gate.certificates
        self._loop = asyncio.get_running_loop()
        if not parts.context.catalog_lost:  # else those that were known last
            use_rules = partial(self._rules.use, parts.context.catalog)
            parts.events.access_changed.subscribe(use_rules)
            use_rules()
        self._beat()
        self.health.parts = parts

    def _beat(self) -> None:
        self.health.beat_s = self._now_s()
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    def _role_changed(self, change: RoleChange) -> None:
        if change.role is Role.CANDIDATE and change.term > self._term:
            self.meters.elections += 1
        self._term = change.term
        if change.leader_id is not None and change.leader_id != self._leader:
            self.meters.leader_changes += 1
            self._leader = change.leader_id

    def _make_token(self) -> str:
        """Only who can read the group's secret, or this file, is answered. The token follows from
        the secret, and not the other way round."""
        token = read_secret(self._node.secret_file).token("metrics")
        path = self._node.directory / TOKEN_FILE
        try:
            self._node.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_own(path, token)
        except OSError as error:
            raise PathError(f"{path}: {error.strerror}") from None
        return token

    # --- on the server's thread -------------------------------------------------------------------

    def _context(self) -> ssl.SSLContext | None:
        certificates = self._certificates
        return None if certificates is None else certificates.value.scraped

    def _answer(self, request: HttpRequest) -> HttpAnswer:
        given = request.headers.get("Authorization", "").encode()
        if self._token and not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            text = (
                f"send 'Authorization: Bearer TOKEN'; {TOKEN_FILE} in the node's directory has it"
            )
            self._audit("authenticate", ANONYMOUS, request.address, text)
            return HttpAnswer.of(HTTPStatus.UNAUTHORIZED, text)
        if request.path == "/metrics":
            return self._refusal(request) or self._page(request.headers.get("Accept", ""))
        if request.path == "/livez":
            return _verdict(self.health.dead(self._now_s()))
        if request.path == "/readyz":
            return _verdict(self.health.unready(self._now_s()))
        return HttpAnswer.of(HTTPStatus.NOT_FOUND, "there are /metrics, /livez and /readyz")

    def _refusal(self, request: HttpRequest) -> HttpAnswer | None:
        """The answer to one who may not see metrics; None: it may."""
        principal = scraper(request.shown, has_token=bool(self._token))
        text = self._rules.refusal(principal, request.shown)
        if not text:
            return None
        need = {"operation": NEED.operation, "resource": NEED.resource_type}
        self._audit("authorize", principal, request.address, text, **need)
        return HttpAnswer.of(HTTPStatus.FORBIDDEN, text)

    def _audit(
        self, event: str, principal: Principal, address: str, refused: str, **details: str
    ) -> None:
        """Write a refusal to the audit log, which the node's loop alone does; it has none before it
        has parts."""
        parts = self.health.parts
        if parts is None:
            return

        def write() -> None:
            if self.health.parts is parts:  # else that log is closed
                parts.context.audit.record(
                    event,
                    principal=principal,
                    address=address,
                    refused=refused,
                    port="metrics",
                    **details,
                )

        self._loop.call_soon_threadsafe(write)

    def _page(self, accept: str) -> HttpAnswer:
        now_s = self._now_s()
        made_s, page = self._pages.get(accept, (0.0, None))
        if page is None or now_s - made_s > FRESH_S:
            page = HttpAnswer(HTTPStatus.OK, *self._exposition.text(accept))
            self._pages = {
                known: (then_s, kept)
                for known, (then_s, kept) in self._pages.items()
                if now_s - then_s <= FRESH_S
            }
            self._pages[accept] = now_s, page
        return page

    def _values(self) -> values.Values:
        now_s, parts, certificates = self._now_s(), self.health.parts, self._certificates
        found: values.Values = {
            "dledger_ready": not self.health.unready(now_s),
            "dledger_loop_silent_seconds": self.health.silent_s(now_s),
        }
        found |= values.of_meters(self.meters)
        if certificates is not None:
            found |= values.of_certificates(certificates.value)
        if parts is not None:
            found |= _steady(lambda: self._of_parts(parts))
        return found

    def _of_parts(self, parts: NodeParts) -> values.Values:
        catalog = parts.context.catalog
        return {
            **values.of_node(parts),
            **self._topics.series(catalog, self.meters.served),
            **self._groups.series(catalog),
        }


def _steady(read: Callable[[], values.Values]) -> values.Values:
    """A dictionary may grow while it is read, since the node's loop goes on: read again then."""
    for _ in range(TRIES):
        with suppress(RuntimeError):
            return read()
    return read()


def _verdict(reason: str) -> HttpAnswer:
    return HttpAnswer.of(
        HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK, reason or "ok"
    )


def _write_own(path: Path, text: str) -> None:
    """A file for its owner alone, whatever was there."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w") as file:
        file.write(text + "\n")
    draft.replace(path)
