"""Rules of access control (ACLs), and what they decide, as Kafka's StandardAuthorizer does.

A rule allows or denies a principal one operation on a resource, or on all whose names begin alike.
A rule that denies wins over all that allow, and what no rule allows is denied. Whoever may read,
write, alter or delete something may describe it too, unless a rule denies that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Final, NamedTuple

from dledger.catalog.results import CommandResult
from dledger.config import AUDIT_TOPIC, nearest
from dledger.protocol.messages.acl_rules import AclRule
from dledger.protocol.messages.catalog_commands import AddAcls, RemoveAcls
from dledger.protocol.messages.codes import Code
from dledger.types import OWNER

ALLOW: Final = "allow"
DENY: Final = "deny"
READ: Final = "read"
WRITE: Final = "write"
CREATE: Final = "create"
DELETE: Final = "delete"
ALTER: Final = "alter"
DESCRIBE: Final = "describe"
ADMIN: Final = "admin"
"""To change the rules, the members and whatever else is the group's own."""
ALL: Final = "all"
"""Every operation; only rules have it."""

TOPIC: Final = "topic"
CONSUMERS: Final = "group"
"""A consumer group."""
PRODUCER: Final = "producer"
"""A producer by its name, a writer of transactions by its id."""
CLUSTER: Final = "cluster"
"""The group of nodes as a whole; it has no name."""

OPERATIONS: Final[dict[str, tuple[str, ...]]] = {
    TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE),
    CONSUMERS: (READ, DELETE, ALTER, DESCRIBE),
    PRODUCER: (WRITE, DESCRIBE),
    CLUSTER: (ADMIN, DESCRIBE),
}
"""The operations on each type of resource."""
_IMPLY_DESCRIBE: Final = (READ, WRITE, DELETE, ALTER, ADMIN)
_ANY: Final = "*"
EVERYBODY: Final = "User:*"
_RESOURCE: Final = {
    TOPIC: re.compile(r"[A-Za-z0-9._%|-]{1,255}|[A-Za-z0-9._%|-]{0,254}\*"),  # also RocketMQ's
    CONSUMERS: re.compile(r"[A-Za-z0-9._-]{1,127}|[A-Za-z0-9._-]{0,126}\*"),
    # but for characters that nobody sees: these, whatever Unicode a node's Python knows
    PRODUCER: re.compile(
        r"[^\x00-\x1f\x7f-\xa0\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
        r"\ufff0-\uffff\U000e0000-\U000e0fff]{1,1024}"
    ),
}
_PRINCIPAL: Final = re.compile(r"User:(\*|[A-Za-z0-9._-]{1,127})")
MAX_RULES: Final = 10_000
MAX_DECISIONS: Final = 10_000
"""That are remembered."""
MAX_REMEMBERED: Final = 1024
"""Characters of a name in one of them."""

Key = tuple[str, str, str, str, str]
"""The fields of a rule, in their order."""
Asker = tuple[str, str, str]
"""A principal, and the type and name of a resource."""


def is_trusted(principal: str) -> bool:
    """Whether rules do not hold for it: the owner, or a node."""
    return principal == OWNER or principal.startswith("Node:")


class Decision(NamedTuple):
    """What the rules say, and the one that decides; None where nothing allows it."""

    allowed: bool
    rule: AclRule | None = None


def key_of(rule: AclRule) -> Key:
    """By which rules are sorted and told apart."""
    return rule.effect, rule.principal, rule.operation, rule.resource_type, rule.resource


def malformed_rules(command: AddAcls | RemoveAcls) -> str:
    """The fault of rules that no state could take, or nothing."""
    if not command.rules:
        return "name at least one rule"
    return next(filter(None, map(_malformed_rule, command.rules)), "")


def _malformed_rule(rule: AclRule) -> str:
    if rule.effect not in (ALLOW, DENY):
        return f"a rule allows or denies: {rule.effect!r} is neither {ALLOW!r} nor {DENY!r}"
    wrong = malformed_asking(rule.principal, rule.operation, rule.resource_type)
    if wrong:
        return wrong
    if rule.resource_type == CLUSTER:
        return "the cluster has no name" if rule.resource else ""
    if not _RESOURCE[rule.resource_type].fullmatch(rule.resource):
        return (
            f"{rule.resource[:80]!r} names no {rule.resource_type}: write a name, or the beginning "
            f"of names with * behind it"
        )
    return ""


def malformed_asking(principal: str, operation: str, resource_type: str) -> str:
    """Why there can be no rule about this, or nothing."""
    if not _PRINCIPAL.fullmatch(principal):
        return f"{principal[:80]!r} is no principal: write User:NAME, or {EVERYBODY} for everybody"
    known = OPERATIONS.get(resource_type)
    if known is None:
        kinds = [*OPERATIONS]
        hint = nearest(resource_type[:80], kinds)
        return f"{resource_type[:80]!r} is no resource{hint}; there are {', '.join(kinds)}"
    if operation not in (*known, ALL):
        hint = nearest(operation[:80], [*known, ALL])
        return (
            f"{operation[:80]!r} is no operation on a {resource_type}{hint}; there are "
            f"{', '.join(known)}, and {ALL} for every one"
        )
    return ""


