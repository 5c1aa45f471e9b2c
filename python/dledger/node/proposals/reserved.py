"""What only nodes do: the topic of the audit log, and the producers that write it."""

from __future__ import annotations

from typing import Final

from dledger.catalog.access.acls import ALTER, CREATE, DELETE, is_trusted
from dledger.catalog.results import CommandResult
from dledger.config import AUDIT_TOPIC
from dledger.protocol.messages.catalog_commands import (
    AddPartitions,
    Command,
    CreateTopic,
    DeleteTopic,
    EvolveSchema,
    InitProducer,
)
from dledger.protocol.messages.codes import Code
from dledger.types import Principal

PRODUCERS: Final = f"{AUDIT_TOPIC}."
"""What the names of the nodes' producers begin with."""


def refused_name(command: Command, principal: Principal) -> CommandResult | None:
    """Why a client's command is not written: it is about what is the nodes' own. None where it is
    not. To delete the topic is the owner's right, or that of who shows a node's certificate."""
    match command:
        case CreateTopic(name=name):
            done = CREATE
        case DeleteTopic(name=name):
            done = DELETE
        case AddPartitions(name=name) | EvolveSchema(topic=name):
            done = ALTER
        case InitProducer(producer_name=name) if name.startswith(PRODUCERS):
            text = f"producers whose names begin with {PRODUCERS} are the nodes' own"
            return CommandResult(Code.ACCESS_DENIED, text)
        case _:
            return None
    if name != AUDIT_TOPIC or (done == DELETE and is_trusted(principal)):
        return None
    whose = (
        "only the group's owner may, or a command that shows a node's certificate"
        if done == DELETE
        else "nodes with audit_topic=true make and write it by themselves"
    )
    text = f"{principal} may not {done} topic {AUDIT_TOPIC}, which is the audit log's: {whose}"
    return CommandResult(Code.ACCESS_DENIED, text)


REFUSED_APPEND: Final = CommandResult(
    Code.ACCESS_DENIED,
    f"topic {AUDIT_TOPIC} is the audit log's: nodes alone write it",
)
