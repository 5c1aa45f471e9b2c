"""Operations on consumer groups, as generators."""

from __future__ import annotations

from collections.abc import Mapping

from dledger.client.protocol.client_state import ClientState, Operation, Request
from dledger.client.protocol.operations.requests import execute
from dledger.client.protocol.results import GroupOffsets
from dledger.client.protocol.routing import CallPolicy
from dledger.config import check_name
from dledger.protocol.messages.catalog_commands import CommitProgress, DeleteGroup, HoldRetention
from dledger.protocol.messages.client import GroupRequest


def commit_offsets(
    _: ClientState,
    group: str,
    offsets: Mapping[str, Mapping[int, int]],
    *,
    log_ids: Mapping[str, str] | None = None,
    reset: bool = False,
) -> Operation[None]:
    """The group has processed everything below these offsets: topic -> partition -> offset.

    Args:
        log_ids: of topics (topic -> log id); one that is another topic by now is refused.
        reset: an operator lets the group go on there, which goes into the nodes' audit log.

    Raises:
        TopicNotFound: a topic or partition is not there, or another one; nothing was noted.
        OffsetOutOfRange: an offset is behind the end of its partition; nothing was noted.
    """
    check_name("consumer group", group)
    plain = {
        name: {int(p): int(o) for p, o in partitions.items()}
        for name, partitions in offsets.items()
    }
    command = CommitProgress(consumer_group=group, offsets=plain, log_ids=dict(log_ids or {}))
    yield from execute(command, f"commit offsets of group {group!r}", reset=reset)


def hold_retention(_: ClientState, group: str, hold: bool = True) -> Operation[None]:
    """Records that the group has not processed are kept over their time, up to the nodes' settings
    ``hold_retention_ms`` and ``hold_retention_bytes``; with False no longer. Only partitions of
    which it has committed an offset."""
    check_name("consumer group", group)
    what = f"{'hold back' if hold else 'let go'} retention for group {group!r}"
    yield from execute(HoldRetention(consumer_group=group, hold=hold), what)


def delete_group(_: ClientState, group: str) -> Operation[None]:
    """Forget a consumer group: its offsets, and that it held retention back. One that is not there
    is no error; a query that runs in it makes it anew with its next micro-batch."""
    check_name("consumer group", group)
    yield from execute(DeleteGroup(consumer_group=group), f"delete group {group!r}")


def group(_: ClientState, name: str) -> Operation[GroupOffsets]:
    """The offsets that a consumer group has processed; empty for one that committed none."""
    check_name("consumer group", name)
    answer, _payload = yield Request(
        GroupRequest(consumer_group=name), CallPolicy(what=f"group {name!r}")
    )
    return GroupOffsets(name, answer.offsets)


def groups(_: ClientState) -> Operation[list[str]]:
    """Names of all consumer groups."""
    answer, _payload = yield Request(GroupRequest(), CallPolicy(what="list groups"))
    return sorted(answer.groups)
