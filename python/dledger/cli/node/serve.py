"""``dledger serve``: one node of a group, in the foreground."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import click

from dledger.cli.common import PATH, set_option
from dledger.config import NOTHING_ACCEPTED
from dledger.logs.formats import FORMATS, LEVELS


@click.command()
@click.option(
    "--config",
    "file",
    type=PATH,
    envvar="DLEDGER_SERVE_CONFIG",
    metavar="FILE",
    help="Settings as TOML (--print-config has all). Options and DLEDGER_SERVE_... in the "
    "environment come first.",
)
@click.option("--self-id", help="Which of the peers this node is, e.g. n0.")
@click.option(
    "--peers",
    metavar="n0-HOST:PORT;...",
    help="All nodes of the group, the same everywhere.",
)
@click.option(
    "--dir",
    "directory",
    type=PATH,
    help="For this node's files; made if missing.",
)
@click.option(
    "--group",
    help="Identity of the group, the same everywhere; default unless given.",
)
@click.option(
    "--secret-file",
    type=PATH,
    help="The group's secret, the same on every node (dledger secret create). A group on one "
    "machine needs none named.",
)
@click.option("--host", help="Where to listen; the host of this node's own address unless given.")
@click.option(
    "--log-format", type=click.Choice(FORMATS), help="Lines of the log; text unless given."
)
@click.option("--log-level", type=click.Choice(LEVELS), help="From which on; info unless given.")
@set_option(
    "Any other setting of a group or node, e.g. retention_ms=604800000. Group settings must be "
    "equal everywhere."
)
@click.option(
    "--accept-loss",
    type=int,
    default=NOTHING_ACCEPTED,
    metavar="INDEX",
    help="Of a group of one whose disk has lost committed entries: go on with the log as it is, "
    "which ends at INDEX.",
)
@click.option(
    "--join",
    "joins",
    is_flag=True,
    default=None,
    help="Found no group, but join the one of the other --peers, which has this node by 'dledger "
    "members add'.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Do not start: print the settings with their origins, and all that would keep the node "
    "from starting. Exit code 1 where there is such a thing.",
)
@click.option("--print-config", is_flag=True, help="Print a file with every setting, and end.")
def serve(
    file: Path | None,
    secret_file: Path | None,
    settings: tuple[str, ...],
    accept_loss: int,
    check: bool,
    print_config: bool,
    **options: Any,
) -> None:
    """Run one node until SIGTERM or SIGINT; then it hands leadership over and drains."""
    from dledger.config.layers import Layers
    from dledger.embedded.process import raise_limits

    if print_config:
        from dledger.config.example import example

        click.echo(example(), nl=False)
        return
    options["secret_file"] = str(secret_file.absolute()) if secret_file is not None else None

    def layers() -> Layers:
        found = Layers()
        for name, value in options.items():
            if value is not None:
                found.add_value(name, value, "--" + name.replace("_", "-"))
        found.add_texts(settings)
        found.add_environment(os.environ)
        if file is not None:
            found.add_file(file)
        return found

    if check:
        from dledger.cli.node.check import report

        raise SystemExit(report(layers()))
    group, node, addresses = layers().configs(accept_loss)
    from dledger.net.reloaded import Reloaded
    from dledger.node.peers.membership_secret import with_secret
    from dledger.node.process import run_node

    # a node has a file for each partition with records, and a shell's own limit is often 1024
    raise_limits(resource.RLIMIT_NOFILE)
    changing = None
    if file is not None:
        changing = Reloaded([str(file)], lambda: layers().configs(accept_loss)[1])
    run_node(group, with_secret(node, addresses), lambda: addresses, settings=changing)
