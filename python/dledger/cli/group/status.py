"""``dledger status``, ``transfer`` and ``admit``: the nodes."""

from __future__ import annotations

import sys
from typing import Any

import click

from dledger.cli.common import (
    group_options,
    json_option,
    open_client,
    print_json,
    print_table,
)
from dledger.cli.group.node_states import look_at, problems, strangers
from dledger.config import nearest
from dledger.errors import ConfigError
from dledger.release import GROUP_VERSION


@click.command()
@group_options
@json_option
def status(bootstrap: str, timeout: float, as_json: bool) -> None:
    """How each node is doing, as it says itself: those that answer within 2 s, also when there is
    no leader. Starts nothing. Exit code 1 unless all is well: all members are there, admitted and
    caught up, one leads, no entry is damaged, no disk is almost full."""
    look = look_at(bootstrap, timeout)
    wrong = problems(look.states)
    _print_status(look.states, look.processes, wrong, as_json)
    if wrong:
        sys.exit(1)


def _print_status(
    found: dict[str, dict[str, Any]],
    processes: dict[str, int | None],
    wrong: dict[str, list[str]],
    as_json: bool,
) -> None:
    if as_json:
        pids = {node: {"pid": pid} for node, pid in processes.items()}
        print_json(
            {
                node: state | pids.get(node, {}) | {"problems": wrong.get(node, [])}
                for node, state in sorted(found.items())
            }
        )
        return
    indices = ("begin_index", "end_index", "durable_index", "committed_index", "applied_index")
    columns = ("role", "term", *indices, "disk_level")
    rows = []
    for node, state in sorted(found.items()):
        cells = [state.get(column, "-") for column in columns]
        if not state.get("admission", {}).get("admitted", True):
            cells[0] = f"{cells[0]} (not admitted)"
        if "error" in state:
            cells[0] = str(state["error"]).partition(":")[0]
        rows.append((node, *cells, str(processes.get(node) or "-")))
    heads = [column.removesuffix("_index").removesuffix("_level") for column in columns]
    print_table(("node", *heads, "pid"), rows)
    for node, reasons in sorted(wrong.items()):
        for reason in reasons:
            click.echo(f"{node}: {reason}")
    for node, reason in sorted(strangers(found).items()):
        if node not in wrong:
            way = "no member has this address: leave it out of --bootstrap"
            click.echo(f"{node}: {reason}; {way if ':' in node else 'it is no member any more'}")
    versions = [one["group_version"]["active"] for one in found.values() if "group_version" in one]
    if versions and max(versions) < GROUP_VERSION:
        click.echo(
            f"the group has version {max(versions)}: 'dledger upgrade --check' says what version "
            f"{GROUP_VERSION} brings"
        )
    for node, state in sorted(found.items()):
        if state.get("compiled") is False:
            click.echo(f"{node}: runs without compiled functions; Python does their work, slower")
        if off := state.get("clock", {}).get("off"):
            click.echo(f"{node}: its wall clock is {off}")


@click.command()
@click.argument("node")
@group_options
def transfer(node: str, bootstrap: str, timeout: float) -> None:
    """Hand leadership to NODE."""
    with open_client(bootstrap, timeout) as client:
        known = sorted(map(str, client.status()))
        if node not in known:
            raise ConfigError(
                f"node {node!r} is not in the group{nearest(node, known)}; it has "
                f"{', '.join(known)}"
            )
        client.transfer(node)
    click.echo(f"{node} leads")


@click.command()
@click.argument("node")
@group_options
def admit(node: str, bootstrap: str, timeout: float) -> None:
    """Let NODE, which lost its disk or has an older copy of it, vote and count again. Start it
    first."""
    with open_client(bootstrap, timeout) as client:
        client.admit(node)
    click.echo(f"{node} is admitted")
