"""A group of nodes within the test's process, a plugin for pytest with one as a fixture, and
checkers of histories, for the tests of users. The package never runs in a node or a client."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dledger.testing.in_process_group import InProcessGroup


def __getattr__(name: str) -> Any:
    # Lazy, because a checker of a history needs no node.
    if name == "InProcessGroup":
        return import_module("dledger.testing.in_process_group").InProcessGroup
    raise AttributeError(f"module 'dledger.testing' has no attribute {name!r}")


__all__ = ["InProcessGroup"]
