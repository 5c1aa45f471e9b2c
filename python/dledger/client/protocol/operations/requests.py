"""The building blocks of operations: a command that is committed, and a question about the
group."""

from __future__ import annotations

from typing import Any, Final

from dledger.client.protocol.client_state import SERVER_MS, ClientState, Operation, Request
from dledger.client.protocol.routing import CallPolicy
from dledger.errors import Unavailable
from dledger.protocol.messages.catalog_commands import Command
from dledger.protocol.messages.client import ExecuteRequest, MetadataRequest, MetadataResponse

METADATA_TRIES: Final = 20


def execute(
    command: Command, what: str, repeatable: bool = True, *, reset: bool = False, since: str = ""
) -> Operation[dict[str, Any]]:
    """Commit a command, which nodes know from the release ``since`` on; its result."""
    request = ExecuteRequest(command=command, timeout_ms=SERVER_MS, reset=reset)
    policy = CallPolicy(what=what, writes=True, repeatable=repeatable, since=since)
    answer, _ = yield Request(request, policy)
    result: dict[str, Any] = answer.result
    return result


def metadata(core: ClientState, request: MetadataRequest, what: str) -> Operation[MetadataResponse]:
    """The leader's view, which has every topic that was acknowledged.

    Raises:
        Unavailable: so many nodes have answered, and each of them named another one as the leader.
    """
    answer: MetadataResponse
    for tries in range(METADATA_TRIES):
        # The first node asked says which node leads, and that may be itself.
        answer, _payload = yield Request(request, CallPolicy(what=what, anybody=not tries))
        core.routes.learned(answer)
        if answer.leader_id == answer.node_id:
            return answer
    raise Unavailable(
        f"{what}: no leader answered in {METADATA_TRIES} tries, the last one named "
        f"{answer.leader_id or 'none'}: does the leader change all the time? See 'dledger status'"
    )
