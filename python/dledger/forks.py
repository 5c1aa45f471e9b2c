"""The effects of a fork on a process: in the child only the thread that forked goes on. Locks of
the other threads stay held there for ever, their loops stand still, and their connections are the
parent's. Files that are open are open in both, and a lock on one (flock) stays as long as either
has it."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from typing import Final

from dledger.errors import ForkedClient, PathError
from dledger.interrupts import is_interrupt, suppressed

generation: int = 0
"""How many forks lie between this process and the first one that loaded this module. An object that
cannot be used in a child keeps the number of its birth; comparing it costs no system call."""


LOADED_LATE: Final = {"dledger", "pyarrow", "numpy"}
"""Packages of which a call may load modules."""
_locked: Final[set[int]] = set()
"""Descriptors that are for this process alone, as their locks are."""


def _begin_child() -> None:
    global generation
    generation += 1
    while _locked:  # the parent's locks do not outlive it here
        with suppressed():
            os.close(_locked.pop())


def _finish_imports() -> None:
    """Wait for what other threads are loading, Arrow for a first append: a child could never load
    it, since their locks on modules stay held there."""
    for name, module in list(sys.modules.items()):
        is_loading = getattr(getattr(module, "__spec__", None), "_initializing", False)
        if is_loading and name.partition(".")[0] in LOADED_LATE:
            with suppress(ImportError):  # which is for the thread that loads it
                import_module(name)


os.register_at_fork(before=_finish_imports, after_in_child=_begin_child)


def check_born_here(born: int, what: str) -> None:
    """Refuse the use of an object in a child of the process that made it.

    Args:
        born: `generation` when it was made.
        what: names it in the message, as ``the producer of topic 't'``.

    Raises:
        ForkedClient: it was made before a fork.
    """
    if born != generation:
        raise ForkedClient(
            f"{what} was made before this process was forked, and belongs to the parent process; "
            "make a new Client in the child, and from it what the child needs"
        )


def fork_lock() -> AbstractContextManager[bool]:
    """A lock for a module to keep, which a child never finds held by a thread that it does not
    have: a fork waits until it is free. To be held for moments only, and never while waiting for a
    thread that forks."""
    lock: Final = threading.RLock()  # a signal handler may fork in the thread that holds it
    os.register_at_fork(
        before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
    )
    return lock


_opening: Final = fork_lock()


def open_for_lock(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """`os.open` for a file that will be locked (flock), which no child keeps open. `let_go` gives
    it back."""
    with _opening:
        descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
        _locked.add(descriptor)
    return descriptor


def open_pipe() -> tuple[int, int]:
    """`os.pipe` whose second end no forked child keeps open, so that its end is seen; `let_go`
    closes that one."""
    with _opening:
        read_end, write_end = os.pipe()
        _locked.add(write_end)
    return read_end, write_end


def check_lock(path: str | os.PathLike[str]) -> None:
    """See that the exclusive lock (flock) which was just taken on ``path`` keeps others out: a
    second descriptor must not get it. Some network file systems grant every lock.

    Raises:
        PathError: it does not.
        OSError: the file cannot be opened again, or locks have failed meanwhile.
    """
    second = open_for_lock(path, os.O_RDWR)
    try:
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        if is_interrupt(error):
            raise
    else:
        raise PathError(
            f"{path}: two can hold the lock of this file at once, so its file system has no "
            "working flock, and nothing would keep two nodes off one store: name a directory on "
            "a local disk, or mount this one with locks"
        )
    finally:
        let_go(second)


def let_go(descriptor: int) -> None:
    """Give a lock back and close its file, or close a pipe's end; nothing in a child, whose parent
    goes on holding it. Closing alone would leave the lock with every process that got the open file
    meanwhile."""
    with _opening:
        if descriptor not in _locked:
            return
        _locked.discard(descriptor)
        try:
            with suppressed():
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)
