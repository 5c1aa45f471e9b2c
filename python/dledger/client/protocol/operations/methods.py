"""Operations as methods of the clients: each is declared once, with its docstring, and carried out
by either client."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, overload

from dledger.client.protocol.client_state import ClientState, Operation, T
from dledger.client.protocol.operations import (
    access,
    consumer_groups,
    dynamic_settings,
    group_state,
    messages,
    nodes,
    offsets_by_time,
    shared_offsets,
    splitting,
    transaction_requests,
    users,
)
from dledger.client.protocol.operations import offsets as ends
from dledger.client.protocol.operations import quotas as shares
from dledger.client.protocol.operations import schemas as columns
from dledger.client.protocol.operations import topics as names

P = ParamSpec("P")


class Awaiting(Protocol):
    """A client whose calls are awaited."""

    async def _run(self, operation: Operation[T]) -> T:
        """Carry out an operation."""


class Method(Generic[P, T]):
    """An operation as a method: a function of the client's state and the arguments of the call.
    A class of clients has a function in its place, see `Operations`."""

    def __init__(self, operation: Callable[Concatenate[ClientState, P], Operation[T]]) -> None:
        self._operation = operation

    @overload
    def __get__(self, client: Awaiting, _: object) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: object, _: object) -> Callable[P, T]: ...
    def __get__(self, client: object, _: object) -> Any:
        raise NotImplementedError

    def function(self, awaited: bool) -> Callable[..., Any]:
        """The function of a class of clients. Its name and docstring are those of the operation,
        and so is its signature: ``self`` where that has the client's state, and the result itself
        where that has an `Operation`."""
        operation = self._operation

        def call(self: Operations, /, *args: Any, **named: Any) -> Any:
            return self._run(operation(self.core, *args, **named))

        async def call_async(self: Operations, /, *args: Any, **named: Any) -> Any:
            return await self._run(operation(self.core, *args, **named))

        function: Any = update_wrapper(call_async if awaited else call, operation)
        declared = inspect.signature(operation)
        _, *arguments = declared.parameters.values()
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        result = str(declared.return_annotation).removeprefix("Operation[").removesuffix("]")
        function.__signature__ = inspect.Signature([own, *arguments], return_annotation=result)
        made: Callable[..., Any] = function
        return made


class Operations(ABC):
    """Questions and commands of both clients, each with one result. They are awaited where `_run`
    is."""

    core: ClientState

    @abstractmethod
    def _run(self, operation: Operation[Any]) -> Any:
        """Carry out an operation."""

    @property
    def throttled_ms(self) -> int:
        """For how many milliseconds in all nodes have taken no requests of this client, because its
        principal was over a quota; 0: never."""
        return self.core.throttled_ms

    def __init_subclass__(cls) -> None:
        if Operations in cls.__bases__:  # not of a program's own kind of client
            awaited = inspect.iscoroutinefunction(cls._run)
            for name, method in vars(Operations).items():
                if isinstance(method, Method):
                    setattr(cls, name, method.function(awaited))

    create_topic = Method(names.create_topic)
    add_partitions = Method(names.add_partitions)
    delete_topic = Method(names.delete_topic)
    topics = Method(names.topics)
    topic = Method(names.topic)
    known_topic = Method(names.known_topic)
    described = Method(names.described)

    schemas = Method(columns.schemas)
    schema = Method(columns.schema)
    evolve_schema = Method(columns.evolve_schema)
    agree_schema = Method(columns.agree_schema)

    offsets = Method(ends.offsets)
    begin_offsets = Method(ends.begin_offsets)
    end_offsets = Method(ends.end_offsets)
    offsets_for_times = Method(offsets_by_time.offsets_for_times)
    offsets_at = Method(offsets_by_time.offsets_at)
    shared_offsets = Method(shared_offsets.shared_offsets)
    split = Method(splitting.split)
    split_many = Method(splitting.split_many)
    stored_bytes = Method(splitting.stored_bytes)

    partitions = Method(group_state.partitions)
    commits = Method(group_state.commits)
    entries = Method(group_state.entries)

    commit_offsets = Method(consumer_groups.commit_offsets)
    hold_retention = Method(consumer_groups.hold_retention)
    delete_group = Method(consumer_groups.delete_group)
    group = Method(consumer_groups.group)
    groups = Method(consumer_groups.groups)
    lag = Method(group_state.lag)
    members = Method(group_state.members)

    lineage = Method(nodes.lineage)
    status = Method(nodes.status)
    node_status = Method(nodes.node_status)
    transfer = Method(nodes.transfer)
    admit = Method(nodes.admit)
    add_member = Method(nodes.add_member)
    readdress_member = Method(nodes.readdress_member)
    label_member = Method(nodes.label_member)
    promote_member = Method(nodes.promote_member)
    demote_member = Method(nodes.demote_member)
    remove_member = Method(nodes.remove_member)
    enforce_secret = Method(nodes.enforce_secret)
    upgrade_group = Method(nodes.upgrade_group)

    quotas = Method(shares.quotas)
    set_quotas = Method(shares.set_quotas)
    remove_quotas = Method(shares.remove_quotas)
    settings = Method(dynamic_settings.settings)
    set_settings = Method(dynamic_settings.set_settings)
    reset_settings = Method(dynamic_settings.reset_settings)
    settings_history = Method(dynamic_settings.settings_history)
    add_user = Method(users.add_user)
    rotate_user = Method(users.rotate_user)
    remove_user = Method(users.remove_user)
    issue_token = Method(users.issue_token)
    revoke_token = Method(users.revoke_token)
    users = Method(users.users)
    acls = Method(access.acls)
    add_acls = Method(access.add_acls)
    remove_acls = Method(access.remove_acls)
    acl_decision = Method(access.acl_decision)

    commit_transaction = Method(transaction_requests.commit_transaction)
    abort_transaction = Method(transaction_requests.abort_transaction)

    put_message = Method(messages.put_message)
    put_messages = Method(messages.put_messages)
    view_message = Method(messages.view_message)
    get_message = Method(messages.get_message)
    query_message = Method(messages.query_message)
