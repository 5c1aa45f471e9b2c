"""The way from a path to the group that lies there, for code below `dledger.embedded`, which starts
such groups. The package itself joins the two (`dledger/__init__.py`)."""

from __future__ import annotations

from collections.abc import Callable

_finders: list[Callable[[str], str]] = []
_lookers: list[Callable[[str], tuple[str, str]]] = []


def offer(find: Callable[[str], str], look: Callable[[str], tuple[str, str]]) -> None:
    """Let ``find`` give the bootstrap servers of the group in a directory, and ``look`` its name
    and servers as the directory tells them now, empty where it has none."""
    _finders[:], _lookers[:] = [find], [look]


def servers_of(path: str) -> str:
    """The bootstrap servers of the group in a directory, which is started where it does not run.

    Raises:
        DLedgerError: the directory cannot be used, or the group cannot be started.
    """
    return _finders[0](path)


def told_by(path: str) -> tuple[str, str]:
    """Name and servers of the group in a directory, as it says now: they change when the group gets
    other nodes, or moves. Empty where it has no group, or cannot be read. Starts nothing."""
    return _lookers[0](path)
