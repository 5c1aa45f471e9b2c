"""Running the console: the port, the link, and the end."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any

import uvicorn

from dledger.console.app import console_app
from dledger.console.settings import ConsoleSettings, in_url
from dledger.console.watch.watched_group import WatchedGroup
from dledger.errors import ConfigError, PortInUse

MOST_CONNECTIONS = 200


def serve(
    settings: ConsoleSettings, group: WatchedGroup, target: str, say: Callable[[str], object]
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        target: names the group on the pages.
        say: told of each link to log in by; the next one when one was used.

    Raises:
        ConfigError, PortInUse: it cannot listen there, or a file of HTTPS is unfit.
    """
    with closing(listen(settings)) as listener:
        port = listener.getsockname()[1]
        console = console_app(settings, group, port, target)
        address = f"{settings.scheme}://{in_url(settings.shown_host)}:{port}"
        console.state.console.door.sessions.announce(
            lambda token: say(f"{address}/login?token={token}")
        )
        server_of(console, settings).run(sockets=[listener])


def listen(settings: ConsoleSettings) -> socket.socket:
    """The port of the console, which nobody else has."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(100)
    except OSError as error:
        listener.close()
        raise PortInUse(
            f"the console cannot listen at {in_url(settings.host)}:{settings.port} "
            f"({error.strerror}): give another --port, or 0 for any that is free"
        ) from None
    return listener


def server_of(app: Any, settings: ConsoleSettings) -> uvicorn.Server:
    """The HTTP server, which says nothing but warnings."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=2,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
    )
    try:
        config.load()
    except OSError as error:
        raise ConfigError(
            f"--certificate {settings.certificate}, --key {settings.key}: {error.strerror or error}"
        ) from None
    return uvicorn.Server(config)
