"""The question whether the rules let a principal do something, and its answer."""

from __future__ import annotations

from dledger.protocol.messages.acl_rules import AclRule
from dledger.protocol.messages.client import LeaderResponse
from dledger.types import slots_dataclass


@slots_dataclass(kw_only=True)
class AclDecisionRequest:
    """Would ``principal`` be let do ``operation`` on this resource? Linearizable; the resource need
    not be there."""

    principal: str
    operation: str
    resource_type: str
    resource: str = ""


@slots_dataclass(kw_only=True)
class AclDecisionResponse(LeaderResponse):
    """``rules`` has the deciding rule; none where no rule decides, and ``message`` says what
    does."""

    allowed: bool = False
    rules: tuple[AclRule, ...] = ()
