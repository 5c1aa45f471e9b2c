"""``dledger completion``: a shell completes commands and options after TAB."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from dledger.errors import PathError

SHELLS: Final = ("bash", "zsh", "fish")
VARIABLE: Final = "_DLEDGER_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.option("--install", is_flag=True, help="Write it where SHELL finds it.")
def completion(shell: str, install: bool) -> None:
    """Print the script by which SHELL completes this command, or install it.

    For one session: eval "$(dledger completion bash)".
    """
    root = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None  # click has one of each of SHELLS
    script = kind(root, {}, "dledger", VARIABLE).source()
    if not install:
        click.echo(script)
        return
    place = script_path(shell)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(script + "\n", "utf-8")
    except OSError as error:
        raise PathError(
            f"{place} cannot be written: {error.strerror}; add this to the start of your shell: "
            f'eval "$(dledger completion {shell})"'
        ) from None
    click.echo(f"{place} is written; {_more(shell, place)}")


def script_path(shell: str) -> Path:
    """Where a shell looks for completions of one user."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return {
        "bash": data / "bash-completion" / "completions" / "dledger",
        "zsh": data / "zsh" / "site-functions" / "_dledger",
        "fish": config / "fish" / "completions" / "dledger.fish",
    }[shell]


def _more(shell: str, place: Path) -> str:
    if shell == "zsh":
        return (
            f"new shells complete when ~/.zshrc has this before compinit: fpath+=({place.parent})"
        )
    if shell == "bash":
        return "new shells complete when the package bash-completion is there"
    return "new shells complete"
