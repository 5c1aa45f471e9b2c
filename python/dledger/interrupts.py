"""Telling an exception of a signal handler from an error of the system, also where both have one
class: with the usual alarm, a caller's time limit is a `TimeoutError`, as a socket's own is."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

_LIBRARIES: Final = {"pyarrow", "msgpack", "numpy", "isal", "uvloop"}
"""The libraries that this package calls where it catches errors. Their extension modules leave
frames of theirs in a traceback."""
STAND_IN: Final = "STANDS_IN_FOR_THE_SYSTEM"
"""A top-level package has this name where its code is called in place of the system, as a
simulator's disk is: an error that it raises counts as the system's."""
_OURS: Final = sys.stdlib_module_names | {__name__.partition(".")[0]} | _LIBRARIES


def is_interrupt(error: BaseException) -> bool:
    """Whether an error that was caught around calls of the system came out of a signal handler in
    between: it has gone through code that is neither this package's nor its libraries' nor Python's
    own, nor that of the sockets in use or of a `STAND_IN`."""
    sockets = socket.socket.__module__.partition(".")[0]  # others put their own in its place
    trace = error.__traceback__
    while trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        is_known = package in _OURS or package == sockets
        if not is_known and not hasattr(sys.modules.get(package), STAND_IN):
            return True
        trace = trace.tb_next
    return False


class suppressed:
    """As ``suppress(OSError)``, for errors of the system alone."""

    def __enter__(self) -> None:
        """Nothing to do before."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return isinstance(error, OSError) and not is_interrupt(error)


@contextmanager
def told_as(told: Callable[[Any], Exception], *kinds: type[Exception]) -> Iterator[None]:
    """Raise ``told(error)`` in place of an error of these classes, if it is no interrupt."""
    try:
        yield
    except kinds as error:
        if is_interrupt(error):
            raise
        raise told(error) from None
