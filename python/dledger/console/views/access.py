"""Users with their tokens, rules and quotas, as rows."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Final

from dledger.catalog.access.quotas import (
    BYTES_IN,
    BYTES_OUT,
    CONNECTIONS,
    GROUP_LIMITS,
    REQUESTS,
)
from dledger.console.views.records import fitting
from dledger.console.views.text import number, size
from dledger.protocol.messages.catalog_commands import WHOLE_GROUP
from dledger.types import ALL_USERS

if TYPE_CHECKING:
    from dledger.client import AclRule, UserState

QUOTAS: Final = {
    BYTES_IN: "bytes in, a second",
    BYTES_OUT: "bytes out, a second",
    REQUESTS: "requests a second",
    CONNECTIONS: "connections",
    **{name: f"{name.replace('_', ' ')} in the group" for name in GROUP_LIMITS},
}
"""By name, in words."""
NAME_BYTES: Final = 300
"""Of a resource's name in a table; a producer's has 1,024 characters at most."""
_UNITS: Final = {"": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_VALUE: Final = re.compile(r"([0-9]{1,19}) *([a-z]*)", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class UserRow:
    """A user, or one of its tokens."""

    user: str
    since_us: int
    """When it got its password, or the token was made, by the group's clock."""
    token: str = ""
    """Its id. Empty: the row is the user's own."""
    until_us: int = 0
    """When the token ends."""


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule of access control."""

    rule_id: str
    effect: str
    principal: str
    operation: str
    resource_type: str
    resource: str
    """The beginning of a long one."""


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """One quota of a principal, or one limit of the group."""

    entity: str
    whose: str
    """``entity`` in words."""
    name: str
    what: str
    """``name`` in words."""
    value: int

    @property
    def shown(self) -> str:
        """The value as it is read: exact, and for bytes in units too."""
        exact = number(self.value)
        if self.name not in (BYTES_IN, BYTES_OUT) or self.value < 1024:
            return exact
        return f"{exact} ({size(self.value)})"


def user_rows(users: Sequence[UserState]) -> list[UserRow]:
    """Each user, its tokens behind it; in the order of ``users``."""
    rows = []
    for user in users:
        rows.append(UserRow(user.name, 1000 * user.changed_ms))
        rows += [
            UserRow(user.name, 1000 * one.issued_ms, one.token_id, 1000 * one.expires_ms)
            for one in user.tokens
        ]
    return rows


def rule_rows(rules: Sequence[AclRule]) -> list[RuleRow]:
    """In the order of ``rules``."""
    return [
        RuleRow(
            rule_id(one),
            one.effect,
            one.principal,
            one.operation,
            one.resource_type,
            fitting(one.resource, NAME_BYTES),
        )
        for one in rules
    ]


def rule_id(rule: AclRule) -> str:
    """By which an address names a rule: its own text may be longer than addresses are."""
    return hashlib.sha256("\0".join(astuple(rule)).encode()).hexdigest()[:32]


def quota_rows(quotas: Mapping[str, Mapping[str, int]]) -> list[QuotaRow]:
    """The group's limits first, then those of all users, then by principal."""
    words = {WHOLE_GROUP: "the group", ALL_USERS: "each user without its own"}
    return [
        QuotaRow(entity, words.get(entity, entity), name, QUOTAS.get(name, name), value)
        for entity in sorted(quotas, key=lambda one: (one != WHOLE_GROUP, one != ALL_USERS, one))
        for name, value in quotas[entity].items()
    ]


def quota_value(text: str) -> int | None:
    """A number as it was typed, ``500`` or ``10MiB``; None: it is none."""
    found = _VALUE.fullmatch(text.strip())
    if found is None or found[2].lower() not in _UNITS:
        return None
    return int(found[1]) * _UNITS[found[2].lower()]
