"""The Python processes in which Spark runs pieces of work, one after the other: planning, tasks.

Spark's daemon collects garbage after each piece, and the next one waits until that is done. Such a
collection walks mostly over the modules that are loaded, some hundred thousand objects that stay
for as long as the process does: 20 to 40 ms, where reading a task's rows takes some 100 ms.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

DAEMON: Final = "pyspark.daemon"
"""The module by which Spark starts such a process (``spark.python.daemon.module``). Its other
processes do one piece of work, or never collect."""

CALLS: Final = 2
"""The second one comes behind a collection, when the first piece of work has loaded what it needs
on its way."""

_calls = 0


def settle() -> None:
    """Keep the present objects out of later collections, in a process of the daemon's; to be called
    when a piece of work begins, whose modules are loaded by then.

    Only the first two calls in a process have an effect: later objects, all that user code makes
    among them, are collected as ever. Of the present objects, cycles are kept when they become
    garbage; all others go with their last reference.
    """
    global _calls
    if _calls >= CALLS:
        return
    _calls += 1
    started_as = getattr(sys.modules["__main__"], "__spec__", None)
    if started_as is not None and started_as.name == DAEMON:
        gc.freeze()
