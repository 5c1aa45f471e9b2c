"""Batch writes that cannot be told from a repeat: no query's id, no ``txnId``.

Spark tells a write that it is part of foreachBatch by properties of the thread that makes it. A
thread that the user's function starts has none of them, and neither has a write over Spark Connect,
where the function is itself a client. Such a write looks like that of a batch job. The only sign is
that the driver runs a streaming query: its JVM has a thread for each.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from dledger.interrupts import suppressed

LOGGER: Final = logging.getLogger("dledger.spark")
PROC: Final = Path("/proc")
STREAM_THREAD: Final = "stream execution thread"[:15]
"""Linux keeps 15 characters of a thread's name."""


def runs_streams(proc: Path = PROC) -> bool:
    """Whether the JVM above this process runs a streaming query; False where that cannot be
    seen."""
    pid = str(os.getpid())
    with suppressed():
        while pid not in {"0", "1"}:
            name, parent = _name_and_parent(proc / pid)
            if name == "java":
                return any(
                    _thread_name(task) == STREAM_THREAD for task in (proc / pid / "task").iterdir()
                )
            pid = parent
    return False


def warn_of_repeats(topic: str) -> None:
    """Tell that a write may be made again by a replayed micro-batch, where it may be part of
    one."""
    if runs_streams():
        LOGGER.warning(
            "a write to topic %r has no query and no 'txnId', while this application runs a "
            "streaming query. If it was made in foreachBatch, by a thread of its own or over Spark "
            "Connect, a batch that is run again writes its rows again: name it after the batch, as "
            "in .option('txnId', f'orders-{batch_id}')",
            topic,
        )


def _name_and_parent(process: Path) -> tuple[str, str]:
    name, _, rest = (process / "stat").read_text().partition("(")[2].rpartition(")")
    return name, rest.split()[1]


def _thread_name(task: Path) -> str:
    try:
        return (task / "comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return ""
