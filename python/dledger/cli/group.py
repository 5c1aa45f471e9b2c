"""``dledger status``, ``groups`` and ``transfer``: the nodes, and who reads."""

from __future__ import annotations

import sys
from typing import Any

import click

from dledger.cli.common import group_options, is_path, json_option, open_client, print_json, print_table
from dledger.config import nearest
from dledger.errors import ConfigError


@click.command()
@group_options
@json_option
def status(bootstrap: str, timeout: float, as_json: bool) -> None:
    """How each node is doing. Starts nothing. Exit code 1 when there is no leader."""
    processes: dict[str, int | None] = {}
    if is_path(bootstrap):
        from dledger.embedded.group import describe_nodes, read_group

        home, file = read_group(bootstrap)
        processes = {node: info.pid for node, info in describe_nodes(home, file).items()}
        bootstrap = file.bootstrap_servers
        if not any(processes.values()) and not file.named:
            _print_status({node: {"error": "does not run"} for node in processes}, processes, as_json)
            sys.exit(1)
    with open_client(bootstrap, timeout) as client:
        found: dict[str, dict[str, Any]] = {str(node): dict(state) for node, state in client.status().items()}
    for node in processes:
        found.setdefault(node, {"error": "does not run"})
    _print_status(found, processes, as_json)
    if not any(str(state.get("role", "")).upper() == "LEADER" for state in found.values()):
        sys.exit(1)


def _print_status(found: dict[str, dict[str, Any]], processes: dict[str, int | None], as_json: bool) -> None:
    if as_json:
        print_json({node: {**state, **_pid(node, processes)} for node, state in sorted(found.items())})
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
    print_table(("node", *(column.removesuffix("_index").removesuffix("_level") for column in columns), "pid"), rows)


def _pid(node: str, processes: dict[str, int | None]) -> dict[str, int | None]:
    return {"pid": processes[node]} if node in processes else {}


@click.command()
@click.argument("name", required=False)
@group_options
@json_option
def groups(name: str | None, bootstrap: str, timeout: float, as_json: bool) -> None:
    """List consumer groups, or with NAME one group's offsets and how far it is behind."""
    with open_client(bootstrap, timeout) as client:
        if name is None:
            names = sorted(client.groups())
            if as_json:
                print_json(names)
            else:
                print_table(("group",), [(one,) for one in names])
            return
        rows = []
        for topic, offsets in sorted(client.group(name).offsets.items()):
            ends = client.end_offsets(topic)
            rows += [(topic, at, offset, ends[at], ends[at] - offset) for at, offset in sorted(offsets.items())]
    if as_json:
        keys = ("topic", "partition", "offset", "end_offset", "lag")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        print_table(("topic", "partition", "offset", "end", "lag"), [(row[0], str(row[1]), *row[2:]) for row in rows])


@click.command()
@click.argument("node")
@group_options
def transfer(node: str, bootstrap: str, timeout: float) -> None:
    """Hand leadership to NODE."""
    with open_client(bootstrap, timeout) as client:
        known = sorted(map(str, client.status()))
        if node not in known:
            raise ConfigError(f"node {node!r} is not in the group{nearest(node, known)}; it has {', '.join(known)}")
        client.transfer(node)
    click.echo(f"{node} leads")


@click.command()
@click.argument("node")
@group_options
def admit(node: str, bootstrap: str, timeout: float) -> None:
    """Let NODE, which lost its disk or has an older copy of it, vote and count again. Start it first."""
    with open_client(bootstrap, timeout) as client:
        client.admit(node)
    click.echo(f"{node} is admitted")


__all__ = ["admit", "groups", "status", "transfer"]
