"""The audit log: who did what to the group, from which address, and what was refused to whom."""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from dledger.types import Principal

logger: Final = logging.getLogger("dledger.audit")


class AuditLog:
    """Writes each event as one line of JSON. Texts of others are escaped by it."""

    def record(
        self,
        event: str,
        *,
        principal: Principal,
        address: str,
        refused: str = "",
        **details: Any,
    ) -> None:
        """One event.

        Args:
            event: the deed, e.g. ``authenticate``, ``delete topic``.
            principal: who did it, or says so where that was refused.
            address: where from, ``host:port``.
            refused: the reason why it was not done; empty: it was done.
            details: more of it by name, e.g. ``topic="orders"``.
        """
        line = {"event": event, "principal": principal, "address": address, **details}
        if refused:
            line["refused"] = refused
        level = logging.WARNING if refused else logging.INFO
        logger.log(level, "%s", json.dumps(line, default=str))
