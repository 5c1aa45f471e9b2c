"""DLedgerCommitLog: a group's log as the commit log of a RocketMQ broker.

Each message is an entry of its own, so the bytes of the group's data files are those that a broker
in DLedger mode writes: header, message, header, message, padding (-1, size) at a file's end.
RocketMQ's own blank (size, magic) stands only in files of a plain commit log, never here.

- put: `dledger.node.rocketmq.puts` settles physical and queue offsets, and writes them into the
  message.
- commit: the group's own protocol. A message that is acknowledged is on the disks of a quorum.
- reput: `dledger.node.rocketmq.reput_service` puts committed messages into this node's consume
  queues and index.
- get: `dledger.node.rocketmq.gets` finds committed messages by place, queue offset or key, and no
  others.

A log that goes on behind an old plain commit log (`dledger.rocketmq.upgrade.old_commit_log`) begins
with an entry that has the queue offsets of that one, and has its messages in queues and index; a
get by a place in front of the log reads there.

Roles change without any of this being started or stopped: a node that leads no more refuses puts,
one that leads takes them when it has applied all that was committed before, and every node
dispatches what is committed.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from dledger.net import Connection
from dledger.node.application import Application, Handler, refusing
from dledger.node.context import NodeContext
from dledger.node.handlers.offsets import LinearizableReads
from dledger.node.proposals.proposal_queue import ProposalQueue
from dledger.node.rocketmq.gets import ANSWERS, Gets
from dledger.node.rocketmq.puts import Puts
from dledger.node.rocketmq.reput_service import NodeReputService
from dledger.protocol.messages.catalog_commands import (
    AddAcls,
    AlterSettings,
    RemoveAcls,
    UpgradeGroup,
)
from dledger.protocol.messages.client import (
    AppendRequest,
    AppendResponse,
    ExecuteRequest,
    ExecuteResponse,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.rocketmq import PutMessageRequest
from dledger.storage.recovery.open_files import StoreSettings
from dledger.types import Index

OF_ANY_GROUP: Final = (AddAcls, RemoveAcls, UpgradeGroup, AlterSettings)
"""Commands that have nothing to do with topics."""


class DLedgerCommitLog(Application):
    """The application of a group with ``commit_log="rocketmq"``."""

    def __init__(
        self, context: NodeContext, proposals: ProposalQueue, *, linearizable: LinearizableReads
    ) -> None:
        self._catalog = context.catalog
        self._proposals = proposals
        self._settings = StoreSettings.of(context.group, context.node)
        self.puts = Puts(context, proposals)
        context.status.add(self._status)
        self.reput = NodeReputService(context)
        self.gets = Gets(context, linearizable, reput=self.reput)

    def handlers(self) -> dict[type[Any], Handler]:
        """Messages are put and got; there are no topics to create or append to."""
        text = (
            "this group keeps a RocketMQ commit log, which has no topics of its own: put "
            "messages into it"
        )
        return {
            PutMessageRequest: self.puts.put,
            **dict.fromkeys(ANSWERS, self.gets.ask),
            AppendRequest: refusing(AppendResponse, text),
            ExecuteRequest: partial(self._execute, refusing(ExecuteResponse, text)),
        }

    def _execute(
        self,
        refuse: Handler,
        connection: Connection,
        request_id: int,
        request: ExecuteRequest,
        payload: memoryview,
    ) -> None:
        if isinstance(request.command, OF_ANY_GROUP):
            self._proposals.execute(connection, request_id, request)
        else:
            refuse(connection, request_id, request, payload)

    @property
    def waiting(self) -> int:
        return self.puts.waiting

    def start(self, committed: Index) -> None:
        self.reput.start(committed)

    def fail_all(self, code: Code) -> None:
        self.puts.fail_all(code)

    async def retain_old(self, now_ms: int) -> bool:
        return await self.reput.retain_old(self._settings, now_ms)

    async def stop(self, *, clean: bool) -> None:
        await self.reput.stop(clean=clean)

    def _status(self) -> dict[str, Any]:
        queues = self._catalog.queues.next
        return {"pending_puts": self.puts.waiting, "message_queues": len(queues)}
