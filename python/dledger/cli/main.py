"""The ``dledger`` command: its subcommands, and the one place where an error becomes a line and an
exit code.

Exit codes: 0 done; 1 the answer is bad news (damage found, no leader); 2 an error, with one line
``dledger: …`` on stderr that names the thing and the way out; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

import click

from dledger.cli.export.command import export
from dledger.cli.group.secret import secret
from dledger.cli.group.status import admit, groups, status, transfer
from dledger.cli.group.topics import topics
from dledger.cli.kafka.command import import_
from dledger.cli.node.files import dump, verify
from dledger.cli.node.reset_term import reset_term
from dledger.cli.node.serve import serve
from dledger.cli.records.append import append
from dledger.cli.records.bench import bench
from dledger.cli.records.tail import tail
from dledger.cli.rocketmq.store import rocketmq
from dledger.compiled import native
from dledger.errors import DLedgerError
from dledger.release import RELEASE

VERSION: Final = f"dledger %(version)s {'with' if native else 'without'} compiled functions"

EXIT_ERROR: Final = 2
EXIT_INTERRUPTED: Final = 130


class Commands(click.Group):
    """The subcommands in the order in which they are added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        run: Callable[..., Any] = super().main
        if not standalone_mode:
            return run(*args, standalone_mode=False, **extra)
        try:
            code = run(*args, standalone_mode=False, **extra)
            sys.stdout.flush()
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message())
            sys.exit(EXIT_ERROR)
        except click.ClickException as error:
            fail(error.format_message())
        except DLedgerError as error:
            fail(str(error))
        except (KeyboardInterrupt, click.Abort):
            sys.exit(EXIT_INTERRUPTED)
        # the reader of our output has seen enough, as in `dledger tail | head`
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        sys.exit(code if isinstance(code, int) else 0)


def fail(message: str) -> NoReturn:
    """One line on stderr, exit code 2."""
    click.echo(f"dledger: {' '.join(message.split())}", err=True)
    sys.exit(EXIT_ERROR)


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(RELEASE, message=VERSION, help="Print the version.")
def main() -> None:
    """A replicated commit log.

    Commands that talk to a group take -b/--bootstrap: host:port,... of running nodes, or the
    directory of an embedded group, which is started when it does not run. DLEDGER_BOOTSTRAP in the
    environment does the same.
    """


_COMMANDS: Final = (
    serve, status, topics, append, tail, groups, transfer, admit, secret,
    verify, dump, reset_term, bench, rocketmq, export, import_,
)  # fmt: skip
for _command in _COMMANDS:
    main.add_command(_command)
