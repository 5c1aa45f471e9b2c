"""``dledger get-offsets``: offsets by time."""

from __future__ import annotations

import click

from dledger.cli.common import (
    group_options,
    json_option,
    open_client,
    print_rows,
)
from dledger.client.positions import METAVAR, offsets_of, parse_position


@click.command("get-offsets")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@click.option(
    "--at",
    "--time",
    "at",
    default="latest",
    show_default=True,
    metavar=METAVAR,
    help="The first record of that time or later, or a place; the end where there is none.",
)
@group_options
@json_option
def get_offsets(
    topics: tuple[str, ...], at: str, bootstrap: str, timeout: float, as_json: bool
) -> None:
    """Offsets of each partition of TOPIC, or of all topics, by time or place."""
    position = parse_position("--at", at)
    rows = []
    with open_client(bootstrap, timeout) as client:
        for topic in topics or [info.name for info in client.topics()]:
            partitions = range(client.topic(topic).partitions)
            found = offsets_of(client, topic, position, partitions)
            rows += [
                {"topic": topic, "partition": number, "offset": found[number]}
                for number in partitions
            ]
    print_rows(("topic", "partition", "offset"), rows, as_json)
