"""Questions and commands with one result, of the blocking client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
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


def blocking(operation: Declared[P, T]) -> Callable[Concatenate[Any, P], T]:
    """An operation as a method that waits for its result."""

    def method(self: Operations, /, *args: P.args, **named: P.kwargs) -> T:
        return self._run(operation(self.core, *args, **named))

    return as_method(method, operation)


@checked
class Operations(ABC):
    """Questions and commands of `dledger.client.Client`, each with one result."""

    core: ClientState

    @abstractmethod
    def _run(self, operation: Operation[T]) -> T:
        """Carry out an operation."""

    create_topic = blocking(names.create_topic)
    add_partitions = blocking(names.add_partitions)
    delete_topic = blocking(names.delete_topic)
    topics = blocking(names.topics)
    topic = blocking(names.topic)
    known_topic = blocking(names.known_topic)
    described = blocking(names.described)

    schemas = blocking(columns.schemas)
    schema = blocking(columns.schema)
    evolve_schema = blocking(columns.evolve_schema)

    offsets = blocking(ends.offsets)
    begin_offsets = blocking(ends.begin_offsets)
    end_offsets = blocking(ends.end_offsets)
    offsets_for_times = blocking(offsets_by_time.offsets_for_times)
    offsets_at = blocking(offsets_by_time.offsets_at)
    split = blocking(splitting.split)
    split_many = blocking(splitting.split_many)

    partitions = blocking(group_state.partitions)
    commits = blocking(group_state.commits)
    entries = blocking(group_state.entries)

    commit_offsets = blocking(consumer_groups.commit_offsets)
    hold_retention = blocking(consumer_groups.hold_retention)
    delete_group = blocking(consumer_groups.delete_group)
    group = blocking(consumer_groups.group)
    groups = blocking(consumer_groups.groups)
    lag = blocking(group_state.lag)

    lineage = blocking(nodes.lineage)
    status = blocking(nodes.status)
    transfer = blocking(nodes.transfer)
    admit = blocking(nodes.admit)
    enforce_secret = blocking(nodes.enforce_secret)

    commit_transaction = blocking(transaction_requests.commit_transaction)
    abort_transaction = blocking(transaction_requests.abort_transaction)

    put_message = blocking(messages.put_message)
    put_messages = blocking(messages.put_messages)
    view_message = blocking(messages.view_message)
    get_message = blocking(messages.get_message)
    query_message = blocking(messages.query_message)
