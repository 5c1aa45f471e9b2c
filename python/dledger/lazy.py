"""Public names of a package that are loaded when they are first used: a program does not pay for
the others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        homes: by name, the module that has it.
    """
    here = vars(sys.modules[package])

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = here[name] = getattr(import_module(homes[name]), name)
        return value

    return get, lambda: sorted({*here, *homes})
