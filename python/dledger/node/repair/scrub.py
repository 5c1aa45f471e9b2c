"""The background scrub: the whole log is read over and over, slowly, so that rot is found while
others have a copy."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from dledger.node.context import NodeContext, NodePart
from dledger.node.repair.repairs import Repairs
from dledger.storage.api import Scrubbed

logger = logging.getLogger(__name__)

SLICE_BYTES: Final = 256 << 10
"""Read at a time: a few milliseconds of a thread, also where entries are small."""
REST: Final = 9
"""Each slice is followed by at least so many times its own duration of rest: a tenth of one
processor at most."""


class Scrubber(NodePart):
    """Reads slice by slice on a reader's thread, within ``scrub_bytes_per_s``."""

    def __init__(self, context: NodeContext, repairs: Repairs) -> None:
        super().__init__(context)
        self._repairs = repairs
        context.status.add(lambda: {"scrub": self.status()})
        self._timer: asyncio.TimerHandle | None = None
        self._began_ms = 0
        self._at = 0
        self._found = 0
        self._passes = 0
        self._last_ms = 0
        self._last_faulty = 0
        self._stopped = False

    def start(self) -> None:
        if self._node.scrub_bytes_per_s > 0:
            self._timer = self._loop.call_later(0, self._step)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _step(self) -> None:
        if self._stopped or self._ready_loop.failed:
            return
        self._began_ms = self._now_ms()
        size = max(1, min(SLICE_BYTES, self._node.scrub_bytes_per_s))
        future = self._ready_loop.on_reader(self._store.scrub, size, self._raft.committed_index)
        future.add_done_callback(self._done)

    def _done(self, done: asyncio.Future[Scrubbed]) -> None:
        if self._stopped or done.cancelled() or self._ready_loop.failed:
            return
        error = done.exception()
        if error is not None:
            self._ready_loop.fail(error)
            return
        step = done.result()
        self._at = step.at
        took_s = (self._now_ms() - self._began_ms) / 1000
        wait = max(step.size / self._node.scrub_bytes_per_s, REST * took_s)
        self._found += sum(fault.last + 1 - fault.first for fault in step.faults)
        if step.faults:
            self._repairs.found(step.faults)
        if step.done:
            wait = max(wait, self._node.scrub_pause_ms / 1000)
            self._passes, self._last_ms = self._passes + 1, self._environment.wall_ms()
            self._last_faulty, self._found = self._found, 0
            log = logger.warning if self._last_faulty else logger.debug
            log(
                "scrub: the whole log was read, up to %d; %d entries were damaged",
                self._at,
                self._last_faulty,
            )
        self._timer = self._loop.call_later(wait, self._step)

    def status(self) -> dict[str, Any]:
        """For the node's status; see docs/operations.md."""
        return {
            "at": self._at,
            "end": self._store.end.end_pos,
            "found": self._found,
            "passes": self._passes,
            "last_pass_ms": self._last_ms,
            "last_pass_faulty": self._last_faulty,
        }
