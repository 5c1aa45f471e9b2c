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
from dledger.console.pages import acls, groups, messages, overview, quotas, topics, users
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
    Route("/users", users.users),
    Route("/users/{name}/remove", users.preview_remove, methods=["GET"]),
    Route("/users/{name}/remove", users.remove, methods=["POST"]),
    Route("/users/{name}/tokens/{token}/revoke", users.preview_revoke, methods=["GET"]),
    Route("/users/{name}/tokens/{token}/revoke", users.revoke, methods=["POST"]),
    Route("/acls", acls.acls, methods=["GET"]),
    Route("/acls", acls.add, methods=["POST"]),
    Route("/acls/remove", acls.preview, methods=["GET"]),
    Route("/acls/remove", acls.remove, methods=["POST"]),
    Route("/quotas", quotas.quotas, methods=["GET"]),
    Route("/quotas", quotas.put, methods=["POST"]),
    Route("/quotas/remove", quotas.preview, methods=["GET"]),
    Route("/quotas/remove", quotas.remove, methods=["POST"]),
    Route("/audit", overview.audit),
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
