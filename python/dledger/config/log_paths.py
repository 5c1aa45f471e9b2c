"""Logs that are a directory on a local disk."""

from __future__ import annotations

import os
from pathlib import Path

from dledger.errors import ConfigError


def is_log_path(text: str) -> bool:
    """Whether a program means a directory and no addresses: it has a slash, begins with a dot or
    ``~``, or is there."""
    return bool(text) and ("/" in text or text[0] in ".~" or Path(text).is_dir())


def local_path(path: str) -> str:
    """The absolute path of a log.

    Raises:
        ConfigError: it is not on a local disk.
    """
    scheme, separator, rest = path.partition(":")
    if separator and scheme.lower() == "file":
        path = "/" + rest.lstrip("/")
    elif separator and rest.startswith("//"):
        raise ConfigError(
            f"the path {path!r} is on {scheme!r}; a log's path is a directory on a local disk"
        )
    return os.path.abspath(path) if path else ""  # noqa: PTH100 - text in, text out; nothing is looked up
