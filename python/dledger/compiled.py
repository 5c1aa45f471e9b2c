"""Functions that touch the bytes of each entry, frame or key, and their compiled twins.

The extension `dledger._compiled` is optional. Where it could not be built, or does not fit this
machine, or the environment says ``DLEDGER_COMPILED=no``, the functions in Python do the work: they
say what both do, and take some times as long.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Final, TypeVar

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

python: dict[str, Callable[..., Any]] = {}
"""The functions in Python, by name."""


def _load() -> ModuleType | None:
    if os.environ.get("DLEDGER_COMPILED") == "no":
        return None
    try:
        return import_module("dledger._compiled")
    except ModuleNotFoundError:
        return None
    except ImportError as error:  # built for another machine or interpreter
        logger.warning("dledger runs without its compiled functions: %s", error)
        return None


native: Final = _load()
"""The extension; None: Python does its work."""


def compiled(function: F) -> F:
    """The compiled function of the same name; where there is none, this one."""
    python[function.__name__] = function
    twin: F = getattr(native, function.__name__, function)
    return twin
