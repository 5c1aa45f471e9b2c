"""``dledger acl``: the rules of what each principal may do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from dledger.cli.commands import CommandGroup
from dledger.cli.common import F, group_options, json_option, open_client, print_json, print_rows

_FIELDS: Final = ("effect", "principal", "operation", "resource_type", "resource")
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completed(names: Callable[[click.Context], list[str]]) -> Complete:
    """Words that the shell completes."""
    return lambda ctx, _, begun: [
        CompletionItem(name) for name in names(ctx) if name.startswith(begun)
    ]


def _operations(ctx: click.Context) -> list[str]:
    from dledger.catalog.access.acls import ALL, OPERATIONS

    return [*dict.fromkeys(name for names in OPERATIONS.values() for name in names), ALL]


def _types(ctx: click.Context) -> list[str]:
    from dledger.catalog.access.acls import OPERATIONS

    wanted = ctx.params.get("operation")
    return [name for name, known in OPERATIONS.items() if wanted in (*known, "all", None)]


def asked_arguments(function: F) -> F:
    """PRINCIPAL OPERATION RESOURCE [NAME]."""
    for argument in (
        click.argument("resource", metavar="[NAME]", required=False, default=""),
        click.argument("resource_type", metavar="RESOURCE", shell_complete=_completed(_types)),
        click.argument("operation", shell_complete=_completed(_operations)),
        click.argument("principal"),
    ):
        function = argument(function)
    return function


def rule_options(function: F) -> F:
    """allow|deny PRINCIPAL OPERATION RESOURCE [NAME], and ``--force``."""
    forced = click.option(
        "--force", is_flag=True, help="Also where nobody could change the rules any more."
    )
    effect = click.argument("effect", metavar="allow|deny", type=click.Choice(("allow", "deny")))
    return effect(asked_arguments(forced(group_options(function))))


@click.group(cls=CommandGroup)
def acl() -> None:
    """What each principal may do: rules that allow or deny it.

    Without a rule, everybody who is admitted may do everything. From the first one on, what no rule
    allows is denied; that one has to be: dledger acl add allow User:NAME admin cluster.

    A PRINCIPAL is User:NAME, or User:* for everybody. An OPERATION is read, write, create, delete,
    alter, describe or admin, or all. A RESOURCE is topic, group or producer with its NAME, as in
    orders, or the beginning of names, as in 'orders-*'; or cluster, which has no name.
    """


@acl.command()
@rule_options
def add(bootstrap: str, timeout: float, force: bool, **fields: str) -> None:
    """Add a rule. One that denies wins over all that allow."""
    rule = _rule(fields)
    with open_client(bootstrap, timeout) as client:
        is_new = client.add_acls([rule], force=force)
    click.echo(f"{rule}: {'holds from now on' if is_new else 'was a rule already'}")


@acl.command()
@rule_options
def remove(bootstrap: str, timeout: float, force: bool, **fields: str) -> None:
    """Remove a rule. Without any, everybody who is admitted may do everything again."""
    rule = _rule(fields)
    with open_client(bootstrap, timeout) as client:
        client.remove_acls([rule], force=force)
    click.echo(f"{rule}: holds no longer")


def _rule(fields: dict[str, str]) -> Any:
    from dledger.protocol.messages.acl_rules import AclRule

    return AclRule(**fields)


@acl.command("list")
@click.argument("principal", required=False)
@group_options
@json_option
def list_rules(principal: str | None, bootstrap: str, timeout: float, as_json: bool) -> None:
    """List the rules, or those of PRINCIPAL."""
    with open_client(bootstrap, timeout) as client:
        rules = client.acls()
    rows = [asdict(rule) for rule in rules if principal in (None, rule.principal)]
    if rules or as_json:
        print_rows(_FIELDS, rows, as_json)
    else:
        click.echo("there are no rules: everybody who is admitted may do everything")


@acl.command()
@asked_arguments
@group_options
@json_option
def test(bootstrap: str, timeout: float, as_json: bool, **asked: str) -> None:
    """Would PRINCIPAL be let do OPERATION? Says so, with the rule that decides; exit code 1 when
    not. The NAME '*' asks for every one; what is asked for need not be there."""
    with open_client(bootstrap, timeout) as client:
        decision = client.acl_decision(**asked)
    if as_json:
        print_json(asdict(decision))
    else:
        by = f"by the rule: {decision.rule}" if decision.rule else decision.reason
        click.echo(f"{'allowed' if decision.allowed else 'denied'}, {by}")
    sys.exit(0 if decision.allowed else 1)