class Acls:
    """The rules of a group. Without any, whoever is admitted may do everything."""

    def __init__(self, rules: Iterable[AclRule] = ()) -> None:
        self.rules: dict[Key, AclRule] = {key_of(rule): rule for rule in rules}
        self.version = 0
        """It grows with each change."""
        self._settle()

    def _settle(self) -> None:
        """Prepare for questions."""
        self._decisions: dict[tuple[str, str, str, str], Decision] = {}
        beginnings = {len(r.resource) - 1 for r in self.rules.values() if r.resource.endswith(_ANY)}
        self._beginnings = sorted(beginnings, reverse=True)
        """Lengths of the names' beginnings in rules, longest first."""

    def sorted(self) -> list[AclRule]:
        """By principal, then resource: those that belong together are side by side."""
        return sorted(
            self.rules.values(),
            key=lambda r: (r.principal, r.resource_type, r.resource, r.operation, r.effect),
        )

    # ---- questions

    def decide(
        self, principal: str, operation: str, resource_type: str, resource: str = ""
    ) -> Decision:
        """What the rules say to this, remembered until they change.

        Args:
            resource: a name. ``*`` stands for every name: is none denied? An empty one, of a
                resource that has names, stands for some name: may one be allowed?
        """
        asked = (principal, operation, resource_type, resource)
        known = self._decisions.get(asked)
        if known is None:
            if len(resource) > MAX_REMEMBERED:  # whoever asks may send a long one
                return self._decide(*asked)
            if len(self._decisions) >= MAX_DECISIONS:
                self._decisions.clear()
            known = self._decisions[asked] = self._decide(*asked)
        return known

    def _decide(
        self, principal: str, operation: str, resource_type: str, resource: str
    ) -> Decision:
        denying = (operation, ALL)
        allowing = (*denying, *_IMPLY_DESCRIBE) if operation == DESCRIBE else denying
        asked: Asker = (principal, resource_type, resource)
        for effect, operations in ((DENY, denying), (ALLOW, allowing)):
            is_any = resource == ("" if effect == ALLOW else _ANY) and resource_type != CLUSTER
            find = self._on_any if is_any else self._on_name
            if (rule := find(effect, operations, asked)) is not None:
                return Decision(effect == ALLOW, rule)
        return Decision(False)

    def _on_name(self, effect: str, operations: Sequence[str], asked: Asker) -> AclRule | None:
        """The nearest of the rules on a name: its own, then those with its beginnings, the longest
        first. No name at all has the rule on every one; it, as any shorter beginning, allows
        nothing on the audit log's topic, which whoever wrote it did not think of."""
        principal, resource_type, resource = asked
        patterns = [resource]
        if resource_type != CLUSTER:
            fitting = [length for length in self._beginnings if length <= len(resource)]
            if effect == ALLOW and (resource_type, resource) == (TOPIC, AUDIT_TOPIC):
                fitting = [length for length in fitting if length == len(AUDIT_TOPIC)]
            patterns += [resource[:length] + _ANY for length in fitting]
        for pattern in patterns:
            for whose in (principal, EVERYBODY):
                for operation in operations:
                    rule = self.rules.get((effect, whose, operation, resource_type, pattern))
                    if rule is not None:
                        return rule
        return None

    def _on_any(self, effect: str, operations: Sequence[str], asked: Asker) -> AclRule | None:
        """The first of the rules on whatever name."""
        principal, resource_type, _ = asked
        for rule in self.rules.values():
            if (
                rule.effect == effect
                and rule.principal in (principal, EVERYBODY)
                and rule.operation in operations
                and rule.resource_type == resource_type
            ):
                return rule
        return None

    def has_admin(self) -> bool:
        """Whether a principal may still change the rules."""
        named = {
            rule.principal
            for rule in self.rules.values()
            if rule.resource_type == CLUSTER and rule.effect == ALLOW
        }
        return any(self.decide(who, ADMIN, CLUSTER).allowed for who in named)

    # ---- commands

    def refusal(self, command: AddAcls | RemoveAcls) -> CommandResult | None:
        """Why these rules cannot be added or removed, or None."""
        if isinstance(command, RemoveAcls):
            if missing := set(map(key_of, command.rules)) - self.rules.keys():
                text = f"there is no rule '{' '.join(min(missing)).strip()}': dledger acl list"
                return CommandResult(Code.UNEXPECTED_ARGUMENT, f"{text} has all that there are")
        elif len({*self.rules, *map(key_of, command.rules)}) > MAX_RULES:
            text = f"a group has up to {MAX_RULES} rules: name beginnings of names (orders-*)"
            return CommandResult(Code.LIMIT_REACHED, text)
        if command.force or self._after(command).has_admin():
            return None
        if self.rules:
            text = "nobody could change the rules any more"
        else:
            text = (
                "the first rules must name who may change them, since from then on what no rule "
                "allows is denied"
            )
        text += ": dledger acl add allow User:NAME admin cluster, or say --force"
        return CommandResult(Code.UNEXPECTED_ARGUMENT, text)

    def _after(self, command: AddAcls | RemoveAcls) -> Acls:
        if isinstance(command, AddAcls):
            return Acls([*self.rules.values(), *command.rules])
        gone = set(map(key_of, command.rules))
        return Acls(rule for key, rule in self.rules.items() if key not in gone)

    def change(self, command: AddAcls | RemoveAcls) -> CommandResult:
        """The answer says how many rules have ``changed``: those that were there already have
        not."""
        refusal = self.refusal(command)
        if refusal is not None:
            return refusal
        before, self.rules = self.rules, self._after(command).rules
        changed = len(before.keys() ^ self.rules.keys())
        if changed:
            self.version += 1
            self._settle()
        return CommandResult(Code.SUCCESS, "", {"changed": changed})

    # ---- snapshots

    def encode(self) -> list[Key]:
        """For a snapshot; the same for the same rules, in whichever order they were added."""
        return sorted(self.rules)

    def restore(self, data: Iterable[Sequence[str]]) -> None:
        """The rules of a snapshot."""
        names = [field.name for field in fields(AclRule)]
        rules = (AclRule(**dict(zip(names, key, strict=True))) for key in data)
        self.rules = {key_of(rule): rule for rule in rules}
        self.version += 1
        self._settle()
