"""Questions and commands with one result, of the asyncio client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate

from dledger.client.protocol import (
    consumer_groups,
    group_state,
    messages,
    nodes,
    offsets_by_time,
    splitting,
    transaction_requests,
)
from dledger.client.protocol import offsets as ends
from dledger.client.protocol import schemas as columns
from dledger.client.protocol import topics as names
from dledger.client.protocol.arguments import checked
from dledger.client.protocol.client_state import ClientState, Operation, T
from dledger.client.protocol.operations import Declared, P, as_method


def awaited(
    operation: Declared[P, T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """An operation as a method that is awaited."""

    async def method(self: AsyncOperations, /, *args: P.args, **named: P.kwargs) -> T:
        return await self._run(operation(self.core, *args, **named))

    return as_method(method, operation)


@checked
class AsyncOperations(ABC):
    """Questions and commands of `dledger.client.AsyncClient`, each with one result."""

    core: ClientState

    @abstractmethod
    async def _run(self, operation: Operation[T]) -> T:
        """Carry out an operation."""

    create_topic = awaited(names.create_topic)
    add_partitions = awaited(names.add_partitions)
    delete_topic = awaited(names.delete_topic)
    topics = awaited(names.topics)
    topic = awaited(names.topic)
    known_topic = awaited(names.known_topic)
    described = awaited(names.described)

    schemas = awaited(columns.schemas)
    schema = awaited(columns.schema)
    evolve_schema = awaited(columns.evolve_schema)

    offsets = awaited(ends.offsets)
    begin_offsets = awaited(ends.begin_offsets)
    end_offsets = awaited(ends.end_offsets)
    offsets_for_times = awaited(offsets_by_time.offsets_for_times)
    offsets_at = awaited(offsets_by_time.offsets_at)
    split = awaited(splitting.split)
    split_many = awaited(splitting.split_many)

    partitions = awaited(group_state.partitions)
    commits = awaited(group_state.commits)
    entries = awaited(group_state.entries)

    commit_offsets = awaited(consumer_groups.commit_offsets)
    hold_retention = awaited(consumer_groups.hold_retention)
    delete_group = awaited(consumer_groups.delete_group)
    group = awaited(consumer_groups.group)
    groups = awaited(consumer_groups.groups)
    lag = awaited(group_state.lag)

    lineage = awaited(nodes.lineage)
    status = awaited(nodes.status)
    transfer = awaited(nodes.transfer)
    admit = awaited(nodes.admit)
    enforce_secret = awaited(nodes.enforce_secret)

    commit_transaction = awaited(transaction_requests.commit_transaction)
    abort_transaction = awaited(transaction_requests.abort_transaction)

    put_message = awaited(messages.put_message)
    put_messages = awaited(messages.put_messages)
    view_message = awaited(messages.view_message)
    get_message = awaited(messages.get_message)
    query_message = awaited(messages.query_message)
