"""``dledger rocketmq adopt``: an old plain commit log in front of a new group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dledger.cli.common import PATH, confirm, yes_option
from dledger.cli.staging import staged
from dledger.config import GroupConfig, check_name
from dledger.errors import ConfigError
from dledger.types import NodeId

if TYPE_CHECKING:
    from dledger.node.rocketmq.adoption import AdoptionPlan


@click.command()
@click.argument("root", metavar="DIR", type=PATH)
@click.option(
    "--self-id",
    required=True,
    help="The member that goes on behind this copy of the old log, e.g. n0.",
)
@click.option("--group", default="default", show_default=True, help="Identity of the new group.")
@click.option(
    "--to",
    "target",
    metavar="COPY",
    type=PATH,
    help="Adopt a copy of the store, which is made there, and leave DIR as it is.",
)
@click.option(
    "--index-file-bytes",
    type=click.IntRange(min=32),
    default=GroupConfig().index_file_bytes,
    show_default=True,
    help="The group's index_file_bytes.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@yes_option
def adopt(
    root: Path,
    self_id: str,
    group: str,
    target: Path | None,
    index_file_bytes: int,
    dry_run: bool,
    yes: bool,
) -> None:
    """Let a new group go on behind the plain commit log of the RocketMQ store in DIR, whose broker
    is stopped.

    Each member does this with a copy of the same store of its own. Old messages stay where they are
    and are found by place, queue offset and key as before; new ones continue their queues. It may
    be interrupted, and done again.
    """
    from dledger.node.rocketmq.adoption import adopt as carry_out
    from dledger.node.rocketmq.adoption import plan_adoption
    from dledger.rocketmq.dispatch.reput_columns import ColumnReput
    from dledger.rocketmq.upgrade.adoption import copy_store
    from dledger.rocketmq.upgrade.examine import examine

    check_name("group", group)
    node_id = NodeId(check_name("node id", self_id))
    if index_file_bytes % 32:
        raise ConfigError(
            f"--index-file-bytes {index_file_bytes}: no multiple of 32, the size of a unit"
        )
    if target is not None and root.resolve() in (target.resolve(), *target.resolve().parents):
        raise ConfigError(
            f"--to {target} lies in {root}, which would be copied into itself: name a place "
            f"elsewhere"
        )
    with held(root, dry_run):
        plan = plan_adoption(examine(root), group, node_id, index_file_bytes)
        describe(plan, root, target)
        if plan.is_done and target is None:
            click.echo(f"{plan.directory} is there: this is done already")
        elif not dry_run:
            confirm(yes, "Do that?", "nothing was done: say --yes, or --dry-run to see this only")
            if target is None:
                carry_out(plan, ColumnReput)
            else:
                with staged(target) as place:
                    copy_store(root, place)
                    carry_out(
                        plan_adoption(examine(place), group, node_id, index_file_bytes), ColumnReput
                    )
    if not dry_run:
        tell_next(plan, target or root)


@contextmanager
def held(root: Path, dry_run: bool) -> Iterator[None]:
    """Hold the store's lock; one that is only looked at gets no lock file."""
    from dledger.rocketmq.store.store_lock import StoreLock

    lock = StoreLock(root) if root.is_dir() and ((root / "lock").exists() or not dry_run) else None
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def describe(plan: AdoptionPlan, root: Path, target: Path | None) -> None:
    """Print the state and the steps to be done."""
    old = plan.adoption
    count = sum(map(len, old.queues.values()))
    click.echo(
        f"{root}: {old.messages:,} messages in {len(old.starts)} files of {old.file_size:,} bytes, "
        f"{old.starts[0]:,} to {old.end:,}, and {count:,} queues"
    )
    if old.starts[0]:
        click.echo(
            f"the log begins at {old.starts[0]:,}: retention has taken what was before, or it is "
            f"lost"
        )
    click.echo(
        f"fingerprint {old.fingerprint:08x} at {old.divided_offset:,}, which every member must have"
    )
    if plan.is_done:
        return
    if target is not None:
        click.echo(f"copy it to {target}; in the copy:")
    for step in plan.steps():
        click.echo(f"  {step}".replace(f"{root}/", f"{target or root}/"))


def tell_next(plan: AdoptionPlan, root: Path) -> None:
    """How the node is started."""
    size = plan.adoption.file_size
    settings = [
        "commit_log=rocketmq",
        f"segment_bytes={size}",
        f"index_file_bytes={plan.index_file_bytes}",
    ]
    if GroupConfig().max_body_bytes + 4096 > size:
        settings.append(f"max_body_bytes={size // 2}")
    texts = " ".join(f"--set {one}" for one in settings)
    click.echo(
        f"when every member is adopted: dledger serve --self-id {plan.node_id} --peers ... "
        f"--group {plan.group} --dir {root / plan.directory.name} {texts}"
    )
