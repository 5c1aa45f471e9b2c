"""The events of the audit log, one line of JSON each."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

from dledger.environment import REAL, Environment
from dledger.logs.output import AUDIT
from dledger.logs.repeats import Repeats
from dledger.net import Connection
from dledger.node.audit.audit_file import AuditFile
from dledger.node.audit.audited_commands import outcome
from dledger.node.audit.backlog import Backlog, Line
from dledger.protocol.messages.codes import Code
from dledger.types import NodeId, Principal

logger: Final = logging.getLogger(AUDIT)

Kind = tuple[str, Principal, str, str]
"""Event, principal, host and details of what was refused."""
_REST: Final[Kind] = ("refused", Principal(""), "", "")
MOST_TEXT: Final = 512
"""Characters of one of the details of a refusal. No name that is taken is as long; long ones would
fill the files, and drive out what they have."""


class AuditLog:
    """Writes each event as one line of JSON, to the logger ``dledger.audit`` and to a file.

    Texts of others are escaped by it: whatever a name holds, a line is plain ASCII. A refusal that
    comes again and again is written once in a while with a count, so that a flood of them leaves
    the other events in the files.
    """

    def __init__(
        self,
        node_id: NodeId = NodeId(""),
        file: AuditFile | None = None,
        *,
        environment: Environment = REAL,
    ) -> None:
        self._node_id = node_id
        self._file = file
        self._environment = environment
        self.backlog: Backlog | None = None
        """Takes each line, on its way to the topic; None: they are in the file alone."""
        self._refusals: Repeats[Kind] = Repeats(lambda: environment.now_ms() / 1000, rest=_REST)

    def record(
        self,
        event: str,
        *,
        principal: Principal,
        address: str,
        refused: str = "",
        unknown: str = "",
        **details: Any,
    ) -> None:
        """One event.

        Args:
            event: the deed, e.g. ``authenticate``, ``delete topic``.
            principal: who did it, or says so where that was refused.
            address: where from, ``host:port``.
            refused: the reason why it was not done; empty: it was done.
            unknown: the reason why it is not known whether it was or will be done.
            details: more of it by name, e.g. ``topic="orders"``.
        """
        if refused:
            details = {name: _cut(value) for name, value in details.items()}
            host = address.rpartition(":")[0]
            kind = event, principal, host, json.dumps(details, default=str, sort_keys=True)
            if not self._refusals.is_told(kind):
                return
        result = "refused" if refused else "unknown" if unknown else "done"
        self._write(event, principal, address, result, refused or unknown, details)

    def record_request(
        self, connection: Connection, event: str, code: Code, message: str, **details: Any
    ) -> None:
        """`record` for the answer to a request of a session; none where its client asks again."""
        if (how := outcome(code, message)) is not None:
            self.record(
                event,
                principal=connection.context.principal,
                address=connection.peer_name,
                **how,
                **details,
            )

    def record_own(self, event: str, **details: Any) -> None:
        """`record` for what this node found or did by itself."""
        self.record(event, principal=Principal(f"Node:{self._node_id}"), address="", **details)

    def tick(self, now_ms: int) -> None:
        """Write the refusals that were only counted, when it is time (a `MaintenanceTask`)."""
        self._write_counted()

    def _write_counted(self, *, is_end: bool = False) -> None:
        for (event, principal, host, details), more, seconds in self._refusals.over(at_once=is_end):
            known = json.loads(details or "{}")
            repeated = {**known, "repeated": more, "seconds": seconds}
            self._write(event, principal, host, "refused", "as before", repeated)

    def close(self) -> None:
        """Write what waits; to the file, since the topic is out of reach by now."""
        self._write_counted(is_end=True)
        if self._file is not None:
            self._file.close()

    def _write(
        self,
        event: str,
        principal: Principal,
        address: str,
        result: str,
        reason: str,
        details: dict[str, Any],
    ) -> None:
        now_us = self._environment.wall_us()
        line = self._line(event, principal, address, result, now_us)
        if reason:
            line["reason"] = reason
        line["details"] = details
        text = json.dumps(line, default=str)
        logger.log(logging.INFO if result == "done" else logging.WARNING, "%s", text)
        if self._file is not None:
            self._file.write(text.encode() + b"\n")
        if self.backlog is not None:
            if len(text) > self.backlog.most_line_bytes:
                line["details"] = {"left_out_bytes": len(text)}  # the file has them
                text = json.dumps(line, default=str)
            self.backlog.put(text.encode(), now_us)

    def _line(
        self, event: str, principal: str, address: str, result: str, now_us: int
    ) -> dict[str, Any]:
        now = datetime.fromtimestamp(now_us / 1e6, UTC)
        return {
            "time": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "node": self._node_id,
            "event": event,
            "principal": principal,
            "address": address,
            "result": result,
        }

    def gap(self, lines: int) -> Line:
        """The line in the topic for so many that it lacks."""
        now_us = self._environment.wall_us()
        line = self._line("lines missing", f"Node:{self._node_id}", "", "done", now_us)
        return Line(json.dumps({**line, "details": {"lines": lines}}).encode(), now_us)


def _cut(value: Any) -> Any:
    """No more than `MOST_TEXT` characters of it, and how many it has."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return value if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}... ({len(text):,} characters)"
