"""The ``dledger`` command: its subcommands, and the one place where an error becomes a line and an
exit code.

Exit codes: 0 done; 1 the answer is bad news (damage found, a node not well); 2 an error, with one
line ``dledger: …`` on stderr that names the thing and the way out; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

import click

from dledger.cli.access.acl import acl
from dledger.cli.access.quotas import quotas
from dledger.cli.access.users import users
from dledger.cli.backup.command import backup
from dledger.cli.backup.restore import restore
from dledger.cli.commands import CommandGroup
from dledger.cli.common import Interrupted
from dledger.cli.console import console
from dledger.cli.export.command import export
from dledger.cli.group.groups import groups
from dledger.cli.group.members import members
from dledger.cli.group.offsets import get_offsets
from dledger.cli.group.secret import secret
from dledger.cli.group.settings import settings
from dledger.cli.group.status import admit, status, transfer
from dledger.cli.group.topics import topics
from dledger.cli.group.upgrade import upgrade
from dledger.cli.kafka.command import import_
from dledger.cli.node.files import dump, verify
from dledger.cli.node.move import move
from dledger.cli.node.recover import recover
from dledger.cli.node.reset_term import reset_term
from dledger.cli.node.serve import serve
from dledger.cli.node.stop import stop
from dledger.cli.node.up import up
from dledger.cli.records.append import append
from dledger.cli.records.bench import bench
from dledger.cli.records.tail import tail
from dledger.cli.rocketmq.store import rocketmq
from dledger.cli.settings.completion import completion
from dledger.cli.settings.config_file import defaults_of, read_config
from dledger.cli.settings.context import context
from dledger.compiled import native
from dledger.errors import DLedgerError
from dledger.release import RELEASE

VERSION: Final = f"dledger %(version)s {'with' if native else 'without'} compiled functions"

EXIT_ERROR: Final = 2
EXIT_INTERRUPTED: Final = 130


class Main(CommandGroup):
    """All commands."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        run: Callable[..., Any] = super().main
        if not standalone_mode:
            return run(*args, standalone_mode=False, **extra)
        try:
            extra.setdefault("default_map", defaults_of(self, read_config()))
            code = run(*args, standalone_mode=False, **extra)
            sys.stdout.flush()
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message())
            sys.exit(EXIT_ERROR)
        except click.ClickException as error:
            fail(error.format_message())
        except DLedgerError as error:
            fail(str(error))
        except (KeyboardInterrupt, click.Abort) as error:
            if isinstance(error, Interrupted) or error.__cause__ is not None:
                say(f"interrupted{f': {error}' if str(error) else ''}")
            sys.exit(EXIT_INTERRUPTED)
        # the reader of our output has seen enough, as in `dledger tail | head`
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        sys.exit(code if isinstance(code, int) else 0)


def say(message: str) -> None:
    """One line on stderr."""
    who = click.style("dledger:", fg="red") if not os.environ.get("NO_COLOR") else "dledger:"
    click.echo(f"{who} {' '.join(message.split())}", err=True)


def fail(message: str) -> NoReturn:
    """One line on stderr, exit code 2."""
    say(message)
    sys.exit(EXIT_ERROR)


@click.group(
    cls=Main, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(RELEASE, message=VERSION, help="Print the version.")
def main() -> None:
    """A replicated commit log.

    Commands that talk to a group take -b/--bootstrap: host:port,... of running nodes, or the
    directory of an embedded group, which is started when it does not run. DLEDGER_BOOTSTRAP in the
    environment does the same, and so does a context: dledger context add NAME -b ...
    """


_COMMANDS: Final = (
    serve, up, move, stop, status, members, console, topics, append, tail, get_offsets, groups,
    transfer, admit, upgrade, secret, users, acl, quotas, settings, verify, dump, reset_term,
    recover, backup, restore, bench, rocketmq, export, import_, context, completion,
)  # fmt: skip
for _command in _COMMANDS:
    main.add_command(_command)
