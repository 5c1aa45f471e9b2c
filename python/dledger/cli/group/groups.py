"""``dledger groups``: consumer groups, and where they go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from dledger.cli.commands import DefaultsToList
from dledger.cli.common import (
    PATH,
    Interrupted,
    group_options,
    json_option,
    open_client,
    print_rows,
)
from dledger.client.group_reset import (
    Moved,
    Offsets,
    commit_reset,
    plan_reset,
    wanted_offsets,
)
from dledger.config import nearest
from dledger.errors import ConfigError, PathError

if TYPE_CHECKING:
    from dledger.client import Client, Lag, MemberState

_PLACE: Final = ("topic", "partition", "offset", "begin_offset", "end_offset")
_LAG: Final = {"lag": "rows", "lag_bytes": "bytes", "lag_s": "seconds"}
"""Columns, and the fields of `Lag` that they show."""


@click.group(cls=DefaultsToList)
def groups() -> None:
    """Consumer groups: list them, and say where one goes on.

    Without a command it is list: dledger groups, dledger groups NAME.
    """


@groups.command("list")
@click.argument("name", required=False)
@click.option(
    "--hold/--release", "hold", default=None, help="Let NAME hold retention back, or no longer."
)
@click.option("--delete", is_flag=True, help="Forget NAME.")
@group_options
@json_option
def list_groups(
    name: str | None, hold: bool | None, delete: bool, bootstrap: str, timeout: float, as_json: bool
) -> None:
    """List consumer groups, their members and lag, or with NAME one group's by partition: rows,
    stored bytes, seconds, and the member that reads it."""
    if name is None and (hold is not None or delete):
        raise ConfigError("which group? Name it, as in: dledger groups NAME --release")
    with open_client(bootstrap, timeout) as client:
        if name is not None and name not in (known := client.groups()):
            raise ConfigError(_no_group(name, known))
        if name is not None and delete:
            client.delete_group(name)
            click.echo(f"group {name} is deleted")
            return
        if name is not None and hold is not None:
            client.hold_retention(name, hold)
        if name is not None:
            _print_lag(client.lag(name), client.members(name), as_json)
            return
        found = [(one, client.lag(one), client.members(one)) for one in sorted(client.groups())]
    sums = [
        {
            "group": one,
            "members": len(members),
            "epoch": members[0].epoch if members else "",
            "partitions": len(lags),
            "lag": sum(lag.rows for lag in lags),
            "lag_bytes": sum(lag.bytes for lag in lags),
            "lag_s": max((lag.seconds for lag in lags), default=0.0),
            "holds": any(lag.holds for lag in lags),
        }
        for one, lags, members in found
    ]
    print_rows(("group", "members", "epoch", "partitions", *_LAG, "holds"), sums, as_json)


def _no_group(name: str, known: list[str]) -> str:
    there = ", ".join(known) or "none"
    return f"there is no group {name!r}{nearest(name, known)}; there are: {there}"


def _print_lag(lags: Sequence[Lag], members: Sequence[MemberState], as_json: bool) -> None:
    names = (*_PLACE, *_LAG, "committed_ms", "holds")
    rows = [{name: getattr(one, _LAG.get(name, name)) for name in names} for one in lags]
    if not members:
        print_rows((*_PLACE, *_LAG, "holds"), rows, as_json)
        return
    readers = {
        (topic, number): one
        for one in members
        for topic, numbers in one.partitions.items()
        for number in numbers
    }
    places = dict.fromkeys(sorted(readers), dict.fromkeys(names, "" if not as_json else None))
    places |= {(row["topic"], row["partition"]): row for row in rows}
    shown = []
    for place, row in sorted(places.items()):
        reader = readers.get(place)
        own = {"member": "", "member_id": ""}
        if reader is not None:
            own = {"member": reader.instance_id or reader.label, "member_id": reader.member_id}
        shown.append(row | dict(zip(_PLACE, place, strict=False)) | own)
    print_rows((*_PLACE, *_LAG, "holds", "member"), shown, as_json)
    if not as_json:
        click.echo(f"epoch {members[0].epoch}, {len(members)} members:")
        who = ("member_id", "instance_id", "label", "state")
        print_rows(who, [{name: getattr(one, name) for name in who} for one in members], False)


@groups.command()
@click.argument("name")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P,P...]",
    help="Only this topic, or these partitions of it; may be given often. Otherwise all of which "
    "the group has offsets.",
)
@click.option(
    "--to",
    metavar="earliest|latest|current|N|-N|-10m|TIME",
    help="Where it goes on: an end, an offset, N records before the end, or the first record of a "
    "time or later.",
)
@click.option("--shift", type=int, metavar="N", help="So many records on, or back with -N.")
@click.option(
    "--from-file",
    "plan",
    type=PATH,
    metavar="FILE",
    help="The offsets of a plan: lines of topic,partition,offset, as --export prints them.",
)
@click.option("--execute", is_flag=True, help="Do it; otherwise it is only shown.")
@click.option("--export", is_flag=True, help="Print the plan as lines for --from-file.")
@group_options
@json_option
def reset(
    name: str,
    topics: tuple[str, ...],
    to: str | None,
    shift: int | None,
    plan: Path | None,
    execute: bool,
    export: bool,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Let group NAME go on somewhere else. Shows what would be; --execute does it, all at once.

    Offsets outside of what a partition keeps become its begin or end. A group that has members is
    refused: end them before. A Spark query goes on from its checkpoint, whatever its group says.
    """
    if sum(given is not None for given in (to, shift, plan)) != 1:
        raise ConfigError("where shall the group go on? Give one of --to, --shift and --from-file")
    if plan is not None and topics:
        raise ConfigError("--from-file and --topic both name partitions: give one")
    with open_client(bootstrap, timeout) as client:
        current = _current(client, name, topics, is_new=plan is not None)
        if plan is not None:
            wanted = read_plan(plan)
        else:
            chosen = dict(_chosen(client, current, topics))
            wanted = {
                topic: wanted_offsets(client, topic, partitions, to, shift)
                for topic, partitions in chosen.items()
            }
        # of the topics whose offsets these are: one that is made anew meanwhile is refused
        log_ids = {info.name: info.log_id for info in client.topics() if info.name in wanted}
        moves = plan_reset(client, current, wanted)
        if execute:
            _commit(client, name, moves, log_ids)
    if export:
        for one in moves:
            click.echo(f"{one.topic},{one.partition},{one.new_offset}")
        return
    rows = [asdict(one) | {"offset": "-" if one.offset is None else one.offset} for one in moves]
    print_rows(("topic", "partition", "offset", "new_offset", "lag"), rows, as_json)
    if not as_json:
        click.echo(
            f"group {name} goes on there"
            if execute
            else "nothing is changed: say --execute to do it",
            err=not execute,
        )


