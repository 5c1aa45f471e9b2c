"""The purpose of a group's log: the part of a node that a group's ``commit_log`` decides.

`Application` is that of a group with topics: the catalog does all there is to do, and messages of a
RocketMQ commit log are refused. `dledger.node.rocketmq.dledger_commit_log.DLedgerCommitLog` is the
other one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dledger.net import Connection
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.rocketmq import (
    GetMessageRequest,
    GetMessageResponse,
    PutMessageRequest,
    PutMessageResponse,
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
    ViewMessageResponse,
)
from dledger.types import Index

Handler = Callable[[Connection, int, Any, memoryview], None]
"""Answers one kind of request: ``handler(connection, request_id, request, payload)``."""


class Application:
    """The calls that a node makes to the part that its group's ``commit_log`` decides; all of them
    on the node's loop."""

    def handlers(self) -> dict[type[Any], Handler]:
        """The handler of each request, in place of the node's own or besides it."""
        text = (
            "this group keeps topics; messages go into a group that was made with "
            "commit_log='rocketmq'"
        )
        return {
            PutMessageRequest: refusing(PutMessageResponse, text),
            ViewMessageRequest: refusing(ViewMessageResponse, text),
            GetMessageRequest: refusing(GetMessageResponse, text),
            QueryMessageRequest: refusing(QueryMessageResponse, text),
        }

    @property
    def waiting(self) -> int:
        """Writes that are not answered yet."""
        return 0

    def start(self, committed: Index) -> None:
        """The node serves from now on; everything up to this entry is committed."""

    def fail_all(self, code: Code) -> None:
        """The node stops: every proposal gets an answer. ``code`` is an indefinite one."""

    async def retain_old(self, now_ms: int) -> bool:
        """Let go of the expired files before the log at ``now_ms`` since 1970. Whether some are
        left there: then the log stays whole."""
        return False

    async def stop(self, *, clean: bool) -> None:
        """Close the open files. The log has been written by then, and is durable where
        ``clean``."""


def refusing(answer: type[Any], text: str) -> Handler:
    """A handler that answers UNSUPPORTED."""

    def refuse(connection: Connection, request_id: int, request: Any, payload: memoryview) -> None:
        connection.send(answer(code=Code.UNSUPPORTED, message=text), request_id)

    return refuse
