"""``dledger members``: who belongs to a group, and changing that."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

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
from dledger.cli.group.filling import filling
from dledger.cli.group.node_states import GroupLook, State, look_at, members_now
from dledger.cli.group.replacing import Replacement, replace_member
from dledger.client.catching_up import behind, wait_until_near, wait_until_there
from dledger.client.member_lists import ListedMember, listed_members
from dledger.errors import ConfigError

COLUMNS: Final = (
    *("node", "role", "state", "address", "incarnation", "lag", "bytes", "release", "reachable"),
)
NOT_KNOWN: Final = "-"
NOT_LISTED: Final = ListedMember("", None)
RACK_HELP: Final = "Where it stands; readers of the same rack ask it first."


@click.group(cls=DefaultsToList)
def members() -> None:
    """The members of the group: list them, and change them while it works.

    Without a command it is list: dledger members.
    """


@members.command("list")
@group_options
@json_option
def list_members(bootstrap: str, timeout: float, as_json: bool) -> None:
    """List the members: role, state, address, incarnation, release, and how many committed entries
    and bytes of the log each lacks. They are asked as by `dledger status`, which needs no leader.
    Exit code 1 unless all answer within 2 s."""
    rows = member_rows(look_at(bootstrap, timeout))
    columns: tuple[str, ...] = COLUMNS
    if any(row["rack"] for row in rows):  # most groups stand in one place
        columns = (*COLUMNS[:4], "rack", *COLUMNS[4:])
    print_rows(columns, rows if as_json else [_shown(row) for row in rows], as_json)
    if not all(row["reachable"] for row in rows):
        sys.exit(1)


@members.command()
@click.argument("node")
@click.argument("address", metavar="HOST:PORT")
@click.option("--observer", is_flag=True, help="It serves reads and never votes.")
@click.option("--rack", metavar="NAME", help=RACK_HELP)
@group_options
def add(
    node: str, address: str, observer: bool, rack: str | None, bootstrap: str, timeout: float
) -> None:
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
    with open_client(bootstrap, timeout) as client, filling() as shown:
        wait_until_near(client, node, timeout, shown.tell, shown.moved)
        client.promote_member(node)
    click.echo(f"{node} is a voter")


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


@members.command()
@click.argument("old")
@click.argument("new", metavar="NEW=HOST:PORT")
@click.option("--rack", metavar="NAME", help="Where NEW stands; by default nothing is known.")
@yes_option
@group_options
def replace(
    old: str, new: str, rack: str | None, yes: bool, bootstrap: str, timeout: float
) -> None:
    """Let the node NEW take the place of the member OLD, which may be dead and is removed for ever.

    Start NEW with dledger serve --join on an empty directory first. It gets the whole log, and only
    then the place of OLD, so that a majority of the voters lives all the time. An interrupted
    command is said again, and goes on. Gives up when NEW gets no further for --timeout.
    """
    wanted = _replacement(old, new, rack)
    question = f"Remove {old} from the group for ever, as soon as {wanted.new} has its place?"
    confirm(yes, question, f"{old} would be gone for ever: say --yes")
    with open_client(bootstrap, timeout) as client, filling() as shown:
        did_any = replace_member(client, wanted, timeout, shown)
    already = "" if did_any else " already"
    click.echo(f"{wanted.new} at {wanted.address} has the place of {old}{already}")


def _replacement(old: str, new: str, rack: str | None) -> Replacement:
    from dledger.net.address import join_address, split_address

    name, equals, address = new.partition("=")
    if not equals or not name:
        raise ConfigError(f"{new!r}: write NEW=HOST:PORT, as n3=d:7001")
    if old == name:
        raise ConfigError(
            f"{old} cannot replace itself: choose another id; a member that has lost its disk is "
            f"admitted (dledger admit {old}), one that moves with it is readdressed (dledger "
            f"members readdress {old} {address})"
        )
    return Replacement(old, name, join_address(*split_address(address)), rack)


@members.command()
@click.argument("node")
@click.argument("address", metavar="HOST:PORT")
@group_options
def readdress(node: str, address: str, bootstrap: str, timeout: float) -> None:
    """The member NODE, which has moved with its disk, is reached at HOST:PORT from now on. Start it
    there first. All nodes and clients learn the address."""
    with open_client(bootstrap, timeout) as client, filling() as shown:
        client.readdress_member(node, address)
        shown.tell(f"{node} is at {address}")
        wait_until_there(client, node, timeout, shown.tell, shown.moved)
    click.echo(f"{node} is at {address}, and has everything")


@members.command()
@click.argument("node")
@click.option("--rack", metavar="NAME", help=RACK_HELP)
@click.option("--no-rack", is_flag=True, help="Nobody is told where it stands any more.")
@group_options
def label(node: str, rack: str | None, no_rack: bool, bootstrap: str, timeout: float) -> None:
    """Say where the member NODE stands, by the name of its rack, room or zone. Founders have none
    before. Readers with that rack (DLEDGER_RACK, rack=) ask it first."""
    if no_rack is (rack is not None):
        raise ConfigError("write --rack NAME, or --no-rack")
    with open_client(bootstrap, timeout) as client:
        client.label_member(node, rack=rack)
    click.echo(f"{node} stands in {'no rack' if rack is None else rack}")


def member_rows(look: GroupLook) -> list[dict[str, Any]]:
    """A row for each member, by the leader's list; without one, for all that any node names. None
    where nobody tells."""
    answering = [state for state in look.states.values() if "error" not in state]
    leader = next((state for state in answering if state["role"] == "LEADER"), {})
    named = {name for state in answering for name in state["members"]}
    listed = listed_members(look.states.values())
    names = members_now(look.states) or {*look.states, *named}
    return [_row(name, look, leader, listed.get(name, NOT_LISTED)) for name in sorted(names)]


def _row(name: str, look: GroupLook, leader: State, listed: ListedMember) -> dict[str, Any]:
    state = look.states.get(name, {"error": "has an address that nobody tells"})
    marks: Mapping[str, int] = leader.get("watermarks", {})
    row = {
        "node": name,
        "role": listed.role.lower() or None,
        "rack": listed.rack,
        "state": state.get("role"),
        "address": look.addresses.get(name, name if ":" in name else None),
        "incarnation": _incarnation(name, state, leader),
        "admitted": state.get("admission", {}).get("admitted"),
        "lag": max(0, leader["committed_index"] - marks[name]) if name in marks else None,
        "bytes": behind(leader, state),
        "replaces": leader.get("replacing", {}).get(name),
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
    cells = {name: NOT_KNOWN if row[name] is None else row[name] for name in (*COLUMNS, "rack")}
    if row["incarnation"] is not None:
        cells["incarnation"] = f"{row['incarnation']:016x}"
    if row["replaces"]:
        cells["role"] = f"{cells['role']} (for {row['replaces']})"
    if row["admitted"] is False:
        cells["state"] = f"{cells['state']} (not admitted)"
    if "error" in row:
        cells["state"] = row["error"].partition(":")[0]
    return cells
