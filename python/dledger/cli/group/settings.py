"""``dledger settings``: what a group may change while it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from dledger.cli.access.quotas import Size
from dledger.cli.commands import CommandGroup
from dledger.cli.common import (
    group_options,
    json_option,
    open_client,
    print_json,
    print_rows,
    print_table,
)
from dledger.config.durations import milliseconds
from dledger.config.dynamic import DYNAMIC, unknown_setting
from dledger.errors import ConfigError, UnknownOption

expect_option = click.option(
    "--expect",
    type=click.IntRange(min=0),
    metavar="VERSION",
    help="Change nothing unless the group's settings have this version, as 'get' shows it.",
)


class Name(click.ParamType[str]):
    """The name of a dynamic setting."""

    name = "NAME"
    ending = ""

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        _check_name(value)
        return str(value)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(n + self.ending) for n in DYNAMIC if n.startswith(incomplete)]


class Assignment(Name):
    """``NAME=VALUE``, with a unit where the setting has one."""

    name = "NAME=VALUE"
    ending = "="

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        name, equals, text = str(value).partition("=")
        _check_name(name)
        if not equals:
            raise ConfigError(f"{name}: write {name}=VALUE")
        return f"{name}={plain_value(name, text)}"


def _check_name(name: str) -> None:
    if text := unknown_setting(name):
        raise UnknownOption(text)


def plain_value(name: str, text: str) -> str:
    """A value as the log has it: durations in milliseconds, sizes in bytes."""
    if name.endswith("_ms"):
        found = milliseconds(text.replace("_", ""))
        if found is None:
            raise ConfigError(f"{name}: {text!r} is no duration: write as 1500ms, 30s, 12h or 7d")
        return str(found)
    if name.endswith(("_bytes", "_bytes_per_s")):
        return str(Size().convert(text, None, None))
    return text.replace("_", "") if name.startswith("max_") else text


@click.group(cls=CommandGroup)
def settings() -> None:
    """Settings of the group that change while it runs.

    The group keeps them as part of its log: they are the same at every node, and count over those
    of the nodes' files.
    """


@settings.command("get")
@click.argument("names", metavar="[NAME]...", nargs=-1, type=Name())
@group_options
@json_option
def get_settings(names: tuple[str, ...], bootstrap: str, timeout: float, as_json: bool) -> None:
    """Show settings, all or those that are named, and the version of them all."""
    with open_client(bootstrap, timeout) as client:
        found = client.settings()
    version = found[0].version
    shown = [one for one in found if not names or one.name in names]
    if as_json:
        rows = {one.name: {"value": one.value, "source": one.source} for one in shown}
        print_json({"version": version, "settings": rows})
        return
    print_table(["setting", "value", "from"], [[n.name, n.value, n.source] for n in shown])
    click.echo(f"version {version}")


@settings.command("set")
@click.argument("assignments", metavar="NAME=VALUE...", nargs=-1, required=True, type=Assignment())
@expect_option
@group_options
def set_settings(
    assignments: tuple[str, ...], expect: int | None, bootstrap: str, timeout: float
) -> None:
    """Set settings at every node, all or none, as in: retention_ms=7d pending_bytes=128MiB."""
    values = dict(one.split("=", 1) for one in assignments)
    if len(values) < len(assignments):
        raise ConfigError("one setting is named twice: name each once")
    with open_client(bootstrap, timeout) as client:
        version = client.set_settings(values, expect=expect)
    click.echo(f"{told_values(values)}; version {version}")


@settings.command("reset")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, type=Name())
@expect_option
@group_options
def reset_settings(
    names: tuple[str, ...], expect: int | None, bootstrap: str, timeout: float
) -> None:
    """Take settings back to what they were before they were ever set."""
    with open_client(bootstrap, timeout) as client:
        version = client.reset_settings(names, expect=expect)
        found = {one.name: one.value for one in client.settings() if one.name in names}
    click.echo(f"{told_values(found)}; version {version}")


def told_values(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} is {value or '(empty)'}" for name, value in values.items())


@settings.command("history")
@group_options
@json_option
def history(bootstrap: str, timeout: float, as_json: bool) -> None:
    """Show who changed which settings when, the newest hundred changes."""
    with open_client(bootstrap, timeout) as client:
        found = client.settings_history()
    rows: Sequence[Mapping[str, Any]] = [
        {
            "version": one.version,
            "time": one.time.isoformat(timespec="seconds"),
            "principal": one.principal,
            "setting": name,
            "before": before,
            "after": after,
        }
        for one in found
        for name, (before, after) in one.changes.items()
    ]
    print_rows(("version", "time", "principal", "setting", "before", "after"), rows, as_json)
