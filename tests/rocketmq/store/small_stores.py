"""Small stores of messages, in the folder of a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dledger.rocketmq.store.message_store import MessageStore
from tests.rocketmq.made_logs import SMALL


class SmallStores:
    """Opens small stores in a folder or below it, and lets go of those that a test leaves open.
    ``settings`` are those that a store has unless it is opened with others."""

    def __init__(self, root: Path, clock: Callable[[], int]) -> None:
        self.root = root
        self.settings: dict[str, Any] = {"clock": clock, **SMALL}
        self._opened: list[MessageStore] = []

    def open(self, folder: str = "", **settings: Any) -> MessageStore:
        self._opened.append(MessageStore(self.root / folder, **{**self.settings, **settings}))
        return self._opened[-1]

    def let_go(self) -> None:
        for store in self._opened:
            store.abandon()
