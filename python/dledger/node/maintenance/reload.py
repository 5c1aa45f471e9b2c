"""Certificates, the secret and settings are read again when their files change, or when the node is
told to; a certificate that expires soon is told."""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from typing import Any, Final

from dledger.config import LIVE, NodeConfig
from dledger.net.reloaded import Reloaded
from dledger.node.context import NodeContext, NodePart
from dledger.node.handlers.request_router import RequestRouter
from dledger.node.peers.handshake import Gate

logger = logging.getLogger(__name__)

LOOK_MS: Final = 2000
"""Between two looks at the files; new ones are used when two looks find them alike."""
WARN_DAYS: Final = (1, 7, 30)
DAY_MS: Final = 24 * 3600 * 1000


class Reload(NodePart):
    """Looks at the files of one node; connections that are opened later use what is new, open ones
    stay."""

    def __init__(
        self,
        context: NodeContext,
        gate: Gate,
        *,
        router: RequestRouter,
        settings: Reloaded[NodeConfig] | None,
    ) -> None:
        """``settings``: those of a file, if they are."""
        super().__init__(context)
        self._settings = settings
        self._read = settings.value if settings is not None else context.node
        """As they were when they were read last."""
        self._gate = gate
        self._router = router
        self._due_ms = self._now_ms() + LOOK_MS
        self._told_days: int | None = None
        """Of the certificate in use, the last warning."""
        context.events.reload.subscribe(self._asked)
        context.status.add(self._status)

    def _status(self) -> dict[str, Any]:
        certificates = self._gate.certificates
        return {
            "certificate_not_after": None if certificates is None else certificates.value.not_after
        }

    def tick(self, now_ms: int) -> None:
        """See `MaintenanceTask`."""
        if now_ms >= self._due_ms:
            self._due_ms = now_ms + LOOK_MS
            self._look(at_once=False)
            self._warn_of_end()

    def _asked(self) -> None:
        """Somebody wants it now."""
        if not self._look(at_once=True):
            logger.info("%s was told to read its files again: none has changed", self._node_id)

    def _look(self, *, at_once: bool) -> bool:
        certificates, secrets = self._gate.certificates, self._gate.secrets
        is_new = False
        if certificates is not None and (news := certificates.changed(at_once=at_once)):
            is_new, self._told_days = True, None
            self._router.use_certificates()
            logger.info(
                "%s uses %s from now on; its certificate is %s",
                self._node_id,
                ", ".join(news),
                certificates.value.validity,
            )
        if news := secrets.changed(at_once=at_once):
            is_new = True
            logger.info("%s uses the secret in %s from now on", self._node_id, ", ".join(news))
        return self._look_at_settings(at_once=at_once) or is_new

    def _look_at_settings(self, *, at_once: bool) -> bool:
        if self._settings is None or not (news := self._settings.changed(at_once=at_once)):
            return False
        before, now = self._read, self._settings.value
        self._read = now
        changed = [
            one.name for one in fields(now) if getattr(now, one.name) != getattr(before, one.name)
        ]
        live = {name: getattr(now, name) for name in changed if name in LIVE}
        if live:
            current = self._context.current
            current.use_own(replace(current.own_node, **live))
            self._store.use_limits(current.node)
            self._events.settings()
        told = [f"{name} is {live[name]!r}, was {getattr(before, name)!r}" for name in live]
        logger.info("%s has read %s: %s", self._node_id, ", ".join(news), "; ".join(told) or "-")
        if rest := [name for name in changed if name not in LIVE]:
            logger.warning("%s has to be restarted for its new %s", self._node_id, ", ".join(rest))
        return True

    def _warn_of_end(self) -> None:
        """Once when 30, 7 and 1 days are left."""
        certificates = self._gate.certificates
        if certificates is None:
            return
        left_ms = certificates.value.not_after * 1000 - self._environment.wall_ms()
        days = next((days for days in WARN_DAYS if left_ms < days * DAY_MS), None)
        if days is None or days == self._told_days:
            return
        self._told_days = days
        logger.warning(
            "the certificate of %s %s: it is %s; replace its files, which are read again by "
            "themselves",
            self._node_id,
            "has expired" if left_ms <= 0 else f"expires in less than {days} days",
            certificates.value.validity,
        )
