"""The sections of the console, in the order of its navigation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Section:
    """One entry of the navigation."""

    title: str
    path: str
    call: str
    """The method of a client that it shows: without that there is no such section."""


SECTIONS: Final = (
    Section("Nodes", "/", "status"),
    Section("Topics", "/topics", "partitions"),
    Section("Groups", "/groups", "lag"),
    Section("Users", "/users", "users"),
    Section("ACLs", "/acls", "acls"),
    Section("Quotas", "/quotas", "quotas"),
    Section("Audit log", "/audit", "status"),
    Section("Settings", "/settings", "status"),
    Section("Certificates", "/certificates", "status"),
)


def sections_of(client: type) -> list[Section]:
    """Those that this kind of client has the calls for."""
    return [one for one in SECTIONS if hasattr(client, one.call)]
