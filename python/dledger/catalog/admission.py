"""The check of a leader before it writes a command into the log: it may refuse one with the answer
that applying it would give.

`malformed` reads the command alone; applying begins with it, too. `refused` reads the state as
well, so it is asked only when no other command is on its way that could change what it finds. It
consists of checks that applying itself makes: a command that both let pass is decided when it is
applied, and logs that hold refused commands mean what they meant.
"""

from __future__ import annotations

from dledger.catalog.access.acls import malformed_rules
from dledger.catalog.access.quotas import malformed_quotas
from dledger.catalog.access.users import malformed_user
from dledger.catalog.clients.group_members import malformed_join
from dledger.catalog.clients.transactions import malformed_commit, malformed_stage
from dledger.catalog.dynamic_settings import malformed_settings
from dledger.catalog.results import CommandResult
from dledger.catalog.state import CatalogState
from dledger.catalog.topics.topics import malformed_topic
from dledger.config import check_name
from dledger.errors import ConfigError
from dledger.protocol.messages.catalog_commands import (
    AddAcls,
    AddPartitions,
    AlterQuotas,
    AlterSettings,
    Command,
    CommitConsumed,
    CommitConsumedTransaction,
    CommitOffsets,
    CommitProgress,
    CommitTransaction,
    CommitWrite,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    HoldRetention,
    InitProducer,
    JoinGroup,
    OpenStage,
    RemoveAcls,
)
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.user_commands import IssueToken, RemoveUser, SetUser


def malformed(command: Command) -> CommandResult | None:
    """Why no state could take this command, or None."""
    text = ""
    match command:
        case CreateTopic():
            text = malformed_topic(command)
        case OpenStage():
            text = malformed_stage(command)
        case CommitTransaction() | CommitWrite() | CommitConsumedTransaction():
            text = malformed_commit(command)
        case InitProducer():
            text = _wrong_name("producer", command.producer_name)
        case JoinGroup():
            text = _wrong_name("consumer group", command.consumer_group) or malformed_join(command)
        case AlterQuotas():
            text = malformed_quotas(command)
        case AlterSettings():
            text = malformed_settings(command)
        case CommitOffsets() | CommitProgress() | CommitConsumed() | HoldRetention():
            text = _wrong_name("consumer group", command.consumer_group)
        case SetUser() | RemoveUser() | IssueToken():
            text = malformed_user(command)
        case AddAcls() | RemoveAcls():
            text = malformed_rules(command)
    return CommandResult(Code.MALFORMED, text) if text else None


def _wrong_name(what: str, name: str) -> str:
    try:
        check_name(what, name)
    except ConfigError as error:
        return str(error)
    return ""


def refused(catalog: CatalogState, command: Command) -> CommandResult | None:
    """Why the present state cannot take this command, or None."""
    match command:
        case CreateTopic():
            return catalog.topics_state.taken(command)
        case AddPartitions():
            return catalog.topics_state.no_growth(command)
        case DeleteTopic():
            return catalog.topics_state.no_topic(command.name)
        case CommitOffsets() | CommitProgress() | CommitConsumed():
            return catalog.consumer_groups.no_partition(command)
        case DeleteGroup():
            return catalog.consumer_groups.in_use(command.consumer_group)
        case SetUser() | RemoveUser() | IssueToken():
            return catalog.refuses_user(command)
        case AddAcls() | RemoveAcls():
            return catalog.acls.refusal(command)
        case AlterSettings():
            return catalog.topics_state.no_setting(command) or catalog.settings.refusal(command)
    return None
