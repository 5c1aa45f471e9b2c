"""``dledger restore``: a new group from a backup."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dledger.cli.common import PATH, json_option, print_json
from dledger.errors import ConfigError

if TYPE_CHECKING:
    from dledger.backup.cut import RestorePlan
    from dledger.backup.repository import Repository
    from dledger.backup.restoring import RestoreReport
    from dledger.types import NodeId


@click.command()
@click.argument("url", metavar="URL|DIR")
@click.argument("directories", metavar="DIRECTORY...", type=PATH, nargs=-1, required=True)
@click.option("--backup", "name", help="The one whose name begins so; by default the newest.")
@click.option(
    "--peers",
    help="Nodes of a group that 'dledger serve' runs, as n0-host:port;n1-host:port;…: one "
    "DIRECTORY for each, in this order. Without it DIRECTORY is the path of a whole group.",
)
@click.option("--group", help="The new group's name, with --peers; by default the old one's.")
@click.option("--nodes", type=int, help="Nodes of a path group; by default as many as there were.")
@click.option(
    "--until-offset",
    metavar="TOPIC/PARTITION=OFFSET",
    help="End before the entry that has brought this record.",
)
@click.option(
    "--until-time",
    metavar="TIME",
    help="End before the first batch with a record later than this (2026-11-24T12:00:00Z, -2h).",
)
@click.option("--until-index", type=click.IntRange(min=0), metavar="N", help="End with entry N.")
@click.option(
    "--topics",
    metavar="NAME,NAME",
    help="Only these, with the positions of consumer groups in them: the other topics are gone.",
)
@json_option
def restore(
    url: str,
    directories: tuple[Path, ...],
    name: str | None,
    peers: str | None,
    group: str | None,
    nodes: int | None,
    until_offset: str | None,
    until_time: str | None,
    until_index: int | None,
    topics: str | None,
    as_json: bool,
) -> None:
    """Make the directories of a new group from a backup: the same topics, offsets, schemas, group
    positions and sessions, under a new id whose ancestor is the old one.

    DIRECTORY must not be there, or be empty; it is there when everything is in it.
    """
    from dledger.backup.repository import Repository
    from dledger.backup.restoring import RestoreJob
    from dledger.backup.target import open_target
    from dledger.cli.progress import byte_progress

    wanted = _topics(topics)
    places = _places(peers, directories, group, nodes)
    repository = Repository(open_target(url))
    plan = _plan(repository, name, until_offset, until_time, until_index)
    used = (plan.log,) if plan.catalog is None else (plan.log, plan.catalog)
    total = sum({c: size for one in used for c, size in one.chunks.items()}.values())
    with byte_progress("restore") as shown:
        job = RestoreJob(repository.target, plan, lambda size: shown.add(size, total), wanted)
        if places:
            report = job.to_directories(group or _group_name(plan.log.group), places)
        else:
            report = job.to_path(directories[0], nodes or _odd(len(plan.log.members)))
    said = RestoreTold(plan, report, directories, places, peers or "")
    if as_json:
        print_json(said.as_dict())
    else:
        click.echo("\n".join(said.lines()))


@dataclass(frozen=True, slots=True)
class RestoreTold:
    """What the command says at its end."""

    plan: RestorePlan
    report: RestoreReport
    directories: tuple[Path, ...]
    places: dict[NodeId, Path]
    peers: str

    def as_dict(self) -> dict[str, Any]:
        report, log = self.report, self.plan.log
        return {
            "backup": log.name,
            "index": report.index,
            "group": report.group,
            "group_id": report.group_id,
            "ancestor": log.group_id,
            "group_version": report.version,
            "left_out": report.left_out,
            "directories": [str(one) for one in self.directories],
            **report.sizes,
        }

    def lines(self) -> list[str]:
        report, log = self.report, self.plan.log
        lines = [
            f"{', '.join(map(str, self.directories))}: the group as of entry {report.index} of "
            f"{log.group_id or log.group}, under the new id {report.group_id}"
        ]
        if report.left_out:
            lines.append(f"  without topics {', '.join(report.left_out)}")
        settings = " ".join(f"--set {setting}={value}" for setting, value in report.sizes.items())
        for node, directory in self.places.items():
            lines.append(
                f"  dledger serve --self-id {node} --peers '{self.peers}' --group {report.group} "
                f"--dir {directory} {settings}"
            )
        return lines


def _places(
    peers: str | None, directories: tuple[Path, ...], group: str | None, nodes: int | None
) -> dict[NodeId, Path]:
    """The directory of each node; empty for a path group."""
    if peers is None:
        if len(directories) != 1 or group:
            raise ConfigError(
                "a path group is one DIRECTORY, and draws its name; for nodes that 'dledger serve' "
                "runs give --peers, and a DIRECTORY for each of them"
            )
        return {}
    from dledger.config import parse_peers

    members = parse_peers(peers)
    if nodes is not None:
        raise ConfigError("--nodes is for a path group: --peers says how many there are")
    if len(members) != len(directories) or len({d.absolute() for d in directories}) < len(members):
        raise ConfigError(
            f"--peers names {len(members)} nodes, {', '.join(members)}: give a DIRECTORY of its "
            f"own for each, in this order, not {len(directories)}"
        )
    return dict(zip(members, directories, strict=True))


def _topics(text: str | None) -> tuple[str, ...]:
    names = (
        () if text is None else tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    )
    if text is not None and not names:
        raise ConfigError("--topics: name at least one, as in orders,clicks")
    return names


def _group_name(name: str) -> str:
    """The name for a group of `dledger serve`: that of a path group was drawn, and is its id."""
    from dledger.config import GroupConfig
    from dledger.raft.state.group import drawn_name
    from dledger.types import NodeId

    return GroupConfig(members=(NodeId("n0"),)).group if drawn_name(name) else name


def _odd(members: int) -> int:
    return members if members % 2 else members + 1


def _plan(
    repository: Repository,
    name: str | None,
    until_offset: str | None,
    until_time: str | None,
    until_index: int | None,
) -> RestorePlan:
    from dledger.backup.cut import before_offset, before_time, plan_restore
    from dledger.backup.reading import BackupReader
    from dledger.types import Index

    if sum(one is not None for one in (until_offset, until_time, until_index)) > 1:
        raise ConfigError("give one of --until-offset, --until-time and --until-index")
    log = repository.manifest(name) if name else repository.newest()
    last = log.index if until_index is None else Index(until_index)
    reader = BackupReader(repository.target, log)
    if until_offset is not None:
        last = before_offset(reader, *_record(until_offset))
    elif until_time is not None:
        last = before_time(reader, _time_us(until_time))
    return plan_restore(repository, log, last, repository.manifests()[0])


def _record(text: str) -> tuple[str, int, int]:
    place, equals, offset = text.rpartition("=")
    topic, slash, partition = place.rpartition("/")
    if not (equals and slash and topic and partition.isdecimal() and offset.isdecimal()):
        raise ConfigError(f"--until-offset {text}: write TOPIC/PARTITION=OFFSET, as in orders/0=17")
    return topic, int(partition), int(offset)


def _time_us(text: str) -> int:
    from dledger.client.positions import Kind, parse_position

    position = parse_position("--until-time", text)
    if position.kind is not Kind.TIME:
        raise ConfigError(
            f"--until-time {text}: write a time with its zone, as in 2026-11-24T12:00:00Z, or -2h "
            "for two hours back"
        )
    return position.number
