"""One client for each group and process: Spark calls into short pieces of work that would otherwise
each connect."""

from __future__ import annotations

from typing import Any

from dledger import forks
from dledger.client.blocking.client import Client

_lock = forks.fork_lock()
_clients: dict[tuple[Any, ...], Client] = {}
_born = forks.generation


def shared_client(bootstrap_servers: str, **settings: Any) -> Client:
    """The process's client for these addresses and settings. No caller closes it; it opens and
    drops its connections as needed, and a forked child gets its own."""
    global _clients, _born
    key = (bootstrap_servers, *sorted(settings.items()))
    with _lock:
        if _born != forks.generation:
            _clients, _born = {}, forks.generation
        client = _clients.get(key)
        if client is None or client.core.lost:
            client = _clients[key] = Client(bootstrap_servers, **settings)
        return client
