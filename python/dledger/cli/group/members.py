"""``dledger members``: who belongs to a group."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

import click

from dledger.cli.common import group_options, json_option, print_rows
from dledger.cli.group.node_states import GroupLook, State, look_at

COLUMNS: Final = ("node", "role", "state", "address", "incarnation", "lag", "release", "reachable")
NOT_KNOWN: Final = "-"


@click.command()
@group_options
@json_option
def members(bootstrap: str, timeout: float, as_json: bool) -> None:
    """List the members: role, state, address, incarnation, and how many committed entries each
    lacks. They are asked as by `dledger status`, which needs no leader. Exit code 1 unless all
    answer within 2 s."""
    rows = member_rows(look_at(bootstrap, timeout))
    print_rows(COLUMNS, rows if as_json else [_shown(row) for row in rows], as_json)
    if not all(row["reachable"] for row in rows):
        sys.exit(1)


def member_rows(look: GroupLook) -> list[dict[str, Any]]:
    """A row for each member, also for those that only others name. None where nobody tells."""
    answering = [state for state in look.states.values() if "error" not in state]
    leader = next((state for state in answering if state["role"] == "LEADER"), {})
    named = {name for state in answering for name in state["members"]}
    # nodes of an older release tell no roles: all of their members vote
    roles = dict.fromkeys(named, "VOTER")
    for state in (*answering, leader):
        roles |= state.get("member_roles", {})
    return [_row(name, look, leader, roles) for name in sorted({*look.states, *named})]


def _row(name: str, look: GroupLook, leader: State, roles: Mapping[str, str]) -> dict[str, Any]:
    state = look.states.get(name, {"error": "has an address that nobody tells"})
    marks: Mapping[str, int] = leader.get("watermarks", {})
    row = {
        "node": name,
        "role": roles.get(name, "").lower() or None,
        "state": state.get("role"),
        "address": look.addresses.get(name, name if ":" in name else None),
        "incarnation": _incarnation(name, state, leader),
        "admitted": state.get("admission", {}).get("admitted"),
        "lag": max(0, leader["committed_index"] - marks[name]) if name in marks else None,
        "release": state.get("release"),
        "reachable": "error" not in state,
    }
    return row | ({"error": state["error"]} if "error" in state else {})


def _incarnation(name: str, state: State, leader: State) -> int | None:
    """The member's own; where it does not answer, the one that the leader counts."""
    own = state.get("admission", {}).get("incarnation")
    counted: int | None = leader.get("admission", {}).get("members", {}).get(name)
    return counted if own is None else own


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """In a table: an incarnation is no number to be read, but to be compared."""
    cells = {name: NOT_KNOWN if row[name] is None else row[name] for name in COLUMNS}
    if row["incarnation"] is not None:
        cells["incarnation"] = f"{row['incarnation']:016x}"
    if row["admitted"] is False:
        cells["state"] = f"{cells['state']} (not admitted)"
    if "error" in row:
        cells["state"] = row["error"].partition(":")[0]
    return cells
