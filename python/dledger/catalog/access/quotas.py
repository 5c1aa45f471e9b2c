"""Quotas: how much each principal may use of a node, and how many topics and the like the group may
have in all. They are set at run time, and override the settings of the same meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dledger.catalog.clients.producers import MAX_SESSIONS
from dledger.catalog.results import CommandResult
from dledger.config import check_name, nearest
from dledger.errors import ConfigError
from dledger.protocol.messages.catalog_commands import QUOTA_UNSET, WHOLE_GROUP, AlterQuotas
from dledger.protocol.messages.codes import Code
from dledger.types import ALL_USERS, OWNER, Principal

BYTES_IN: Final = "bytes_in"
BYTES_OUT: Final = "bytes_out"
REQUESTS: Final = "requests"
CONNECTIONS: Final = "connections"
PRINCIPAL_QUOTAS: Final = (BYTES_IN, BYTES_OUT, REQUESTS, CONNECTIONS)
"""Of a principal at each node: bytes of appends and of fetched records in a second, requests in a
second, connections at a time."""
GROUP_LIMITS: Final = ("topics", "partitions", "producers", "consumer_groups")
MAX_QUOTA: Final = (1 << 62) - 1


class QuotaState:
    """The quotas of a group, by entity (a principal, `ALL_USERS`, `WHOLE_GROUP`) and name."""

    def __init__(self, by_entity: Mapping[str, Mapping[str, int]] | None = None) -> None:
        self.by_entity = {entity: dict(values) for entity, values in (by_entity or {}).items()}

    def __bool__(self) -> bool:
        return bool(self.by_entity)

    def alter(self, command: AlterQuotas) -> CommandResult:
        """Set and take away quotas of one entity; the result has those that it has now."""
        before = self.by_entity.pop(command.entity, {})
        changed = before | command.quotas if command.quotas else {}
        after = {name: value for name, value in changed.items() if value != QUOTA_UNSET}
        if after:
            self.by_entity[command.entity] = after
        return CommandResult(Code.SUCCESS, result={"quotas": after})

    def of(self, principal: Principal) -> Mapping[str, int]:
        """The quotas of a principal; empty where it has none."""
        own = self.by_entity.get(principal, {})
        if principal.startswith("User:") and (default := self.by_entity.get(ALL_USERS)):
            return default | own
        return own

    def group_limit(self, name: str) -> int | None:
        """One of `GROUP_LIMITS`; None: the setting counts."""
        return self.by_entity.get(WHOLE_GROUP, {}).get(name)

    def image(self) -> list[Any]:
        """The state in a snapshot."""
        return [
            [entity, sorted(values.items())] for entity, values in sorted(self.by_entity.items())
        ]

    @classmethod
    def of_image(cls, image: list[Any]) -> QuotaState:
        return cls({entity: dict(values) for entity, values in image})


def malformed_quotas(command: AlterQuotas) -> str:
    """Why no state could take this command; empty where one may."""
    if text := wrong_entity(command.entity):
        return text
    known = GROUP_LIMITS if command.entity == WHOLE_GROUP else PRINCIPAL_QUOTAS
    for name, value in command.quotas.items():
        if name not in known:
            return (
                f"{name[:40]!r} is no quota of {command.entity}{nearest(name, [*known])}; there "
                f"are {', '.join(known)}"
            )
        most = MAX_SESSIONS if name == "producers" else MAX_QUOTA
        if value != QUOTA_UNSET and not 1 <= value <= most:
            return f"{name}: {value} is not within 1 to {most}"
    return ""


def wrong_entity(entity: str) -> str:
    """Why quotas cannot be set for this entity; empty where they can."""
    if entity in {ALL_USERS, WHOLE_GROUP, OWNER}:
        return ""
    kind, colon, name = entity.partition(":")
    if kind == "Node" and colon:
        return f"{entity[:60]!r} is a member: replication has no quotas, or the group would stall"
    if kind != "User" or not colon:
        meant = nearest(kind if colon else f"User:{entity}", ["User", f"User:{entity}"])
        return (
            f"{entity[:60]!r} is no principal{meant}: write User:NAME, {OWNER}, or {ALL_USERS} "
            "for all users"
        )
    try:
        check_name("user", name)
    except ConfigError as error:
        return str(error)
    return ""
