"""Lines of the audit log as rows, each of which has a size whatever is in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dledger.console.views.records import fitting


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One event. The beginning of a long text."""

    time: str
    node: str
    event: str
    principal: str
    address: str
    result: str
    reason: str
    details: str


def audit_row(line: Mapping[str, Any]) -> AuditRow:
    """A line, as `dledger.node.audit.AuditLog` writes it."""

    def text(name: str, limit: int) -> str:
        return fitting(str(line.get(name, "")), limit)

    details = line.get("details") or {}
    return AuditRow(
        time=text("time", 30),
        node=text("node", 40),
        event=text("event", 40),
        principal=text("principal", 100),
        address=text("address", 60),
        result=text("result", 20),
        reason=text("reason", 250),
        details=fitting(json.dumps(details, ensure_ascii=False) if details else "", 150),
    )
