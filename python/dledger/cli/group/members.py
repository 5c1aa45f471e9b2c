"""``dledger members``: who belongs to a group, and changing that."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from dledger.cli.commands import DefaultsToList
from dledger.cli.common import (
    confirm,
    group_options,
    json_option,
    open_client,
    print_rows,
    yes_option,
)
from dledger.cli.group.node_states import GroupLook, State, look_at, members_now

if TYPE_CHECKING:
    from dledger.client import Client

COLUMNS: Final = ("node", "role", "state", "address", "incarnation", "lag", "release", "reachable")
NOT_KNOWN: Final = "-"
NEAR: Final = 1000
"""Entries: a learner that lacks no more is promoted at once, or the leader says why not."""
LOOK_S: Final = 0.2
TELL_S: Final = 5.0


@click.group(cls=DefaultsToList)
def members() -> None:
    """The members of the group: list them, and change them while it works.

    Without a command it is list: dledger members.
    """


@members.command("list")
@group_options
@json_option
def list_members(bootstrap: str, timeout: float, as_json: bool) -> None:
    """List the members: role, state, address, incarnation, and how many committed entries each
    lacks. They are asked as by `dledger status`, which needs no leader. Exit code 1 unless all
    answer within 2 s."""
    rows = member_rows(look_at(bootstrap, timeout))
    print_rows(COLUMNS, rows if as_json else [_shown(row) for row in rows], as_json)
    if not all(row["reachable"] for row in rows):
        sys.exit(1)


@members.command()
@click.argument("node")
@click.argument("address", metavar="HOST:PORT")
@click.option("--observer", is_flag=True, help="It serves reads and never votes.")
@click.option("--rack", default="", metavar="NAME", help="Where it stands.")
@group_options
def add(node: str, address: str, observer: bool, rack: str, bootstrap: str, timeout: float) -> None:
    """Add NODE, which gets the whole log and does not count before it is promoted. Start it with
    dledger serve --join, before or after this, on an empty directory."""
    with open_client(bootstrap, timeout) as client:
        client.add_member(node, address, observer=observer, rack=rack)
    role = "an observer" if observer else "a learner"
    then = "" if observer else f", then dledger members promote {node}"
    click.echo(f"{node} is {role}: start it with --join, where it does not run yet{then}")


@members.command()
@click.argument("node")
@group_options
def promote(node: str, bootstrap: str, timeout: float) -> None:
    """Let the learner NODE vote and count, as soon as it has caught up. Gives up when it gets no
    further for --timeout."""
    with open_client(bootstrap, timeout) as client:
        _wait_for(client, node, timeout)
        client.promote_member(node)
    click.echo(f"{node} is a voter")


def _wait_for(client: Client, node: str, timeout_s: float) -> None:
    """Until a learner is near the end of the log, or gets no further; tells how far it is."""
    least, since_s = None, time.monotonic()
    told_s = since_s
    while True:
        found = list(client.status().values())
        leader = next((state for state in found if state.get("role") == "LEADER"), {})
        mark, now_s = leader.get("watermarks", {}).get(node), time.monotonic()
        lag = None if mark is None else leader["end_index"] - mark
        is_stranger = bool(leader) and node not in leader["members"]
        if is_stranger or (lag is not None and lag <= NEAR):
            return  # the leader says whether it is promoted
        if lag is not None and (least is None or lag < least):
            least, since_s = lag, now_s
        if now_s - since_s > timeout_s:
            return
        if lag is not None and now_s - told_s > TELL_S:
            told_s = now_s
            click.echo(f"{node} lacks {lag:,} entries", err=True)
        time.sleep(LOOK_S)


@members.command()
@click.argument("node")
@group_options
def demote(node: str, bootstrap: str, timeout: float) -> None:
    """Let the voter NODE be a learner again, which does not count."""
    with open_client(bootstrap, timeout) as client:
        client.demote_member(node)
    click.echo(f"{node} is a learner")


@members.command()
@click.argument("node")
@yes_option
@group_options
def remove(node: str, yes: bool, bootstrap: str, timeout: float) -> None:
    """Remove NODE: it stops by itself, and never counts again, with or without its disk."""
    question = f"Remove {node} from the group for ever?"
    confirm(yes, question, f"{node} would be gone for ever: say --yes")
    with open_client(bootstrap, timeout) as client:
        client.remove_member(node)
    click.echo(f"{node} is no member")


def member_rows(look: GroupLook) -> list[dict[str, Any]]:
    """A row for each member, by the leader's list; without one, for all that any node names. None
    where nobody tells."""
    answering = [state for state in look.states.values() if "error" not in state]
    leader = next((state for state in answering if state["role"] == "LEADER"), {})
    named = {name for state in answering for name in state["members"]}
    # nodes of an older release tell no roles: all of their members vote
    roles = dict.fromkeys(named, "VOTER")
    for state in (*answering, leader):
        roles |= state.get("member_roles", {})
    names = members_now(look.states) or {*look.states, *named}
    return [_row(name, look, leader, roles) for name in sorted(names)]


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
