"""The operation that tells how far a copy of a group has the records of that group."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.client.protocol.client_state import ClientState, Operation, Request
from dledger.client.protocol.routing import CallPolicy
from dledger.config import check_name
from dledger.protocol.messages.shared_offsets import SharedOffsetsRequest, SharedOffsetsResponse


def shared_offsets(
    core: ClientState, group_id: str, topics: Sequence[str]
) -> Operation[SharedOffsetsResponse]:
    """For every partition of these topics, as far as they are there, the offset behind the last
    record that this group has from the group ``group_id``, from a backup or the last disk of which
    it was made (`lineage`); -1 where retention has deleted the records around it. With the topics'
    log ids.

    Raises:
        WrongGroup: this group is no copy of that one.
    """
    for name in topics:
        check_name("topic", name)
    request = SharedOffsetsRequest(group_id=group_id, topics=tuple(topics))
    terms = CallPolicy(what=f"offsets shared with group {group_id}", since="0.2.0")
    answer: SharedOffsetsResponse
    answer, _ = yield Request(request, terms)
    return answer
