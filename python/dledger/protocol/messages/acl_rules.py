"""A rule of access control: what a principal may do, or may not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRule:
    """``allow User:alice read topic orders-*``, in five fields; `dledger.catalog.access.acls` says
    what each may be."""

    effect: str
    """``allow`` or ``deny``."""
    principal: str
    operation: str
    resource_type: str
    resource: str = ""
    """A name, or the beginning of names with ``*`` behind it; empty for the cluster."""

    def __str__(self) -> str:
        return " ".join((self.effect, self.principal, self.operation, self.on)).strip()

    @property
    def on(self) -> str:
        """Type and name of the resource, as in ``topic orders-*``."""
        return f"{self.resource_type} {self.resource}".strip()
