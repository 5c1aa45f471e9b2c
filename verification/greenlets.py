"""Greenlets: call stacks of their own within one thread, which run only when they are switched to;
and other locks.

The simulator and the scheduler of interleavings stop a thread of a node in the middle of a call and
go on with it later. The package ``greenlet`` comes with the extra ``test``, so it is loaded where
it is needed, not before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol

from dledger.errors import ConfigError


class Greenlet(Protocol):
    """The part of ``greenlet.greenlet`` that is used here."""

    def switch(self, *arguments: Any) -> Any:
        """Go on there; returns what the next switch back brings."""

    def throw(self, *error: Any) -> Any:
        """As `switch`, but the call that waits there raises the error."""

    parent: Any
    """The greenlet that goes on when this one's function has ended."""


@cache
def _package() -> Any:
    try:
        import greenlet
    except ModuleNotFoundError as error:
        raise ConfigError("this needs the package greenlet: pip install 'dledger[test]'") from error
    return greenlet


def new_greenlet(function: Callable[..., Any], parent: Greenlet) -> Greenlet:
    """One that runs ``function``; ``parent`` goes on when it has ended.

    Raises:
        ConfigError: the package ``greenlet`` is not installed.
    """
    made: Greenlet = _package().greenlet(function, parent)
    return made


def current_greenlet() -> Greenlet:
    """The one that calls this.

    Raises:
        ConfigError: as `new_greenlet`.
    """
    found: Greenlet = _package().getcurrent()
    return found


@contextmanager
def other_threading(stand_in: object) -> Iterator[None]:
    """As long as this lasts, the product's modules that are loaded take ``stand_in`` for the module
    `threading`: each of them says ``threading.Lock()``."""
    modules = [
        module
        for name, module in sorted(sys.modules.items())
        if name.startswith("dledger.") and module.__dict__.get("threading") is threading
    ]
    for module in modules:
        module.__dict__["threading"] = stand_in
    try:
        yield
    finally:
        for module in modules:
            module.__dict__["threading"] = threading
