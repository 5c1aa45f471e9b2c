"""The pages, their addresses, and the guard in front of them."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from dledger.console.access.guard import ConsoleDoor, Guard
from dledger.console.pages import groups, messages, overview, topics
from dledger.console.pages.common import Console, dledger_error, http_error, make_environment
from dledger.console.settings import ConsoleSettings
from dledger.console.watch.watched_group import WatchedGroup
from dledger.errors import DLedgerError

_PAGES: Final = (
    Route("/login", overview.log_in),
    Route("/logout", overview.log_out, methods=["POST"]),
    Route("/", overview.nodes, methods=["GET"]),
    Route("/leader", overview.transfer, methods=["POST"]),
    Route("/settings", overview.settings),
    Route("/certificates", overview.certificates),
    Route("/topics", topics.topics, methods=["GET"]),
    Route("/topics", topics.create, methods=["POST"]),
    Route("/topics/{name}", topics.topic),
    Route("/topics/{name}/partitions", topics.grow, methods=["POST"]),
    Route("/topics/{name}/delete", topics.delete, methods=["POST"]),
    Route("/groups", groups.groups),
    Route("/groups/{name}", groups.group),
    Route("/groups/{name}/reset", groups.preview, methods=["GET"]),
    Route("/groups/{name}/reset", groups.reset, methods=["POST"]),
)
_MESSAGES: Final = (
    Route("/topics/{name}/records", messages.records),
    Route("/topics/{name}/records/{partition}/{offset:int}", messages.record),
    Route("/topics/{name}/tail", messages.tail),
)
"""What ``--no-messages`` leaves out."""


def console_app(
    settings: ConsoleSettings, group: WatchedGroup, port: int, target: str = ""
) -> Starlette:
    """The console as an ASGI application, which is called at ``port``. Its door is
    ``state.console.door``; ``target`` names the group on the pages."""
    door = ConsoleDoor(settings.scheme, port, settings.hosts(port))
    routes: list[BaseRoute] = [*_PAGES, *(_MESSAGES if settings.messages else ())]
    static = StaticFiles(directory=str(files("dledger.console") / "static"))
    app = Starlette(
        routes=[*routes, Mount("/static", static)],
        middleware=[Middleware(Guard, door=door)],
        exception_handlers={DLedgerError: dledger_error, HTTPException: http_error},
    )
    app.state.console = Console(settings, group, door, make_environment(), target)
    return app
