"""``dledger upgrade``: the version of a group."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from dledger.catalog.versions import BRINGS
from dledger.cli.common import NO_GROUP, bootstrap_option, open_client, print_table, timeout_option
from dledger.errors import ConfigError, Unavailable
from dledger.protocol.messages.group_version import NO_VERSIONS
from dledger.release import GROUP_VERSION

if TYPE_CHECKING:
    from dledger.types import NodeId

State = dict[str, Any]


@click.command()
@click.argument("group", required=False, metavar="[PATH|ADDRESSES]")
@click.option("--check", is_flag=True, help="Change nothing. Exit code 1 where it is not possible.")
@bootstrap_option(required=False)
@timeout_option
def upgrade(group: str | None, check: bool, bootstrap: str, timeout: float) -> None:
    """Make the newest group version active, once all nodes run a release that supports it.

    Before that the nodes can go back to the release before; afterwards no longer. What a version
    brings is refused until it is active.
    """
    if not (target := group or bootstrap):
        raise ConfigError(NO_GROUP)
    with open_client(target, timeout) as client:
        states = client.status()
        leader = _leader(states)
        said = states[leader].get("group_version", {})
        active = said.get("active", 0)
        _print_members(states)
        if active >= GROUP_VERSION:
            click.echo(f"group version {active} is active")
            return
        click.echo(f"group version {active} is active; version {GROUP_VERSION} brings")
        for version in range(active + 1, GROUP_VERSION + 1):
            for what in BRINGS[version]:
                click.echo(f"  - {what}")
        if said and not check:
            active = client.upgrade_group()
            click.echo(f"group version {active} is active now")
            return
    if obstacle := said.get("obstacle", f"{leader}, which leads, runs an older release"):
        click.echo(f"not possible yet: {obstacle}")
        sys.exit(1)
    click.echo("possible: dledger upgrade")


def _leader(states: dict[NodeId, State]) -> NodeId:
    for node, state in states.items():
        if state.get("role") == "LEADER":
            return node
    raise Unavailable("no node of the group leads now: see 'dledger status'")


def _print_members(states: dict[NodeId, State]) -> None:
    rows = []
    for node, state in sorted(states.items()):
        said = state.get("group_version", {})
        oldest, newest = said.get("supported", NO_VERSIONS)
        if "error" in state:
            rows.append((node, "does not answer", "-", "-"))
        else:
            release = said.get("release", "older")
            rows.append((node, release, f"{oldest} to {newest}", str(said.get("active", 0))))
    print_table(("node", "release", "supports", "has"), rows)
