"""``dledger reset-term``: the way back for a group that was given a term near the end of all
terms."""

from __future__ import annotations

from pathlib import Path

import click

from dledger.cli.common import PATH
from dledger.cli.node.files import check_directory


@click.command(name="reset-term")
@click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=PATH)
@click.option(
    "--term", type=int, default=None, help="This term, which members on other machines were given."
)
def reset_term(directories: tuple[Path, ...], term: int | None) -> None:
    """Give the stopped nodes in DIR... a term from which elections go on.

    Only for a group in which a false message left a term so high that none is left for an election;
    'dledger status' and the nodes' logs say so. Stop ALL members of the group first, run this for
    each, then start them. Records, votes for committed entries, and the log stay as they are. It
    refuses while a node runs, and where no term is astray.
    """
    for directory in directories:
        check_directory(directory)
    from dledger.storage.offline.reset_term import reset_terms

    done = reset_terms(directories, term)
    for one in done:
        click.echo(
            f"{one.node_id} of group {one.group} ({one.directory}): term {one.was} -> {one.term}"
        )
    click.echo(
        f"Start the nodes when every member has been given a term; for members on other machines: "
        f"dledger reset-term --term {done[0].term} DIR"
    )
