"""Asking the judge."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from dledger.errors import ConfigError
from dledger.testing.checkers.history import Operation
from dledger.types import slots_dataclass
from verification.judges.export import lines


@slots_dataclass()
class Judgement:
    """The judgement of one history.

    Attributes:
        linearizable: None when it gave up.
        ms: how long it searched.
    """

    linearizable: bool | None
    operations: int
    ms: int


def judge(program: Path, histories: Mapping[str, Iterable[Operation]]) -> dict[str, Judgement]:
    """The judgement of each history, by name.

    Raises:
        ConfigError: there is no such program, or it understood nothing.
    """
    if not program.exists():
        raise ConfigError(
            f"there is no {program}: `make judges` builds it, and needs Go (https://go.dev/dl)"
        )
    text = "".join(line for name, history in histories.items() for line in lines(name, history))
    done = subprocess.run(
        [str(program.absolute())], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ConfigError(f"{program} ended with {done.returncode}: {done.stderr[-500:]}")
    found = dict(_answers(done.stdout))
    return {name: found.get(name, Judgement(True, 0, 0)) for name in histories}


def _answers(text: str) -> Iterator[tuple[str, Judgement]]:
    verdicts = {"Ok": True, "Illegal": False, "Unknown": None}
    for line in text.splitlines():
        plain = json.loads(line)
        yield (
            plain["history"],
            Judgement(verdicts[plain["verdict"]], plain["operations"], plain["ms"]),
        )
