"""Operations on the rules of access control, as generators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dledger.client.protocol.client_state import ClientState, Operation, Request
from dledger.client.protocol.operations.group_state import list_rows
from dledger.client.protocol.operations.requests import execute
from dledger.client.protocol.routing import CallPolicy
from dledger.errors import ConfigError
from dledger.protocol.messages.acl_decisions import AclDecisionRequest
from dledger.protocol.messages.acl_rules import AclRule
from dledger.protocol.messages.catalog_commands import AddAcls, RemoveAcls
from dledger.protocol.messages.client import Listing


@dataclass(frozen=True, slots=True)
class AclDecision:
    """What the rules say to something that a principal might ask for."""

    allowed: bool
    rule: AclRule | None
    """The deciding one; None where none decides, and ``reason`` says why that is the answer."""
    reason: str


def parse_rule(text: str) -> AclRule:
    """The rule that stands in a text, as in ``allow User:alice read topic orders-*``.

    Raises:
        ConfigError: it has another form.
    """
    effect, principal, operation, resource_type, *name = text.split(maxsplit=4) + [""] * 4
    if not resource_type:
        raise ConfigError(
            f"{text!r} is no rule: write allow|deny PRINCIPAL OPERATION RESOURCE, as in 'allow "
            f"User:alice read topic orders'"
        )
    return AclRule(
        effect=effect,
        principal=principal,
        operation=operation,
        resource_type=resource_type,
        resource=name[0],
    )


def acls(_: ClientState) -> Operation[list[AclRule]]:
    """The rules of access control, sorted; none: everybody who is admitted may do everything."""
    rows = yield from list_rows(Listing.ACLS, "list access rules")
    return [AclRule(**row) for row in rows]


def add_acls(
    _: ClientState, rules: Sequence[str | AclRule], *, force: bool = False
) -> Operation[int]:
    """Let these rules hold from now on; how many are new. With the first one, all that no rule
    allows is denied, but to whoever has proved the group's secret, and to the nodes.

    Args:
        rules: each as in ``allow User:alice read topic orders-*``: what it does (allow, deny), the
            principal (``User:*`` is everybody), the operation (read, write, create, delete, alter,
            describe, admin; all), and the resource (topic, group, producer, cluster) with its name.
        force: also where no principal could change the rules any more.

    Raises:
        ConfigError: a rule cannot be, the first ones name nobody who may change them, or nobody
            could any more.
        PermissionDenied: this program may not change them.
    """
    given = tuple(parse_rule(one) if isinstance(one, str) else one for one in rules)
    result = yield from execute(AddAcls(rules=given, force=force), "add access rules")
    changed: int = result["changed"]
    return changed


def remove_acls(
    _: ClientState, rules: Sequence[str | AclRule], *, force: bool = False
) -> Operation[int]:
    """Let these rules hold no longer; how many these were. Arguments and errors are those of
    `add_acls`; a rule that is not there is one, too. Without any rule, and without users, everybody
    who is admitted may do everything again, so the last one is removed by ``force`` only."""
    given = tuple(parse_rule(one) if isinstance(one, str) else one for one in rules)
    command = RemoveAcls(rules=given, force=force)
    # a repeat would find them gone
    result = yield from execute(command, "remove access rules", repeatable=False)
    changed: int = result["changed"]
    return changed


def acl_decision(
    _: ClientState, principal: str, operation: str, resource_type: str, resource: str = ""
) -> Operation[AclDecision]:
    """Whether the rules let a principal do something, and the rule that decides. The resource need
    not be there; ``*`` stands for every one of its type.

    Raises:
        ConfigError: there is no such operation on such a resource.
    """
    request = AclDecisionRequest(
        principal=principal, operation=operation, resource_type=resource_type, resource=resource
    )
    answer, _payload = yield Request(request, CallPolicy(what="test access rules"))
    return AclDecision(answer.allowed, next(iter(answer.rules), None), answer.message)
