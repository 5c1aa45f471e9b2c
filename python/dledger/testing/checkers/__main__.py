"""``python -m dledger.testing.checkers FILE...`` judges one history that lies in one or more files
of JSON lines."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dledger.testing.checkers.history import load
from dledger.testing.checkers.verdict import check_history


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as one JSON object.")
def main(files: tuple[Path, ...], as_json: bool) -> None:
    """Check the history in FILES: lost, doubled, reordered, invented or stale records, and
    linearizability."""
    verdict = check_history(load(*files))
    if as_json:
        click.echo(json.dumps(verdict.as_dict()))
    else:
        click.echo(
            f"{verdict.operations} calls, {verdict.acknowledged} values acknowledged, "
            f"{verdict.read} read"
        )
        click.echo(str(verdict))
    raise SystemExit(1 if verdict.findings else 0)


if __name__ == "__main__":
    main()
