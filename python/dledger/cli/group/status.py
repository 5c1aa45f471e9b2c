"""``dledger status``, ``groups`` and ``transfer``: the nodes, and the consumer groups."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from dledger.cli.common import (
    group_options,
    is_path,
    json_option,
    open_client,
    print_json,
    print_rows,
    print_table,
)
from dledger.config import nearest
from dledger.errors import ConfigError

if TYPE_CHECKING:
    from dledger.client import Lag, MemberState

_PLACE: Final = ("topic", "partition", "offset", "begin_offset", "end_offset")
_LAG: Final = {"lag": "rows", "lag_bytes": "bytes", "lag_s": "seconds"}
"""Columns, and the fields of `Lag` that they show."""


@click.command()
@group_options
@json_option
def status(bootstrap: str, timeout: float, as_json: bool) -> None:
    """How each node is doing. Starts nothing. Exit code 1 when there is no leader."""
    processes: dict[str, int | None] = {}
    runs = True
    if is_path(bootstrap):
        from dledger.embedded.group import describe_nodes, read_group

        home, file = read_group(bootstrap)
        processes = {node: info.pid for node, info in describe_nodes(home, file).items()}
        bootstrap = file.bootstrap_servers
        runs = file.named or any(processes.values())
    found: dict[str, dict[str, Any]] = {}
    if runs:
        with open_client(bootstrap, timeout) as client:
            found = {str(node): dict(state) for node, state in client.status().items()}
    for node in processes:
        found.setdefault(node, {"error": "does not run"})
    _print_status(found, processes, as_json)
    if not any(str(state.get("role", "")).upper() == "LEADER" for state in found.values()):
        sys.exit(1)


def _print_status(
    found: dict[str, dict[str, Any]], processes: dict[str, int | None], as_json: bool
) -> None:
    if as_json:
        pids = {node: {"pid": pid} for node, pid in processes.items()}
        print_json({node: state | pids.get(node, {}) for node, state in sorted(found.items())})
        return
    indices = ("begin_index", "end_index", "durable_index", "committed_index", "applied_index")
    columns = ("role", "term", *indices, "disk_level")
    rows = []
    for node, state in sorted(found.items()):
        cells = [state.get(column, "-") for column in columns]
        if not state.get("admission", {}).get("admitted", True):
            cells[0] = f"{cells[0]} (not admitted)"
        if "error" in state:
            cells[0] = str(state["error"])
        rows.append((node, *cells, str(processes.get(node) or "-")))
    heads = [column.removesuffix("_index").removesuffix("_level") for column in columns]
    print_table(("node", *heads, "pid"), rows)
    for node, state in sorted(found.items()):
        if state.get("compiled") is False:
            click.echo(f"{node}: runs without compiled functions; Python does their work, slower")
        if off := state.get("clock", {}).get("off"):
            click.echo(f"{node}: its wall clock is {off}")


@click.command()
@click.argument("name", required=False)
@click.option(
    "--hold/--release", "hold", default=None, help="Let NAME hold retention back, or no longer."
)
@click.option("--delete", is_flag=True, help="Forget NAME.")
@group_options
@json_option
def groups(
    name: str | None, hold: bool | None, delete: bool, bootstrap: str, timeout: float, as_json: bool
) -> None:
    """List consumer groups, their members and lag, or with NAME one group's by partition: rows,
    stored bytes, seconds, and the member that reads it."""
    if name is None and (hold is not None or delete):
        raise ConfigError("which group? Name it, as in: dledger groups NAME --release")
    with open_client(bootstrap, timeout) as client:
        if name is not None and name not in (known := client.groups()):
            there = ", ".join(known) or "none"
            raise ConfigError(
                f"there is no group {name!r}{nearest(name, known)}; there are: {there}"
            )
        if name is not None and delete:
            client.delete_group(name)
            click.echo(f"group {name} is deleted")
            return
        if name is not None and hold is not None:
            client.hold_retention(name, hold)
        if name is not None:
            _print_lag(client.lag(name), client.members(name), as_json)
            return
        found = [(one, client.lag(one), client.members(one)) for one in sorted(client.groups())]
    sums = [
        {
            "group": one,
            "members": len(members),
            "epoch": members[0].epoch if members else "",
            "partitions": len(lags),
            "lag": sum(lag.rows for lag in lags),
            "lag_bytes": sum(lag.bytes for lag in lags),
            "lag_s": max((lag.seconds for lag in lags), default=0.0),
            "holds": any(lag.holds for lag in lags),
        }
        for one, lags, members in found
    ]
    print_rows(("group", "members", "epoch", "partitions", *_LAG, "holds"), sums, as_json)


def _print_lag(lags: Sequence[Lag], members: Sequence[MemberState], as_json: bool) -> None:
    names = (*_PLACE, *_LAG, "committed_ms", "holds")
    rows = [{name: getattr(one, _LAG.get(name, name)) for name in names} for one in lags]
    if not members:
        print_rows((*_PLACE, *_LAG, "holds"), rows, as_json)
        return
    readers = {
        (topic, number): one
        for one in members
        for topic, numbers in one.partitions.items()
        for number in numbers
    }
    places = dict.fromkeys(sorted(readers), dict.fromkeys(names, "" if not as_json else None))
    places |= {(row["topic"], row["partition"]): row for row in rows}
    shown = []
    for place, row in sorted(places.items()):
        reader = readers.get(place)
        own = {"member": "", "member_id": ""}
        if reader is not None:
            own = {"member": reader.instance_id or reader.label, "member_id": reader.member_id}
        shown.append(row | dict(zip(_PLACE, place, strict=False)) | own)
    print_rows((*_PLACE, *_LAG, "holds", "member"), shown, as_json)
    if not as_json:
        click.echo(f"epoch {members[0].epoch}, {len(members)} members:")
        who = ("member_id", "instance_id", "label", "state")
        print_rows(who, [{name: getattr(one, name) for name in who} for one in members], False)


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
