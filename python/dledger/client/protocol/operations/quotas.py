"""Operations on the quotas of principals and of the group, as generators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dledger.client.protocol.client_state import ClientState, Operation
from dledger.client.protocol.operations.group_state import list_rows
from dledger.client.protocol.operations.requests import execute
from dledger.protocol.messages.catalog_commands import QUOTA_UNSET, AlterQuotas
from dledger.protocol.messages.client import Listing


def quotas(_: ClientState) -> Operation[dict[str, dict[str, int]]]:
    """The quotas that are set: entity -> name -> value, as `set_quotas` has them."""
    rows = yield from list_rows(Listing.QUOTAS, "quotas")
    return {row["entity"]: row["quotas"] for row in rows}


def set_quotas(_: ClientState, entity: str, quotas: Mapping[str, int]) -> Operation[dict[str, int]]:
    """Set quotas of one entity, from now on, at every node; its others stay. Returns all that it
    has.

    Args:
        entity: a principal, such as ``User:alice``; ``User:*`` for each user that has none of its
            own by that name; ``Group`` for limits of the group in all.
        quotas: of a principal, at each node: ``bytes_in`` (of appends, in a second), ``bytes_out``
            (of fetched records, in a second), ``requests`` (in a second), ``connections``. Of the
            group: ``topics``, ``partitions``, ``producers``, ``consumer_groups``.

    Raises:
        ConfigError: no such entity or quota, or a value below 1 or out of range.
    """
    result = yield from execute(
        AlterQuotas(entity=entity, quotas=dict(quotas)), f"set quotas of {entity}"
    )
    left: dict[str, int] = result["quotas"]
    return left


def remove_quotas(
    _: ClientState, entity: str, names: Sequence[str] = ()
) -> Operation[dict[str, int]]:
    """Take quotas of one entity away: those that are named, else all. Returns what is left; one
    that is not set is no error.

    Raises:
        ConfigError: no such entity or quota.
    """
    command = AlterQuotas(entity=entity, quotas=dict.fromkeys(names, QUOTA_UNSET))
    result = yield from execute(command, f"remove quotas of {entity}")
    left: dict[str, int] = result["quotas"]
    return left
