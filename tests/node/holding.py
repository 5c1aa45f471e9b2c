"""Syncs and messages of a node that a test holds back, as slow disks and networks do, and calls
that it looks at."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class HeldSyncs:
    """Holds back a node's syncs until it is opened, or the block with it ends."""

    def __init__(self, node: Any) -> None:
        self.open = threading.Event()
        self.waiting = threading.Event()
        self.sync = node.store.sync
        node.store.sync = self._held

    def __enter__(self) -> HeldSyncs:
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()

    def _held(self) -> Any:
        self.waiting.set()
        self.open.wait()
        return self.sync()


def watch(owner: Any, name: str, note: Callable[..., object]) -> None:
    """Have ``note`` called in front of each call of a method, with the same arguments."""
    method = getattr(owner, name)

    def watched(*args: Any) -> Any:
        note(*args)
        return method(*args)

    setattr(owner, name, watched)


def between(node: Any, take: Callable[[Any, Callable[[Any], None]], object]) -> Callable[[], None]:
    """Each message of ``node`` for another one goes to ``take``, with the function that sends it.
    Returns the way back."""
    links = list(node.parts.peers.links.values())

    def tap(send: Callable[[Any], None]) -> Callable[[Any], object]:
        return lambda message: take(message, send)

    for link in links:
        link.send = tap(link.send)

    def heal() -> None:
        for link in links:
            del link.send

    return heal
