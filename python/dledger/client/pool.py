"""One client for each group and process: Spark calls into short pieces of work that would otherwise each connect."""

from __future__ import annotations

import os
import threading
from typing import Any

from dledger.client.client import Client

_lock = threading.Lock()
_clients: dict[tuple[Any, ...], Client] = {}
_pid = os.getpid()


def shared_client(bootstrap_servers: str, **settings: Any) -> Client:
    """The process's client for these addresses and settings. Nobody closes it; it opens and drops its connections as
    needed, and a forked child gets its own."""
    global _lock, _clients, _pid
    if _pid != os.getpid():  # the parent's lock may have been held at the fork
        _lock, _clients, _pid = threading.Lock(), {}, os.getpid()
    key = (bootstrap_servers, *sorted(settings.items()))
    with _lock:
        client = _clients.get(key)
        if client is None or client.core.lost:
            client = _clients[key] = Client(bootstrap_servers, **settings)
        return client
