"""Runs commands with small chunks, one after the other, each in a process of its own that has all
modules already: ``python -m verification.backups.program``.

A line of its input is a command, as `Order`. It answers with a line, the process, and with another
one when that has ended: the exit code, or -9. The process stays there until the next line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from dledger.backup import chunks, copying, repository, restoring, verifying
from dledger.cli.main import main
from verification.backups.places import set_fault

ENDS: Final = "ends at a name"
CHUNK_BYTES: Final = 64 << 10
STALE_S: Final = 10.0
"""More than any backup here takes between two signs, also on a busy machine."""
SIGN_S: Final = 0.5
LOADED: Final = (restoring, verifying)
"""Only that processes have them."""


class Order(NamedTuple):
    """A command, and its fault: one of `verification.backups.places`, or `ENDS`, which is SIGKILL
    at one of the calls by which a restore gives directories their names."""

    words: list[str]
    fault: str
    calls: int
    output: str
    """Without its suffix: files with what it says, and one that is made when the fault bites."""


def small() -> None:
    """Chunks of which there are many, and signs that are soon old."""
    for module in (chunks, copying):
        vars(module)["CHUNK_BYTES"] = CHUNK_BYTES
    vars(copying).update(PIECE_ROWS=100, SIGN_S=SIGN_S)
    vars(repository).update(STALE_S=STALE_S, TORN_S=STALE_S)


def end_at(calls: int, bit: Path) -> None:
    """SIGKILL in front of one of the calls about names."""
    left = [calls]

    def counted(name: str) -> Callable[..., Any]:
        real: Callable[..., Any] = getattr(Path, name)

        def call(path: Path, *args: Any, **more: Any) -> Any:
            left[0] -= 1
            if not left[0]:
                os.close(os.open(bit, os.O_CREAT | os.O_WRONLY))
                os.kill(os.getpid(), signal.SIGKILL)
            return real(path, *args, **more)

        return call

    for name in ("mkdir", "touch", "rename", "unlink"):
        setattr(Path, name, counted(name))


def obey(order: Order) -> int:
    """Run the command here; its exit code."""
    for number, suffix in ((1, ".out"), (2, ".err")):
        file = os.open(order.output + suffix, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(file, number)
    bit = Path(order.output + ".bit")
    if order.fault == ENDS:
        end_at(order.calls, bit)
    set_fault(order.fault, order.calls, bit)
    try:
        main(order.words)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def serve() -> None:
    """Answer until the input ends."""
    small()
    for line in sys.stdin:
        order = Order(*json.loads(line))
        pid = os.fork()
        if not pid:
            try:
                code = obey(order)
                sys.stdout.flush()
            except BaseException:
                sys.excepthook(*sys.exc_info())
                code = 70
            sys.stderr.flush()
            os._exit(code)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        killed = ended is not None and ended.si_code == os.CLD_KILLED
        sys.stdout.write(f"{-signal.SIGKILL if killed else ended and ended.si_status}\n")
        sys.stdout.flush()
        sys.stdin.readline()
        os.waitpid(pid, 0)


if __name__ == "__main__":
    serve()
