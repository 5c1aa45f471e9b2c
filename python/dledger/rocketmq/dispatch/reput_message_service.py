"""ReputMessageService: dispatches a store's log in a thread of its own, behind the thread that
appends to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from dledger.rocketmq.store.message_store import MessageStore

SLICE: Final = 4 << 20
"""Log bytes between two checks whether to stop."""
REST: Final = 4
"""While others are busy, so many times longer than it works."""
CHECKPOINT_S: Final = 10.0
"""After a crash, messages dispatched since the last checkpoint are dispatched again."""


class ReputMessageService:
    """While it runs, queues, index and checkpoint of the store are its own: no other thread may
    dispatch or flush it.

    Others may append to ``store.log``, read it and flush it meanwhile.

    Args:
        on_error: called in the thread when it ends with an error.
        busy: asked in the thread; while it says so, most of the processor is left to others.
    """

    def __init__(
        self,
        store: MessageStore,
        on_error: Callable[[], None] = lambda: None,
        *,
        busy: Callable[[], bool] = lambda: False,
        checkpoint_s: float = CHECKPOINT_S,
    ) -> None:
        self.error: Exception | None = None
        self._store = store
        self._on_error = on_error
        self._busy = busy
        self._checkpoint_s = checkpoint_s
        self._checkpointed = -1
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reput", daemon=True)

    def start(self) -> None:
        """Begin with the messages that are there."""
        self._thread.start()

    def notify_appended(self) -> None:
        """The log has grown."""
        self._wake.set()

    def stop(self) -> None:
        """Return when the slice that is being dispatched is done.

        Raises:
            FormatError, DiskFull, StorageError: the error that has ended the thread before.
        """
        self._stopped.set()
        self._wake.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        self._store.lent_to = threading.get_ident()
        try:
            due = time.monotonic() + self._checkpoint_s
            while not self._stopped.is_set():
                self._wake.wait(max(due - time.monotonic(), 0))
                self._wake.clear()
                while (
                    self._dispatch_slice() and not self._stopped.is_set() and time.monotonic() < due
                ):
                    self._wake.set()  # there may be more
                if time.monotonic() >= due:
                    self._checkpoint()
                    due = time.monotonic() + self._checkpoint_s
        except Exception as error:  # handed to the caller of `stop`
            self.error = error
            self._on_error()
        finally:
            self._store.lent_to = None

    def _dispatch_slice(self) -> bool:
        """Dispatch a little; whether there was anything."""
        store = self._store
        if store.reput.offset < store.log.min_offset:  # the log's first bytes have just come
            store.reput.offset = store.log.min_offset
        before, began = store.reput.offset, time.monotonic()
        more = store.dispatch(SLICE) > before
        if more and self._busy():
            self._stopped.wait(REST * (time.monotonic() - began))
        return more

    def _checkpoint(self) -> None:
        """Flush queues and index, and write down how far they are, unless nothing has come."""
        if self._store.reput.offset != self._checkpointed:
            self._store.flush()
            self._checkpointed = self._store.reput.offset
