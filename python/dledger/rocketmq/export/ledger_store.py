"""A store of a broker in DLedger mode that is written: its log, and queues and index of it."""

from __future__ import annotations

from pathlib import Path

from dledger.rocketmq.dispatch.build_consume_queue import Reput
from dledger.rocketmq.export.ledger_files import LedgerFiles
from dledger.rocketmq.format.checkpoint import StoreCheckpoint
from dledger.rocketmq.store.consume_queues import ConsumeQueues
from dledger.rocketmq.store.index_service import IndexService
from dledger.rocketmq.store.store_lock import CheckpointFile


class LedgerStore:
    """The files of the store; other classes know which messages go into it."""

    def __init__(
        self, root: Path, self_id: str, *, file_size: int, begin: int, index: bool
    ) -> None:
        """Args:
            root: the store's folder (storePathRootDir, and storeBaseDir of DLedger).
            self_id: dLegerSelfId.
            begin: where the first file of the log begins.
            index: make the index by key.

        Raises:
            PathError: there is a log already, or the directory cannot be made.
        """
        self._root = root
        self._queues = ConsumeQueues(root / "consumequeue")
        self._index = IndexService(root / "index") if index else None
        self._reput = Reput(self._queues, self._index, offset=begin)
        node = root / f"dledger-{self_id}"
        self._ledger = LedgerFiles(node, data_file_size=file_size, first_pos=begin)

    def _dispatch(self) -> None:
        """Put the appended messages into queues and index."""
        self._ledger.write()
        self._reput.catch_up(self._ledger.data)

    def _finish(self, indexed: int) -> None:
        """Everything to the disk; ``indexed``: up to which store time the index is."""
        self._ledger.close()
        self._queues.flush()
        if self._index is not None:
            self._index.flush()
        stored = self._reput.store_timestamp
        CheckpointFile(self._root).write(StoreCheckpoint(stored, stored, indexed))

    def abandon(self) -> None:
        """Let go of it."""
        self._ledger.abandon()
        if self._index is not None:
            self._index.close()
