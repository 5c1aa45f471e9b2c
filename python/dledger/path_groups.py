"""The way from a path to the group that lies there, for code below `dledger.embedded`, which starts
such groups. The package itself joins the two (`dledger/__init__.py`)."""

from __future__ import annotations

from collections.abc import Callable

_finders: list[Callable[[str], str]] = []


def offer(find: Callable[[str], str]) -> None:
    """Let ``find`` give the bootstrap servers of the group in a directory."""
    _finders[:] = [find]


def servers_of(path: str) -> str:
    """The bootstrap servers of the group in a directory, which is started where it does not run.

    Raises:
        DLedgerError: the directory cannot be used, or the group cannot be started.
    """
    return _finders[0](path)
