"""``dledger backup``: making backups, listing and verifying them."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from dledger.cli.access.quotas import Size
from dledger.cli.commands import CommandGroup
from dledger.cli.common import group_options, json_option, open_client, print_json, print_table
from dledger.times import utc

CREATE: Final = "create"


class BackupCommands(CommandGroup):
    """`dledger backup URL` is `dledger backup create URL`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [CREATE, *args]
        return super().parse_args(ctx, args)


@click.group(cls=BackupCommands)
def backup() -> None:
    """Copy a running group to a directory or URL, and look after the copies.

    'dledger backup URL' makes one; 'dledger restore' makes a group from it. A directory called like
    a command is ./list.
    """


@backup.command(CREATE)
@click.argument("url", metavar="URL|DIR")
@group_options
@click.option("--node", default="", help="Copy from this node; by default from a follower.")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Drop older backups, so that N stay with the new one.",
)
@click.option(
    "--bytes-per-s",
    "rate",
    type=Size(),
    metavar="SIZE",
    help="Read no faster from the node, e.g. 20MiB.",
)
@json_option
def create(
    url: str,
    bootstrap: str,
    timeout: float,
    node: str,
    keep: int | None,
    rate: int | None,
    as_json: bool,
) -> None:
    """Copy the group's state as of one committed entry: topics, records, schemas, consumer groups,
    sessions. Only what the backups there do not have is copied. A backup that was interrupted is
    none; the next one goes on where it was."""
    from dledger.backup.copying import BackupJob, ReadRate
    from dledger.backup.repository import Repository
    from dledger.backup.target import open_target
    from dledger.cli.progress import byte_progress

    target = open_target(url)
    with open_client(bootstrap, timeout) as client, byte_progress("backup") as shown:
        job = BackupJob(
            client,
            Repository(target),
            node=node,
            keep=keep or 0,
            pace=ReadRate(rate or 0),
            on_bytes=shown.add,
        )
        report = job.run()
    made = report.manifest
    if as_json:
        print_json(
            {
                "name": made.name,
                "url": target.url,
                "group_id": made.group_id,
                "index": made.index,
                "node": report.node,
                "read_bytes": report.read,
                "written_bytes": report.written,
                "dropped": report.dropped,
                "note": report.note,
            }
        )
        return
    click.echo(
        f"backup {made.name}: entries {made.begin.position.index + 1} to {made.index}, from "
        f"{report.node}; {report.read:,} bytes read, {report.written:,} written"
        + (f"; {report.dropped} older ones dropped" if keep else "")
    )
    if report.note:
        click.echo(f"note: {report.note}", err=True)


@backup.command("list")
@click.argument("url", metavar="URL|DIR")
@json_option
def list_backups(url: str, as_json: bool) -> None:
    """The backups that are there, newest last. Exit code 1 where one is damaged."""
    from dledger.backup.repository import Repository
    from dledger.backup.target import open_target

    sound, wrong = Repository(open_target(url)).manifests()
    rows: list[dict[str, Any]] = [
        {
            "name": one.name,
            "group_id": one.group_id,
            "time": utc(one.time_ms),
            "first": one.begin.position.index + 1,
            "index": one.index,
            "bytes": sum(one.chunks.values()),
        }
        for one in sound
    ]
    if as_json:
        print_json({"backups": rows, "damaged": wrong})
    else:
        print_table(list(rows[0]) if rows else ["name"], [list(row.values()) for row in rows])
        for one in wrong:
            click.echo(f"damaged: {one}", err=True)
    if wrong:
        sys.exit(1)


@backup.command()
@click.argument("url", metavar="URL|DIR")
@click.option("--backup", "name", help="Only the one whose name begins so; by default all.")
@json_option
def verify(url: str, name: str | None, as_json: bool) -> None:
    """Read all of the backups and check it. Exit code 1 where a file is damaged or missing."""
    from dledger.backup.repository import Repository
    from dledger.backup.target import open_target
    from dledger.backup.verifying import verify_backups
    from dledger.cli.progress import byte_progress

    repository = Repository(open_target(url))
    sound, wrong = ([repository.manifest(name)], []) if name else repository.manifests()
    total = sum({c: size for one in sound for c, size in one.chunks.items()}.values())
    with byte_progress("verify") as shown:
        found = [
            {"file": path, "reason": why}
            for path, why in verify_backups(
                repository.target, sound, lambda size: shown.add(size, total)
            )
        ]
    found += [{"file": "", "reason": why} for why in wrong]
    if as_json:
        print_json({"backups": len(sound), "bytes": total, "problems": found})
    else:
        for one in found:
            click.echo(": ".join(filter(None, one.values())))
        if not found:
            click.echo(f"{len(sound)} backups are whole: {total:,} bytes read and checked")
    if found:
        sys.exit(1)