def _current(client: Client, name: str, topics: tuple[str, ...], *, is_new: bool) -> Offsets:
    """The offsets of a group. One that is not there may be made where partitions are named.

    Raises:
        ConfigError: there is no such group, and none are named.
    """
    known = client.groups()
    if name not in known and not topics and not is_new:
        raise ConfigError(f"{_no_group(name, known)}; a new one needs --topic")
    return {topic: dict(found) for topic, found in client.group(name).offsets.items()}


def _chosen(
    client: Client, current: Offsets, topics: tuple[str, ...]
) -> Iterator[tuple[str, dict[int, int | None]]]:
    """The topics with the partitions that are meant, and the group's present offsets."""
    for text in topics or current:
        topic, colon, numbers = text.partition(":")
        count = client.topic(topic).partitions
        has = current.get(topic, {})
        chosen = list(range(count)) if topics else sorted(has)
        if colon:
            if not all(one.isdecimal() and int(one) < count for one in numbers.split(",")):
                raise ConfigError(
                    f"--topic {text}: topic {topic!r} has partitions 0..{count - 1}; write them "
                    f"as in {topic}:0,{count - 1}"
                )
            chosen = [int(one) for one in numbers.split(",")]
        yield topic, {number: has.get(number) for number in chosen}


def _commit(client: Client, name: str, plan: list[Moved], log_ids: Mapping[str, str]) -> None:
    try:
        commit_reset(client, name, plan, log_ids)
    except KeyboardInterrupt:
        raise Interrupted(
            f"group {name} may go on there or where it was: see dledger groups {name}"
        ) from None


def read_plan(path: Path) -> Offsets:
    """Raises `ConfigError` with the number of a line that is not topic,partition,offset;
    `PathError` for a file that cannot be read."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise PathError(f"--from-file {path}: {error.strerror}") from None
    found: Offsets = {}
    for at, line in enumerate(lines, 1):
        match [one.strip() for one in line.split(",")]:
            case [topic, partition, offset] if partition.isdecimal() and offset.isdecimal():
                found.setdefault(topic, {})[int(partition)] = int(offset)
            case _:
                raise ConfigError(
                    f"--from-file {path}: line {at} is {line!r}: write "
                    "topic,partition,offset, as in orders,0,42"
                )
    return found
