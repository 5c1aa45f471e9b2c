"""``dledger recover``: a new group from the disk of one member, where the others are gone for
ever."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dledger.cli.common import PATH, identity_files, json_option, print_json, yes_option
from dledger.cli.node.files import check_directory
from dledger.errors import ConfigError, PathError

if TYPE_CHECKING:
    from dledger.config import Tls
    from dledger.recover.new_group import RecoveredGroup
    from dledger.recover.others import MemberAnswer
    from dledger.recover.survivor import Survivor


@click.command()
@click.argument("directory", metavar="DIR", type=PATH)
@click.option(
    "--peers",
    default="",
    metavar="n0-HOST:PORT;...",
    help="Where the members are, as the nodes had it. Needed where the list of members never "
    "changed: no file has the addresses then.",
)
@click.option("--group", help="A name for the group, where the old one was drawn: a path group's.")
@click.option("--dry-run", is_flag=True, help="Only say what there is, and what may be lost.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="A member that does not answer for so long is gone.",
)
@yes_option
@json_option
def recover(
    directory: Path,
    peers: str,
    group: str | None,
    dry_run: bool,
    timeout: float,
    yes: bool,
    as_json: bool,
) -> None:
    """Make a group of one from the stopped node's DIR, because a majority of the members is gone
    for ever.

    It has a new id, so that old members can never join it; grow it with `dledger members add`. All
    that the disk has stays. What others acknowledged without this one is lost. While a majority
    answers at the members' addresses it is refused.
    """
    from dledger.config import parse_peers
    from dledger.recover.new_group import group_name
    from dledger.recover.new_group import recover as make
    from dledger.recover.others import ask_all, check_gone, other_addresses, own_address
    from dledger.recover.survivor import look_at
    from dledger.storage.disk.disk import RealDisk

    _check_directory(directory)
    disk = RealDisk()
    survivor = look_at(directory.absolute(), disk)
    name = group_name(survivor, group)
    if survivor.is_alone:
        if survivor.membership.ancestors and not dry_run:
            make(survivor, "", name, disk)  # an interrupted run is brought to its end
        _say_done(survivor, name, as_json)
        return
    given = parse_peers(peers) if peers else {}
    address = own_address(survivor, given)
    addresses = other_addresses(survivor, given)
    answers = ask_all(survivor, addresses, _tls(), timeout)
    if not as_json:
        for line in report(survivor, answers):
            click.echo(line)
    check_gone(survivor, answers)
    if dry_run:
        _end(survivor, answers, None, as_json)
        return
    _confirm(survivor, yes)
    made = make(survivor, address, name, disk)
    _end(survivor, answers, made, as_json)
    if not as_json:
        click.echo(f"{made.group} is the group {made.group_id} now, with {survivor.node_id} alone:")
        sizes = f"segment_bytes={survivor.segment_bytes}"
        sizes += f" --set index_file_bytes={survivor.index_file_bytes}"
        click.echo(
            f"  dledger serve --self-id {survivor.node_id} --peers "
            f"'{survivor.node_id}-{address}' --group {made.group} --dir {directory} --set {sizes}"
        )
        click.echo(
            f"  dledger members add NODE HOST:PORT -b {address}  # with an empty directory; then "
            "promote it"
        )


def _check_directory(directory: Path) -> None:
    """Raises `PathError` for a directory that is no node's, or one of a path group."""
    check_directory(directory)
    if (directory.absolute().parent / "group.json").exists():
        raise PathError(
            f"{directory} is one of a path group's, which starts all of its nodes by itself: copy "
            f"it to a place of its own while the group is stopped (cp -a {directory} ...), and "
            "name that"
        )


def _tls() -> Tls | None:
    from dledger.config import Tls

    files = identity_files()
    if not files.get("tls_ca"):
        return None
    own = (files.get("tls_certificate", ""), files.get("tls_key", ""))
    return Tls(files["tls_ca"], *own, files.get("tls_crl", ""))


def _confirm(survivor: Survivor, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{survivor.directory} would be the group {survivor.group} no more, but one of its "
            "own: see the report with --dry-run, and say --yes"
        )
    typed = click.prompt(
        f"Type the group's name, {survivor.group}, to go on without the others for ever",
        default="",
        show_default=False,
    )
    if typed.strip() != survivor.group:
        raise ConfigError(f"{typed!r} is not {survivor.group!r}: nothing was changed")


def report(survivor: Survivor, answers: list[MemberAnswer]) -> list[str]:
    """The report, line by line."""
    from dledger.times import utc

    role = "no member" if survivor.role is None else f"a {survivor.role.name.lower()}"
    lines = [
        f"{survivor.node_id} is {role} of group {survivor.group} "
        f"({survivor.group_id or 'from before there were ids'}), whose voters are "
        f"{', '.join(survivor.voters)}"
    ]
    if not survivor.is_admitted:
        lines.append(
            "  its disk was replaced and never admitted: it may lack entries that were committed"
        )
    lines += [f"  {one}" for one in answers]
    if there := [one.node for one in answers if one.may_be_member]:
        lines.append(
            f"  {', '.join(there)} would be left behind: stop it, see with --dry-run which of the "
            "disks ends later, and recover that one"
        )
    lines.append(f"known to be committed: entries up to {survivor.committed:,}")
    lines += _only_here(survivor)
    newest = ""
    if survivor.newest_us:
        newest = f". The newest record here is of {utc(survivor.newest_us // 1000)}"
    behind = survivor.committed if survivor.only_here.entries else survivor.end.index
    lines.append(
        f"lost: whatever others acknowledged behind entry {behind:,} that this disk does not have; "
        f"nobody can count it{newest}"
    )
    return lines


def _only_here(survivor: Survivor) -> list[str]:
    only = survivor.only_here
    if not only.entries:
        return ["known of this disk alone: nothing"]
    first = survivor.committed + 1
    lines = [
        f"known of this disk alone: entries {first:,} to {survivor.end.index:,}, which are "
        f"{only.entries:,} of {only.bytes:,} bytes. They are kept, and committed in the new group"
    ]
    for place, count in sorted(only.records.items()):
        lines.append(f"  {place}: {count:,} records")
    if only.staged:
        lines.append(f"  {only.staged:,} of these are in transactions that may not be committed")
    return lines


def _end(
    survivor: Survivor, answers: list[MemberAnswer], made: RecoveredGroup | None, as_json: bool
) -> None:
    """The whole as JSON."""
    if not as_json:
        return
    only = survivor.only_here
    value: dict[str, Any] = {
        "directory": str(survivor.directory),
        "node_id": survivor.node_id,
        "group": survivor.group,
        "group_id": survivor.group_id,
        "voters": survivor.voters,
        "answers": {
            one.node: {"address": one.address, "presence": one.presence.name, "detail": one.detail}
            for one in answers
        },
        "committed_index": survivor.committed,
        "end_index": survivor.end.index,
        "only_here": {
            "entries": only.entries,
            "bytes": only.bytes,
            "records": only.records,
            "staged": only.staged,
        },
        "made": None
        if made is None
        else {"group": made.group, "group_id": made.group_id, "ancestor": made.ancestor},
    }
    print_json(value)


def _say_done(survivor: Survivor, name: str, as_json: bool) -> None:
    if as_json:
        _end(survivor, [], None, as_json)
        return
    made = ", which was made from another one" if survivor.membership.ancestors else ""
    click.echo(
        f"{survivor.node_id} is the only voter of group {name} ({survivor.group_id}){made}: there "
        "is nothing to recover, start it"
    )
