"""Groups of commands: their order, and the nearest name to a wrong one."""

from __future__ import annotations

from typing import Any

import click

from dledger.cli.common import CONTEXT
from dledger.config import nearest
from dledger.errors import (
    AccessDenied,
    DLedgerError,
    PathError,
    PermissionDenied,
    Unavailable,
    WrongGroup,
)


class CommandGroup(click.Group):
    """The subcommands in the order in which they are added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            known = list(self.commands)
            ctx.fail(
                f"No such command {name!r}{nearest(name, known)}; there are {', '.join(known)}"
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (AccessDenied, PathError, Unavailable, WrongGroup) as error:
            chosen = ctx.meta.pop(CONTEXT, None)
            if chosen is None or isinstance(error, PermissionDenied):
                raise
            raise DLedgerError(
                f"{error}; context {chosen.name!r} stands for this group: where it is another one "
                f"by now, dledger context add {chosen.name} -b HOST:PORT,...|DIR, or remove it"
            ) from error


class DefaultsToList(CommandGroup):
    """What is no command is an argument, or an option, of ``list``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)
