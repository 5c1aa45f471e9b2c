"""``dledger quotas``: how much each principal may use, and the group in all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from dledger.cli.commands import CommandGroup
from dledger.cli.common import group_options, json_option, open_client, print_json, print_table
from dledger.config import nearest
from dledger.errors import ConfigError
from dledger.protocol.messages.catalog_commands import WHOLE_GROUP
from dledger.types import ALL_USERS

UNITS: Final = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9,
    "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
}  # fmt: skip
BYTES: Final = ("bytes_in", "bytes_out")
PRINCIPAL_QUOTAS: Final = (*BYTES, "requests", "connections")
GROUP_LIMITS: Final = ("topics", "partitions", "producers", "consumer_groups")


class Size(click.ParamType[int]):
    """A number of bytes, with a unit or without one."""

    name = "SIZE"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([0-9][0-9_]*(?:\.[0-9]+)?) *([A-Za-z]*)", value)
        if found is None or found[2].lower() not in UNITS:
            self.fail(f"{value!r} is no size: write bytes, or a unit as in 500KB or 10MiB")
        return int(float(found[1]) * UNITS[found[2].lower()])


class Limit(click.ParamType[tuple[str, int]]):
    """``NAME=NUMBER`` of a limit of the group."""

    name = "NAME=NUMBER"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, int]:
        name, equals, number = value.partition("=")
        name = name.replace("-", "_")
        if name not in GROUP_LIMITS:
            known = ", ".join(GROUP_LIMITS)
            self.fail(f"{name!r} is no limit{nearest(name, [*GROUP_LIMITS])}; there are {known}")
        if not equals or not number.replace("_", "").isdigit():
            self.fail(f"{value!r}: write {name}=NUMBER")
        return name, int(number)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(f"{n}=") for n in GROUP_LIMITS if n.startswith(incomplete)]


@click.group(cls=CommandGroup)
def quotas() -> None:
    """Quotas of principals, and limits of the group.

    A principal's quotas count at each node, over all its connections: bytes of appends and of
    fetched records in a second, requests in a second, connections. Above a rate the node takes no
    more requests for a while, and says so to the client; nothing is lost.
    """


@quotas.command("set")
@click.argument("principal", required=False)
@click.option("--default", "is_default", is_flag=True, help="For each user without one of its own.")
@click.option("--bytes-in", type=Size(), help="Bytes of appends in a second.")
@click.option("--bytes-out", type=Size(), help="Bytes of fetched records in a second.")
@click.option("--requests", type=int, metavar="NUMBER", help="Requests in a second.")
@click.option("--connections", type=int, metavar="NUMBER", help="Connections to each node.")
@click.option(
    "--group-limit",
    "limits",
    type=Limit(),
    multiple=True,
    help=f"How many there may be in all: {', '.join(GROUP_LIMITS)}.",
)
@group_options
def set_quotas(
    principal: str | None,
    is_default: bool,
    limits: Sequence[tuple[str, int]],
    bootstrap: str,
    timeout: float,
    **given: int | None,
) -> None:
    """Set quotas of PRINCIPAL (as User:alice), of all users, or limits of the group. Those that are
    not named stay."""
    values = {name: value for name, value in given.items() if value is not None}
    entity = _entity(principal, is_default, wanted=bool(values) or not limits)
    if entity and not values:
        raise ConfigError(f"which quota of {entity}? As in: --bytes-in 10MiB --requests 500")
    with open_client(bootstrap, timeout) as client:
        if entity:
            _say(entity, client.set_quotas(entity, values))
        if limits:
            _say(WHOLE_GROUP, client.set_quotas(WHOLE_GROUP, dict(limits)))


def _entity(principal: str | None, is_default: bool, *, wanted: bool) -> str:
    """Whose quotas are meant; empty: nobody's."""
    if principal and is_default:
        raise ConfigError(f"{principal} and --default: name one of them")
    if wanted and not principal and not is_default:
        raise ConfigError("whose quotas? Name the principal, as User:alice, or --default")
    return ALL_USERS if is_default else principal or ""


@quotas.command("list")
@group_options
@json_option
def list_quotas(bootstrap: str, timeout: float, as_json: bool) -> None:
    """List the quotas that are set."""
    with open_client(bootstrap, timeout) as client:
        found = client.quotas()
    if as_json:
        print_json(found)
        return
    users = [one for one in found if one != WHOLE_GROUP]
    if users or not found:
        rows = [[one, *(_shown(n, found[one].get(n)) for n in PRINCIPAL_QUOTAS)] for one in users]
        print_table(["principal", "bytes in/s", "bytes out/s", "requests/s", "connections"], rows)
    for name, value in found.get(WHOLE_GROUP, {}).items():
        click.echo(f"at most {value} {name.replace('_', ' ')} in the group")


@quotas.command("remove")
@click.argument("principal", required=False)
@click.option("--default", "is_default", is_flag=True, help="Those of all users.")
@click.option(
    "--quota",
    "names",
    type=click.Choice([name.replace("_", "-") for name in PRINCIPAL_QUOTAS]),
    multiple=True,
    help="This one only.",
)
@click.option(
    "--group-limit", "limits", type=click.Choice(GROUP_LIMITS), multiple=True, help="Of the group."
)
@group_options
def remove_quotas(
    principal: str | None,
    is_default: bool,
    names: Sequence[str],
    limits: Sequence[str],
    bootstrap: str,
    timeout: float,
) -> None:
    """Remove all quotas of PRINCIPAL, or those that are named, or limits of the group: then the
    settings count again."""
    entity = _entity(principal, is_default, wanted=bool(names) or not limits)
    with open_client(bootstrap, timeout) as client:
        if entity:
            known = [one for one in client.quotas() if one != WHOLE_GROUP]
            if entity not in known:
                text = f"; there are quotas of {', '.join(known)}" if known else ""
                raise ConfigError(f"{entity} has no quotas{nearest(entity, known)}{text}")
            _say(entity, client.remove_quotas(entity, [one.replace("-", "_") for one in names]))
        if limits:
            _say(WHOLE_GROUP, client.remove_quotas(WHOLE_GROUP, limits))


def _shown(name: str, value: int | None) -> str:
    """A quota as it can be given again."""
    if value is None:
        return "-"
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if name in BYTES and value % size == 0:
            return f"{value // size}{unit}"
    return str(value)


def _say(entity: str, quotas: dict[str, int]) -> None:
    who = {ALL_USERS: "each user", WHOLE_GROUP: "the group"}.get(entity, entity)
    has = ", ".join(f"{name.replace('_', ' ')} {_shown(name, n)}" for name, n in quotas.items())
    click.echo(f"{who} has {has}" if has else f"{who} has no quotas any more")
